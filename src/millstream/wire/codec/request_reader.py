"""Read requests of any type and version, without trusting the lengths that they claim.

kio's own parser is fast, but it allocates an array's claimed length before it has seen the array. Twenty
bytes from any client could end the process. These readers are derived from the same schemas and return the
same objects, but never allocate more than the received bytes can hold. A request that can't be read raises
ProtocolError. Responses are still read by kio (with one exception, in ``schema_codec``): only clients read
them, from a broker that they chose.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
import typing
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

from millstream.core.errors import ProtocolError
from millstream.core.loop_slices import MANY, Items, breathe
from millstream.wire.codec.schemas import error_codes
from millstream.wire.codec.type_hints import shape_of
from millstream.wire.frame import read_count, read_unsigned_varint

MOST_ELEMENTS = 100_000  # in all arrays of a request; each takes far more memory than bytes in the request


class Body(bytes):
    """A request's bytes, and the number of array elements that it may still have."""

    left = MOST_ELEMENTS

    def spend(self, elements: int) -> None:
        self.left -= elements
        if self.left < 0:
            raise ProtocolError(f"it has more than {MOST_ELEMENTS} elements; request fewer at a time")


# (buffer, position, end) -> (value, position)
Reader = Callable[[Body, int, int], tuple[Any, int]]

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


@cache
def entity_reader(entity: Any) -> Callable[[bytes, int], tuple[Any, int]]:
    """``read(buffer, position) -> (request, size)``, the same signature as kio's."""
    read = _entity(entity)

    def read_whole(buffer: bytes, position: int) -> tuple[Any, int]:
        try:
            value, end = read(Body(buffer), position, len(buffer))
        except (struct.error, IndexError):
            raise ProtocolError("it ends in the middle of a field") from None
        if end > len(buffer):
            raise ProtocolError("a field ends after it")
        return value, end - position

    return read_whole


@cache
def _entity(entity: Any) -> Reader:
    hints = typing.get_type_hints(entity)
    plain: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    for declared in dataclasses.fields(entity):
        read = _field(entity, declared, hints[declared.name])
        tag = declared.metadata.get("tag")
        if tag is None:
            plain.append((declared.name, read))
        else:
            tagged[tag] = declared.name, read
    flexible = entity.__flexible__

    def read_entity(buffer: Body, position: int, end: int) -> tuple[Any, int]:
        values = {}
        for name, read in plain:
            values[name], position = read(buffer, position, end)
        if flexible:
            count, position = read_unsigned_varint(buffer, position)
            if count > end - position:
                raise ProtocolError(f"{count} tagged fields do not fit in it")
            for _ in range(count):
                tag, position = read_unsigned_varint(buffer, position)
                size, position = read_unsigned_varint(buffer, position)
                if size > end - position:
                    raise ProtocolError("a tagged field ends after it")
                known = tagged.get(tag)
                if known is not None:
                    values[known[0]], after = known[1](buffer, position, position + size)
                    if after != position + size:
                        raise ProtocolError(f"tagged field {known[0]} is not as long as it says")
                position += size
        return entity(**values), position

    return read_entity


def _field(entity: Any, declared: dataclasses.Field[Any], hint: Any) -> Reader:
    flexible = bool(entity.__flexible__)
    hint, nullable, is_array = shape_of(hint)
    kind: str = declared.metadata.get("kafka_type", "")
    if dataclasses.is_dataclass(hint):
        read = _entity(typing.cast(Any, hint))
        if nullable and not is_array and "tag" not in declared.metadata:
            read = _nullable_entity(read)
    elif kind in ("string", "bytes", "records"):
        read = _sized(declared.name, kind == "string", flexible, nullable and not is_array)
    else:
        read = _number(kind)
    return _array(declared.name, read, flexible, nullable) if is_array else read


def _array(name: str, item: Reader, flexible: bool, nullable: bool) -> Reader:
    def read(buffer: Body, position: int, end: int) -> tuple[Any, int]:
        start = position
        count, position = read_count(buffer, position, end, flexible)
        if count == 0 and (buffer[start] == 0 if flexible else buffer[start] & 0x80):
            if not nullable:
                raise ProtocolError(f"{name} is null")
            return None, position
        buffer.spend(count)
        values = []
        for _ in range(count):
            breathe()
            value, position = item(buffer, position, end)
            values.append(value)
        return Items(values) if count >= MANY else tuple(values), position

    return read


def _nullable_entity(item: Reader) -> Reader:
    def read(buffer: Body, position: int, end: int) -> tuple[Any, int]:
        if buffer[position] & 0x80:
            return None, position + 1
        return item(buffer, position + 1, end)

    return read


def _sized(name: str, is_text: bool, flexible: bool, nullable: bool) -> Reader:
    """The reader of a string or bytes: a length, then that many bytes."""
    short = struct.Struct(">h" if is_text else ">i")

    def read(buffer: Body, position: int, end: int) -> tuple[Any, int]:
        if flexible:
            size, position = read_unsigned_varint(buffer, position)
            size -= 1
        else:
            (size,) = short.unpack_from(buffer, position)
            position += short.size
        if size < 0:
            if not nullable:
                raise ProtocolError(f"{name} is null")
            return None, position
        after = position + size
        if after > end:
            raise ProtocolError(f"{name} ends after it")
        data = buffer[position:after]
        if not is_text:
            return data, after
        try:
            return data.decode(), after
        except UnicodeDecodeError:
            raise ProtocolError(f"{name} is not UTF-8") from None

    return read


_LAYOUTS = {
    "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q",
    "uint8": ">B", "uint16": ">H", "uint32": ">I", "uint64": ">Q",
    "float64": ">d", "bool": ">?", "error_code": ">h",
    "timedelta_i32": ">i", "timedelta_i64": ">q", "datetime_i64": ">q", "uuid": ">16s",
}  # fmt: skip


def _uuid(data: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=data) if any(data) else None


def _timedelta(ms: int) -> datetime.timedelta:
    try:
        return datetime.timedelta(milliseconds=ms)
    except OverflowError:
        raise ProtocolError(f"{ms} milliseconds is not a duration") from None


def _datetime(ms: int) -> datetime.datetime | None:
    if ms == -1:
        return None
    try:
        return _EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        raise ProtocolError(f"{ms} milliseconds is not a time") from None


def _error_code(code: int) -> Any:
    try:
        return error_codes()(code)
    except ValueError:
        raise ProtocolError(f"{code} is not an error code") from None


_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "uuid": _uuid,
    "timedelta_i32": _timedelta,
    "timedelta_i64": _timedelta,
    "datetime_i64": _datetime,
    "error_code": _error_code,
}


def _number(kind: str) -> Reader:
    layout = struct.Struct(_LAYOUTS[kind])
    unpack, size = layout.unpack_from, layout.size
    convert = _CONVERTED.get(kind)

    def read(buffer: Body, position: int, end: int) -> tuple[Any, int]:
        return unpack(buffer, position)[0], position + size

    def read_converted(buffer: Body, position: int, end: int) -> tuple[Any, int]:
        return convert(unpack(buffer, position)[0]), position + size  # type: ignore[misc]

    return read if convert is None else read_converted
