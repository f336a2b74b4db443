"""Converts the names of Spark's types to Arrow types, without Spark."""

from __future__ import annotations

import pyarrow as pa

from millstream.sqltypes.ddl import Field, SchemaError, from_ddl, map_parts

_PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(name: str) -> pa.DataType:
    """The type that ``double``, ``decimal(10,2)`` or ``array<struct<a:int>>`` names, or SchemaError."""
    (field,) = from_ddl(f"value {name}").fields
    return _made(field.type)


def arrow_schema(fields: tuple[Field, ...]) -> pa.Schema:
    return pa.schema([pa.field(field.name, _made(field.type)) for field in fields])


def _made(name: str) -> pa.DataType:
    """The type for a name in the form in which ``schema`` writes it."""
    if name in _PLAIN:
        return _PLAIN[name]
    if name.startswith(("char", "varchar")):
        return pa.string()
    if name.startswith("decimal"):
        numbers = name[len("decimal") :].strip("()").split(",") if "(" in name else ["10"]
        return pa.decimal128(int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0)
    if name.startswith("array<"):
        return pa.list_(_made(name[len("array<") : -1]))
    if name.startswith("map<"):
        key, value = map_parts(name)
        return pa.map_(_made(key), _made(value))
    if name.startswith("struct<"):
        fields = from_ddl(name[len("struct<") : -1]).fields
        return pa.struct([pa.field(field.name, _made(field.type)) for field in fields])
    raise SchemaError(f"{name} is not supported here")
