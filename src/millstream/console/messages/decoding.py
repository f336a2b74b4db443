"""Decodes the bytes of a record for people: as JSON, text, hex, or by the schema id in them.

If the bytes are not in the requested format, they are shown as they are, with the reason. ``auto`` detects
the format. No content of a record makes anything here raise.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from millstream.core.errors import MillstreamError

Format = Literal["auto", "json", "text", "hex", "avro", "protobuf"]
FORMATS: tuple[Format, ...] = ("auto", "json", "text", "hex", "avro", "protobuf")
SHORT = 400  # characters: in a list
LONG = 64 * 1024  # characters: on a record's own page, unless the whole record is requested
WHOLE = 4 * 1024 * 1024  # characters that a browser can still show; beyond that, there is the download
_LOOKED_AT = 4096  # bytes examined to decide whether it is text
_FRAMED = 5  # bytes: a zero byte and the id of a schema


class SchemaDecoder(Protocol):
    """Decodes by schemas, as ``registry.values.Decoder`` does."""

    def decode(self, data: bytes | None, type: str | None = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A key, a value or a header's value as text. ``format`` is the format found, or ``null`` for a null.
    ``bytes`` is the whole size, even if ``text`` is ``cut``. ``note`` says why the format is not the
    requested one.
    """

    format: str
    text: str
    bytes: int
    cut: bool = False
    schema_id: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Meant:
    """Bytes and what they decode to. If ``structured``, ``value`` is the decoded value, as JSON types."""

    format: str
    data: bytes | None
    value: Any = None
    structured: bool = False
    schema_id: int | None = None
    note: str = ""


class Decoding:
    """Decodes in the requested format, by a registry's schemas if there is a registry."""

    def __init__(self, format_: Format = "auto", schemas: SchemaDecoder | None = None) -> None:
        self._format = format_
        self._schemas = schemas

    def meant(self, data: bytes | None) -> Meant:
        if data is None:
            return Meant("null", None)
        match self._format:
            case "auto":
                return self._looked_at(data)
            case "avro" | "protobuf":
                return self._by_schema(data, self._format.upper())
            case "json":
                return _json(data) or Meant("text", data, note="not JSON")
            case _:
                return Meant(self._format, data)

    def _looked_at(self, data: bytes) -> Meant:
        if len(data) >= _FRAMED and data[0] == 0 and self._schemas is not None:
            return self._by_schema(data, None)
        if data[:1].strip() in (b"{", b"[", b""):
            found = _json(data)
            if found is not None:
                return found
        return Meant("text" if _is_text(data) else "hex", data)

    def _by_schema(self, data: bytes, wanted: str | None) -> Meant:
        if self._schemas is None:
            return Meant(
                "hex", data, note="there is no schema registry: start the console with --registry URL"
            )
        id_ = int.from_bytes(data[1:_FRAMED], "big") if len(data) >= _FRAMED and data[0] == 0 else None
        try:
            value = self._schemas.decode(data, wanted)
        except MillstreamError as error:
            return Meant("text" if _is_text(data) else "hex", data, note=str(error))
        return Meant((wanted or "schema").lower(), data, value, structured=True, schema_id=id_)


def shown(meant: Meant, most: int = SHORT, *, pretty: bool = False) -> ShownValue:
    """The text of decoded bytes, cut after ``most`` characters."""
    data = meant.data
    if data is None:
        return ShownValue("null", "", 0)
    if meant.format == "json":
        # The original text: parsing and writing it again would turn 1e400 into Infinity and drop duplicate
        # keys.
        text = _printable(data.decode(json.detect_encoding(data), "surrogatepass"))
        text = _indented(text, most) if pretty else text
        cut = len(text) > most
    elif meant.structured:
        text = _printable(json.dumps(meant.value, ensure_ascii=False, indent=2 if pretty else None))
        cut = len(text) > most
    elif meant.format == "hex":
        text, cut = _hex(data, most, pretty=pretty)
    else:
        # A character has at most four bytes, so no more than this is ever shown.
        text = data[: 4 * most + 4].decode("utf-8", "replace")
        cut = len(text) > most or len(data) > 4 * most + 4
    return ShownValue(meant.format, text[:most], len(data), cut, meant.schema_id, meant.note)


def _printable(text: str) -> str:
    """Text that UTF-8 can encode: a lone surrogate is escaped as in JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def _indented(text: str, most: int) -> str:
    """JSON with line breaks and every value in its original form. Stops soon after ``most`` characters."""
    out: list[str] = []
    depth, size, before = 0, 0, ""
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if piece in "}]":
            depth -= 1
            line = piece if before in "{[" else "\n" + "  " * depth + piece
        elif piece in ",:":
            line = piece
        else:
            ahead = {"": "", ":": " "}.get(before, "\n" + "  " * depth)
            line = ahead + piece
            depth += piece in "{["
        out.append(line)
        before = piece
        size += len(line)
        if size > most:
            break
    return "".join(out)


def _json(data: bytes) -> Meant | None:
    try:
        value = json.loads(data)
        json.dumps(value, indent=2)  # raises if it is nested too deeply to be shown; it is text then
        return Meant("json", data, value, structured=True)
    except (ValueError, RecursionError):
        return None


def _is_text(data: bytes) -> bool:
    start = data[:_LOOKED_AT]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if len(data) <= _LOOKED_AT or error.start < len(start) - 3:  # otherwise the cut split a character
            return False
        text = start[: error.start].decode()
    return all(letter.isprintable() or letter in "\n\r\t" for letter in text)


def _hex(data: bytes, most: int, *, pretty: bool) -> tuple[str, bool]:
    """Bytes as ``68 65 6c``. Pretty: sixteen bytes on a line, with offsets and as text."""
    if not pretty:
        return data[: most // 3 + 1].hex(" "), len(data) > most // 3
    width = 16 * 3 + 28
    lines = []
    for at in range(0, min(len(data), 16 * (most // width + 1)), 16):
        row = data[at : at + 16]
        plain = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in row)
        lines.append(f"{at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {plain}")
    text = "\n".join(lines)
    return text, len(text) > most or len(data) > 16 * len(lines)
