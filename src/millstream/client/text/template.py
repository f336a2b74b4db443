"""How records are written for people: kcat's ``%`` templates, and JSON.

    %t topic      %p partition    %o offset       %T timestamp (ms)   %D timestamp (date and time, UTC)
    %k key        %s value        %h headers      %K key's bytes      %S value's bytes (-1: null)
    %J the whole record as JSON   %% a percent sign
    \\n \\t \\r \\0 \\\\ \\xNN      as in C; nothing is added at the end, so most templates end in \\n

A template is compiled once into a list of pieces, and a batch of records is rendered into one run of bytes.
Nothing is decoded unless it has to be.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

from millstream.core.errors import ConfigError

Headers = Iterable[tuple[str, bytes | None]]


class ReceivedRecord(Protocol):
    """What a template reads from a record; a ``confluent_kafka.Message`` has it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


Render = Callable[[ReceivedRecord], bytes]
_TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}
_PIECE = re.compile(rb"%(.)|\\(x[0-9a-fA-F]{2}|.)|%$|\\$", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
# Everything that a terminal may take for a command. Line feed and tab stay: people mean them as they are.
_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (0x09, 0x0A)
}


def printable(data: bytes) -> bytes:
    """``data`` with everything that a terminal could choke on or obey written as ``\\xNN``."""
    text = data.decode("utf-8", "backslashreplace")
    return (text if text.isprintable() else text.translate(_CONTROLS)).encode()


def utc(timestamp_ms: int) -> str:
    """A timestamp as ISO date and time; empty if the record has none."""
    if timestamp_ms < 0:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # beyond the year 9999: only a number can show it
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(record: ReceivedRecord) -> dict[str, Any]:
    """A record as JSON. Bytes that are not UTF-8 are in a ``..._base64`` field beside a null.

    ``millstream produce --format json`` reads the same shape. A record that was decoded by its schema has
    values instead of text: the decoder provides them as ``structured``.
    """
    kind, timestamp = record.timestamp()
    fields: dict[str, Any] = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
    }
    if kind in _TIMESTAMP_TYPES:
        fields["timestamp"] = timestamp
        fields["timestamp_type"] = _TIMESTAMP_TYPES[kind]
    decoded = getattr(record, "structured", {})
    for name, data in (("key", record.key()), ("value", record.value())):
        if name in decoded:
            fields[name] = decoded[name]
        else:
            _put(fields, name, data)
    headers = record.headers()
    if headers:
        fields["headers"] = []
        for name, data in headers:
            header: dict[str, Any] = {"name": name}
            _put(header, "value", data)
            fields["headers"].append(header)
    return fields


def _put(fields: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        fields[name] = None
        fields[f"{name}_base64"] = base64.b64encode(data or b"").decode("ascii")


def _json_line(record: ReceivedRecord) -> bytes:
    return json.dumps(as_json(record), ensure_ascii=False, separators=(",", ":")).encode()


def _headers(record: ReceivedRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if data is None else data) for name, data in record.headers() or ()
    )


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_FIELDS: dict[bytes, Render] = {
    b"t": lambda r: (r.topic() or "").encode(),
    b"p": lambda r: b"%d" % (r.partition() or 0),
    b"o": lambda r: b"%d" % (r.offset() or 0),
    b"T": lambda r: b"%d" % r.timestamp()[1],
    b"D": lambda r: utc(r.timestamp()[1]).encode(),
    b"k": lambda r: r.key() or b"",
    b"K": lambda r: _size(r.key()),
    b"s": lambda r: r.value() or b"",
    b"S": lambda r: _size(r.value()),
    b"h": _headers,
    b"J": _json_line,
}
# Fields whose bytes a producer chose; the others can't contain anything that a terminal would obey.
_FOREIGN = b"kshJ"


class Template:
    """A compiled template."""

    def __init__(self, text: str, *, safe: bool = False) -> None:
        """``safe`` writes control characters and broken UTF-8 in records as ``\\xNN``, for a terminal."""
        self._pieces: list[Render | bytes] = []
        source, literal, at = text.encode("utf-8", "surrogateescape"), b"", 0
        for found in _PIECE.finditer(source):
            literal += source[at : found.start()]
            at = found.end()
            field, escape = found[1], found[2]
            if field == b"%":
                literal += b"%"
            elif field is not None and field in _FIELDS:
                if literal:
                    self._pieces.append(literal)
                    literal = b""
                self._pieces.append(_safe(_FIELDS[field]) if safe and field in _FOREIGN else _FIELDS[field])
            elif escape is not None and escape in _ESCAPES:
                literal += _ESCAPES[escape]
            elif escape is not None and len(escape) == 3:
                literal += bytes.fromhex(escape[1:].decode())
            else:
                raise ConfigError(
                    f"{found[0].decode(errors='replace')!r} is not valid in a template; "
                    "fields are %t %p %o %T %D %k %K %s %S %h %J %%, escapes \\n \\t \\r \\0 \\xNN \\\\"
                )
        literal += source[at:]
        if literal:
            self._pieces.append(literal)

    def render(self, records: Iterable[ReceivedRecord]) -> bytes:
        """The records, one after another."""
        pieces = self._pieces
        if len(pieces) == 2 and callable(pieces[0]) and isinstance(pieces[1], bytes):
            field, ending = pieces  # "%s\n" and the like: the most common case
            assert callable(field)
            assert isinstance(ending, bytes)
            rendered = [field(record) for record in records]
            return ending.join(rendered) + ending if rendered else b""
        return b"".join(
            [piece if isinstance(piece, bytes) else piece(record) for record in records for piece in pieces]
        )


def _safe(render: Render) -> Render:
    return lambda record: printable(render(record))
