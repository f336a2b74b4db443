"""Turns Protobuf messages into Arrow columns, with Google's parser and a conversion plan made once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millstream.core.errors import InvalidSchema

Get = Callable[[Any], Any]
_MAX_DEPTH = 50
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIMESTAMP, _WRAPPERS = "google.protobuf.Timestamp", "google.protobuf."
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


def message_type(descriptor: Any) -> pa.DataType:
    """The columns of a message. An unsigned number gets a type that can hold it; a well-known type becomes
    what it stands for."""
    return _struct(descriptor, ())


def message_values(descriptor: Any) -> Get:
    """A function that converts a message into what Arrow takes for ``message_type``."""
    return _parts(descriptor)


def _struct(descriptor: Any, way: tuple[str, ...]) -> pa.DataType:
    if descriptor.full_name in way:
        raise InvalidSchema(
            f"{descriptor.full_name} contains itself, so it can't become columns; read it as bytes"
        )
    if len(way) > _MAX_DEPTH:
        raise InvalidSchema(f"messages are nested more than {_MAX_DEPTH} levels deep")
    fields = [(field.name, _type(field, (*way, descriptor.full_name))) for field in descriptor.fields]
    return pa.struct([pa.field(name, kind) for name, kind in fields])


def _type(field: Any, way: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return pa.map_(_single(key, way), _single(value, way))
    single = _single(field, way)
    return pa.list_(single) if field.is_repeated else single


def _single(field: Any, way: tuple[str, ...]) -> pa.DataType:
    scalars = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    if field.cpp_type in scalars:
        return scalars[field.cpp_type]
    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.string() if field.type == field.TYPE_STRING else pa.binary()
    if field.message_type.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if _is_wrapper(field.message_type):
        return _single(field.message_type.fields_by_name["value"], way)
    return _struct(field.message_type, way)


def _is_map(field: Any) -> bool:
    return bool(
        field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry
    )


def _is_wrapper(message: Any) -> bool:
    return message.full_name in {f"{_WRAPPERS}{name}Value" for name in _WRAPPED}


def _parts(descriptor: Any) -> Get:
    getters = [(field.name, _getter(field)) for field in descriptor.fields]

    def get(message: Any) -> dict[str, Any]:
        return {name: getter(message) for name, getter in getters}

    return get


def _getter(field: Any) -> Get:
    name = field.name
    if _is_map(field):
        convert = _converter(field.message_type.fields_by_name["value"])
        return lambda message: [(key, convert(value)) for key, value in getattr(message, name).items()]
    convert = _converter(field)
    plain = field.cpp_type != field.CPPTYPE_MESSAGE and field.cpp_type != field.CPPTYPE_ENUM
    if field.is_repeated:
        if plain:
            return lambda message: list(getattr(message, name))
        return lambda message: [convert(value) for value in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return (
        (lambda message: getattr(message, name))
        if plain
        else (lambda message: convert(getattr(message, name)))
    )


def _converter(field: Any) -> Get:
    if field.cpp_type == field.CPPTYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        # A value that the reader's schema does not know becomes its number, as in Protobuf's JSON.
        return lambda number: names.get(number, str(number))
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return lambda value: value
    if field.message_type.full_name == _TIMESTAMP:
        return lambda value: _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if _is_wrapper(field.message_type):
        return lambda value: value.value
    return _parts(field.message_type)
