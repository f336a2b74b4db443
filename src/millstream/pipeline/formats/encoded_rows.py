"""Encodes rows for a topic whose values carry the id of a schema, and checks that columns fit that schema.

A column that can never fit is reported when the job is planned. What depends on the row (a null where none is
allowed, a number that is too large) is reported when the row comes, and stops the job: nothing is left out
silently.
"""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from millstream.core.errors import MillstreamError, UndecodableRecord
from millstream.pipeline.formats.value_schemas import SinkSchema
from millstream.registry.avro.schema import AvroSchema
from millstream.registry.avro.types import Array, Enum, Map, Record, Type, Union, describe
from millstream.registry.json.schema import JsonSchema
from millstream.registry.parsing import parse
from millstream.registry.protobuf.schema import ProtobufSchema
from millstream.registry.schema import AVRO, JSON, ParsedSchema
from millstream.registry.values import Write, encoder, message_class, message_path
from millstream.sqltypes.ddl import SchemaError, from_ddl, map_parts

Columns = list[tuple[str, str]]
Convert = Callable[[Any], Any]

_WHOLE = frozenset(("tinyint", "smallint", "int", "bigint"))
_NUMBERS = _WHOLE | {"float", "double"}
_TEXT = frozenset(("string", "date", "timestamp", "timestamp_ntz", "decimal"))  # or written as text
_AVRO: dict[str, frozenset[str]] = {
    "boolean": frozenset(("boolean",)),
    "int": _WHOLE,
    "long": _WHOLE,
    "float": _NUMBERS,
    "double": _NUMBERS,
    "bytes": frozenset(("binary",)),
    "fixed": frozenset(("binary",)),
    "string": _TEXT,
    "decimal": _NUMBERS | {"decimal", "string"},
    "date": _WHOLE | {"date", "string"},
    "timestamp": _WHOLE | {"timestamp", "string"},
    "local-timestamp": _WHOLE | {"timestamp_ntz", "string"},
    "time": _WHOLE | {"string"},
    "uuid": frozenset(("string", "binary")),
}


# ---- columns ------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _parsed(type: str, text: str) -> ParsedSchema:
    return parse(type, text, ())


def check_columns(sink_schema: SinkSchema, struct: str) -> None:
    """Refuses columns that can't be written with the given schema. MillstreamError says why not."""
    if sink_schema.text is None:
        return
    schema = _parsed(sink_schema.type, sink_schema.text)
    if isinstance(schema, ProtobufSchema):
        message_path(schema, sink_schema.message)  # raises if the schema does not have the message
    try:
        columns = columns_of(struct)
    except SchemaError:
        return  # a column that is always null, or an interval: only its rows can tell
    found: Iterator[str]
    if isinstance(schema, ProtobufSchema):
        found = _protobuf_misfits(schema, sink_schema.message, columns)
    elif isinstance(schema, AvroSchema):
        found = _avro_misfits(schema.root, columns)
    else:
        found = _json_misfits(schema, columns)
    for misfit in found:
        raise MillstreamError(f"{misfit}; change the columns with value= or .select(...), or the schema")


def _protobuf_misfits(schema: ProtobufSchema, message: str | None, columns: Columns) -> Iterator[str]:
    kind = message_class(schema, message_path(schema, message)).DESCRIPTOR
    others = [each.name for each in schema.root.message_type]
    if len(others) > 1 and message is None and any(name not in _fields(kind) for name, _ in columns):
        first = next(name for name, _ in columns if name not in _fields(kind))
        yield (
            f"column {first!r} is not a field of {kind.full_name}, the first message of the schema; message="
            f" names another: {', '.join(others)}"
        )
    yield from _message_misfits(kind, columns, "")


def _fields(message: Any) -> dict[str, Any]:
    return {name: field for field in message.fields for name in (field.name, field.json_name)}


def _message_misfits(message: Any, columns: Columns, path: str) -> Iterator[str]:
    fields = _fields(message)
    for name, kind in columns:
        if name not in fields:
            yield f"column {path + name!r} is not a field of {message.full_name}"
        else:
            yield from _field_misfits(fields[name], kind, path + name)
    given = {fields[name].name for name, _ in columns if name in fields}
    for field in message.fields:
        if field.is_required and field.name not in given:
            yield f"{message.full_name} requires {path + field.name!r}, which is no column"


def _field_misfits(field: Any, kind: str, path: str) -> Iterator[str]:
    is_map = (
        field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry
    )
    wrong = f"column {path!r} is {kind}, and field {field.full_name} is not"
    if is_map:
        if kind.startswith("map<"):
            value = field.message_type.fields_by_name["value"]
            yield from _single_misfits(value, map_parts(kind)[1], path, wrong)
        else:
            yield wrong
    elif field.is_repeated:
        if kind.startswith("array<"):
            yield from _single_misfits(field, kind[len("array<") : -1], path, wrong)
        else:
            yield wrong
    else:
        yield from _single_misfits(field, kind, path, wrong)


