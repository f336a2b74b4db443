"""Turn text into records: lines, JSON lines, or one record as it comes.

Input is read in blocks as they arrive, so that a line from a terminal goes out at once and an endless pipe
stays bounded. A line longer than any record may be ends the input with an error instead of filling memory.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from millstream.core.errors import InputError

BLOCK = 1 << 18
LONGEST = 128 * 1024 * 1024


class ByteStream(Protocol):
    """The input: ``sys.stdin.buffer``, an open binary file, ``io.BytesIO``."""

    def read1(self, size: int, /) -> bytes: ...


class Outgoing(NamedTuple):
    """A record to produce. ``timestamp`` 0 is the time of sending; ``partition`` -1 lets the key decide."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    partition: int = -1
    timestamp: int = 0


def blocks_of_lines(stream: ByteStream, *, longest: int = LONGEST) -> Iterator[list[bytes]]:
    """Whole lines, without their line feeds, as many as one read brings."""
    rest: list[bytes] = []  # pieces of a line whose end has not come yet
    held, number = 0, 1
    while block := stream.read1(BLOCK):
        first, *others = block.split(b"\n")
        rest.append(first)
        held += len(first)
        if held > longest:
            raise InputError(number, f"longer than {longest:,} bytes, the most a record may have")
        if others:
            lines = [b"".join(rest), *others[:-1]]
            rest, held = [others[-1]], len(others[-1])
            number += len(lines)
            yield lines
    if held:
        yield [b"".join(rest)]


def whole(stream: ByteStream, *, longest: int = LONGEST) -> bytes:
    """Everything, as one value."""
    parts, size = [], 0
    while block := stream.read1(BLOCK):
        parts.append(block)
        size += len(block)
        if size > longest:
            raise InputError(1, f"longer than {longest:,} bytes, the most a record may have")
    return b"".join(parts)


Parse = Callable[[bytes, int], Outgoing]


def line_parser(
    *,
    key: bytes | None = None,
    key_separator: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    partition: int = -1,
    timestamp: int = 0,
    tombstones: bool = False,
) -> Parse:
    """Parses a line as a value, or as a key and a value with ``key_separator`` between them."""

    def parse(line: bytes, number: int) -> Outgoing:
        line_key = key
        if key_separator:
            line_key, found, line = line.partition(key_separator)
            if not found:
                separator = key_separator.decode(errors="replace")
                raise InputError(number, f"no {separator!r} between a key and a value")
        value = None if tombstones and not line else line
        return Outgoing(value, line_key, headers, partition, timestamp)

    return parse


def batches_of_records(
    stream: ByteStream, parse: Parse, *, one: bool = False, empty_lines: bool = True
) -> Iterator[tuple[list[Outgoing], list[int] | None]]:
    """Batches of records in the order of the input, with the line number of each record. ``one``: the whole
    input is one record, without a number. Without ``empty_lines``, empty lines are no records."""
    if one:
        yield [parse(whole(stream), 1)], None
        return
    number = 1
    for lines in blocks_of_lines(stream):
        batch: list[Outgoing] = []
        numbers: list[int] = []
        try:
            for line in lines:
                if line or empty_lines:
                    batch.append(parse(line, number))
                    numbers.append(number)
                number += 1
        except InputError:
            yield batch, numbers  # records before the bad line are still sent
            raise
        yield batch, numbers


_KNOWN = frozenset(
    (
        *("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"),
        # written by `consume --output json` and ignored: the record gets its place from the target topic
        *("topic", "offset", "timestamp_type"),
    )
)


def json_parser(
    *,
    key: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    partition: int = -1,
    timestamp: int = 0,
) -> Parse:
    """Parses a line as a JSON object, as ``consume -J`` writes it. Arguments fill in what it leaves out."""

    def parse(line: bytes, number: int) -> Outgoing:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(number, f"not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise InputError(number, 'a record in JSON is an object such as {"key": "k", "value": "v"}')
        unknown = fields.keys() - _KNOWN
        if unknown:
            raise InputError(
                number,
                f"a record has no field {min(unknown)!r} (it has key, value, headers, partition, timestamp); "
                "to send JSON lines as they are, use --format lines",
            )
        record_key = _bytes(fields, "key", number)
        return Outgoing(
            _bytes(fields, "value", number),
            key if record_key is None else record_key,
            (headers or []) + _headers(fields["headers"], number) if "headers" in fields else headers,
            _partition(fields["partition"], number) if "partition" in fields else partition,
            _timestamp(fields["timestamp"], number) if "timestamp" in fields else timestamp,
        )

    return parse


def _bytes(fields: dict[str, Any], name: str, number: int) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, binascii.Error, ValueError):
            raise InputError(number, f"{name}_base64 is not base64") from None
    return encode(fields.get(name))


def encode(value: Any) -> bytes | None:
    """Text as UTF-8, null as null, anything else as compact JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(headers: Any, number: int) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [(name, encode(value)) for name, value in headers.items()]
    found: list[tuple[str, bytes | None]] = []
    if isinstance(headers, list):
        for header in headers:
            if isinstance(header, dict) and isinstance(header.get("name"), str):
                found.append((header["name"], _bytes(header, "value", number)))
            else:
                break
        else:
            return found
    raise InputError(number, 'headers are {"name": "value"} or [{"name": "n", "value": "v"}]')


def _partition(partition: Any, number: int) -> int:
    if isinstance(partition, bool) or not isinstance(partition, int) or not -1 <= partition < 2**31:
        raise InputError(number, f"partition {partition!r} is not a partition's number")
    return partition


def _timestamp(timestamp: Any, number: int) -> int:
    if isinstance(timestamp, int) and not isinstance(timestamp, bool) and 0 <= timestamp < 2**63:
        return timestamp
    if isinstance(timestamp, str):
        try:
            moment = datetime.fromisoformat(timestamp)
        except ValueError:
            pass
        else:
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return max(0, round(moment.timestamp() * 1000))
    raise InputError(
        number, f"timestamp {timestamp!r} is neither milliseconds since 1970 nor a date and time"
    )
