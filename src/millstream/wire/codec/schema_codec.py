"""Reads and writes requests and responses of every version, by Kafka's schemas.

Requests are read into kio's dataclasses (``wire.codec.request_reader``). Responses are written from plain
dictionaries, by writers that are derived here from the same schemas. A handler fills in every field it
knows. The writer for the client's version takes the fields that the version has, and defaults for fields
left out. So one handler can serve ten versions. These writers take a third of the time of kio's own, whose
cost would be felt in a Metadata response of a large broker. A test compares their output with that of
kio's, byte for byte.

Types in the dictionaries are those of the wire: durations and times are integers in milliseconds, error codes
are integers, a UUID is ``uuid.UUID`` or None, arrays are any sequence.
"""

from __future__ import annotations

import dataclasses
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from struct import Struct
from typing import Any

from millstream.core.errors import ProtocolError
from millstream.core.loop_slices import MANY, breathe
from millstream.wire.api_keys import DESCRIBE_TRANSACTIONS, PRIVATE
from millstream.wire.codec import request_reader as reader
from millstream.wire.codec.schemas import entity_reader, load_request_schema, load_response_schema
from millstream.wire.codec.type_hints import shape_of

Answer = Mapping[str, Any]
Write = Callable[[bytearray, Any], None]
Read = Callable[[Any, int], tuple[Any, int]]

# librdkafka accepts no more than this by default (receive.message.max.bytes).
LARGEST_ANSWER = 100_000_000

# Its responses have a time of -1 for "none", which kio refuses to read.


@cache
def request_reader(api_key: int, version: int) -> Read:
    """The parser of a request's body: ``read(buffer, position) -> (request, size)``."""
    return reader.entity_reader(load_request_schema(api_key, version))


@cache
def answer_writer(api_key: int, version: int) -> Write:
    """The writer of a response's body: ``write(out, fields)`` appends to ``out``."""
    return _entity(load_response_schema(api_key, version))


@cache
def request_writer(api_key: int, version: int) -> Write:
    """The writer of a request's body, for a client that speaks the protocol itself."""
    return _entity(load_request_schema(api_key, version))


@cache
def answer_reader(api_key: int, version: int) -> Read:
    """The parser of a response's body, for a client that speaks the protocol itself."""
    schema = load_response_schema(api_key, version)
    return reader.entity_reader(schema) if api_key == DESCRIBE_TRANSACTIONS else entity_reader(schema)


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """True if this version has compact strings and tagged fields (KIP-482)."""
    if api_key in PRIVATE:
        return False  # it has no schema
    return bool(load_request_schema(api_key, version).__flexible__)


class Lazily(Sequence[Any]):
    """An array in a response whose elements are made when they are written, and not kept."""

    def __init__(self, items: Sequence[Any], make: Callable[[Any], Any]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._make(self._items[index])


def write_unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _number(layout: str) -> Write:
    pack = Struct(layout).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _uuid(out: bytearray, value: uuid.UUID | None) -> None:
    out += value.bytes if value is not None else bytes(16)


def _legacy_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    data = value.encode()
    out += len(data).to_bytes(2, "big")
    out += data


def _legacy_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += len(value).to_bytes(4, "big")
    out += value


def _compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    data = value.encode()
    write_unsigned_varint(out, len(data) + 1)
    out += data


def _compact_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    write_unsigned_varint(out, len(value) + 1)
    out += value


_NUMBERS: dict[str, Write] = {
    "int8": _number(">b"),
    "int16": _number(">h"),
    "int32": _number(">i"),
    "int64": _number(">q"),
    "uint8": _number(">B"),
    "uint16": _number(">H"),
    "uint32": _number(">I"),
    "uint64": _number(">Q"),
    "float64": _number(">d"),
    "bool": _number(">?"),
    "error_code": _number(">h"),
    "timedelta_i32": _number(">i"),
    "timedelta_i64": _number(">q"),
    "datetime_i64": _number(">q"),
    "uuid": _uuid,
}
_ZERO: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "bool": False,
    "float64": 0.0,
}


def _primitive(kind: str, flexible: bool) -> Write:
    if kind == "string":
        return _compact_string if flexible else _legacy_string
    if kind in ("bytes", "records"):
        return _compact_bytes if flexible else _legacy_bytes
    return _NUMBERS[kind]