def _single_misfits(field: Any, kind: str, path: str, wrong: str) -> Iterator[str]:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        message = field.message_type
        if message.full_name == "google.protobuf.Timestamp":
            if kind not in ("timestamp", "string"):
                yield wrong
        elif message.full_name.startswith("google.protobuf."):
            if list(message.fields_by_name) == ["value"]:  # a wrapper
                yield from _single_misfits(message.fields_by_name["value"], kind, path, wrong)
        elif kind.startswith("struct<"):
            yield from _message_misfits(message, columns_of(kind), f"{path}.")
        else:
            yield wrong
        return
    whole = (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    takes: frozenset[str] | set[str]
    if field.cpp_type in whole:
        takes = _WHOLE | {"decimal"}
    elif field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        takes = _NUMBERS | {"decimal"}
    elif field.cpp_type == field.CPPTYPE_BOOL:
        takes = {"boolean"}
    elif field.cpp_type == field.CPPTYPE_ENUM:
        takes = _WHOLE | {"string"}
    else:
        takes = set(_TEXT) if field.type == field.TYPE_STRING else {"binary"}
    if _simple(kind) not in takes:
        yield wrong


def _avro_misfits(root: Type, columns: Columns) -> Iterator[str]:
    records = [
        each for each in (root.branches if isinstance(root, Union) else [root]) if isinstance(each, Record)
    ]
    if not records:
        yield f"rows are records, and the schema is {describe(root)}"
    elif len(records) == 1:
        yield from _record_misfits(records[0], columns, "")


def _record_misfits(record: Record, columns: Columns, path: str) -> Iterator[str]:
    fields = {each.name: each for each in record.fields}
    for name, kind in columns:
        if name not in fields:
            yield f"column {path + name!r} is not a field of {record.name}"
        elif not _avro_takes(fields[name].type, kind):
            yield f"column {path + name!r} is {kind}, and the field is {_meaning(fields[name].type)}"
    named = {name for name, _ in columns}
    for each in record.fields:
        if each.name not in named and not each.has_default:
            yield f"field {path + each.name!r} of {record.name} is no column, and has no default"


def _meaning(type: Type) -> str:
    return type.logical or describe(type)


def _avro_takes(type: Type, kind: str) -> bool:
    if isinstance(type, Union):
        return any(_avro_takes(branch, kind) for branch in type.branches)
    if isinstance(type, Record):
        return kind.startswith("struct<") and not any(_record_misfits(type, columns_of(kind), ""))
    if isinstance(type, Array):
        return kind.startswith("array<") and _avro_takes(type.items, kind[len("array<") : -1])
    if isinstance(type, Map):
        return kind.startswith("map<") and _avro_takes(type.values, map_parts(kind)[1])
    if isinstance(type, Enum):
        return _simple(kind) == "string"
    for unit in ("-millis", "-micros"):
        if type.logical and type.logical.endswith(unit):
            return _simple(kind) in _AVRO[type.logical.removesuffix(unit)]
    return _simple(kind) in _AVRO.get(type.logical or "", _AVRO.get(type.kind, frozenset()))


def _json_misfits(schema: ParsedSchema, columns: Columns) -> Iterator[str]:
    """What is certain from the top level of the schema: names that are not allowed, or that are required."""
    assert isinstance(schema, JsonSchema)
    node = schema.document.raw
    if not isinstance(node, dict):
        return
    named = {name for name, _ in columns}
    properties = node.get("properties")
    closed = node.get("additionalProperties") is False and not node.get("patternProperties")
    if isinstance(properties, dict) and closed:
        for name, _ in columns:
            if name not in properties:
                yield f"column {name!r} is not a property, and the schema allows no others"
    required = node.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in named:
            yield f"property {name!r} is required, and is no column"


def columns_of(struct: str) -> Columns:
    """The columns of a struct, from the name of its type."""
    return [(field.name, field.type) for field in from_ddl(struct[len("struct<") : -1]).fields]


def _simple(kind: str) -> str:
    """A type's name without its parameters."""
    name = kind.partition("(")[0]
    return "string" if name in ("char", "varchar") else name


# ---- rows ---------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _writer(type: str, text: str, id_: int, message: str | None) -> Write:
    return encoder(_parsed(type, text), id_, message)


def encoded(values: pa.Array, type: str, text: str, id_: int, message: str | None = None) -> pa.Array:
    """Encodes a column of structs. Raises MillstreamError if a row does not fit the schema."""
    write, convert = _writer(type, text, id_, message), _converter(values.type, type)
    made = []
    for row in values.to_pylist():
        try:
            made.append(None if row is None else write(convert(row)))
        except UndecodableRecord as error:
            raise MillstreamError(
                f"a row does not fit the schema: {error}; filter such rows out with .where(...), or change"
                " them or the schema. When you restart the job, it continues from this row"
            ) from None
    return pa.array(made, pa.binary())


def _converter(type: pa.DataType, format: str) -> Convert:
    """Makes a function from Arrow's values to what encoders take. In JSON, null columns are left out."""
    inner = _of_value(type, format)
    return lambda value: None if value is None else inner(value)


def _of_value(type: pa.DataType, format: str) -> Convert:
    if pa.types.is_struct(type):
        fields = [(field.name, _converter(field.type, format)) for field in type]
        return lambda row: {
            name: convert(row[name]) for name, convert in fields if row[name] is not None or format != JSON
        }
    if pa.types.is_map(type):
        of_item = _converter(type.item_type, format)
        return lambda pairs: {_key(key): of_item(value) for key, value in pairs}
    if pa.types.is_list(type):
        of_each = _converter(type.value_type, format)
        return lambda values: [of_each(value) for value in values]
    if pa.types.is_binary(type):
        # Avro's JSON has one character for each byte, the other formats use base64.
        return (lambda data: data.decode("latin-1")) if format == AVRO else _base64
    if pa.types.is_decimal(type):
        return (lambda number: number) if format == JSON else str
    if pa.types.is_floating(type) and format not in (AVRO, JSON):
        return _number
    if pa.types.is_temporal(type):
        return lambda time: time.isoformat()
    return lambda value: value


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key.isoformat() if hasattr(key, "isoformat") else str(key)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _number(number: float) -> float | str:
    """A number as Protobuf's JSON writes it."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