def _array(item: Write, flexible: bool) -> Write:
    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        if flexible:
            write_unsigned_varint(out, 0 if values is None else len(values) + 1)
        else:
            out += (-1 if values is None else len(values)).to_bytes(4, "big", signed=True)
        if not values:
            return
        if len(values) < MANY:
            for value in values:
                item(out, value)
            return
        for value in values:
            breathe()
            if len(out) > LARGEST_ANSWER:
                raise ProtocolError(
                    f"asks for an answer of more than {LARGEST_ANSWER} bytes; ask for less at a time"
                )
            item(out, value)

    return write


def _nullable_entity(item: Write) -> Write:
    def write(out: bytearray, value: Answer | None) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            item(out, value)

    return write


def _plain(value: Any) -> Any:
    """A schema's default, converted to the types of the dictionaries."""
    import datetime

    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    write: Write
    default: Any
    tag: int | None


def _field(entity: type[Any], declared: dataclasses.Field[Any], hint: Any) -> _Field:
    flexible = entity.__flexible__
    tag = declared.metadata.get("tag")
    hint, nullable, is_array = shape_of(hint)
    kind: str = declared.metadata.get("kafka_type", "")
    if dataclasses.is_dataclass(hint):
        write = _entity(hint)  # type: ignore[arg-type]
        if nullable and not is_array and tag is None:
            write = _nullable_entity(write)
    else:
        write = _primitive(kind, flexible)
    if is_array:
        write = _array(write, flexible)

    if declared.default is not dataclasses.MISSING:
        default = _plain(declared.default)
    elif is_array:
        default = ()
    elif nullable or dataclasses.is_dataclass(hint):
        default = None if nullable else {}
    else:
        default = _ZERO.get(kind, 0)
    if default is None and kind == "datetime_i64":
        default = -1
    return _Field(declared.name, write, default, tag)


@cache
def _entity(entity: type[Any]) -> Write:
    hints = typing.get_type_hints(entity)
    fields = [_field(entity, declared, hints[declared.name]) for declared in dataclasses.fields(entity)]
    plain = [(f.name, f.write, f.default) for f in fields if f.tag is None]
    tagged = sorted((f for f in fields if f.tag is not None), key=lambda f: f.tag or 0)
    flexible = entity.__flexible__

    def write(out: bytearray, values: Answer) -> None:
        get = values.get
        for name, put, default in plain:
            put(out, get(name, default))
        if not flexible:
            return
        present = [
            f for f in tagged if (value := get(f.name, f.default)) is not None and not _same(value, f.default)
        ]
        write_unsigned_varint(out, len(present))
        for f in present:
            body = bytearray()
            f.write(body, values[f.name])
            write_unsigned_varint(out, typing.cast(int, f.tag))
            write_unsigned_varint(out, len(body))
            out += body

    return write


def _same(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return not value if not default else tuple(value) == default
    return bool(value == default)


@cache
def field_names(api_key: int, versions: tuple[int, int]) -> Mapping[str, Any]:
    """All fields of any version of a response, as a tree of names: the fields that a handler may fill in.

    Under ``python -X dev`` and in tests, the broker checks its handlers' responses against this tree, so
    that a misspelt field is not silently left out.
    """
    tree: dict[str, Any] = {}
    for version in range(versions[0], versions[1] + 1):
        _collect(load_response_schema(api_key, version), tree)
    return tree


def _collect(entity: type[Any], tree: dict[str, Any]) -> None:
    hints = typing.get_type_hints(entity)
    for declared in dataclasses.fields(entity):
        child = tree.setdefault(declared.name, {})
        for nested in _dataclasses_in(hints[declared.name]):
            _collect(nested, child)


def _dataclasses_in(hint: Any) -> list[type[Any]]:
    if dataclasses.is_dataclass(hint):
        return [hint]  # type: ignore[list-item]
    return [found for part in typing.get_args(hint) for found in _dataclasses_in(part)]


def unknown_fields(values: Any, tree: Mapping[str, Any], path: str = "") -> list[str]:
    """The names in a response that no version of it has."""
    if isinstance(values, Mapping):
        found = []
        for name, value in values.items():
            if name not in tree:
                found.append(path + name)
            elif tree[name]:
                found += unknown_fields(value, tree[name], f"{path}{name}.")
        return found
    if isinstance(values, (list, tuple, Lazily)):
        return [name for value in values for name in unknown_fields(value, tree, path)]
    return []
