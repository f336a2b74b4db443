"""The Arrow types of Spark's: of a schema that was written down, what results on the kernel are made of."""

from __future__ import annotations

import re

import pyarrow as pa

from millstream.pipeline.schema import Schema, SchemaError

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SIZED = re.compile(r"(\w+)\(([\d,]+)\)")
_FIELD = re.compile(r"`((?:[^`]|``)+)`:(.*)", re.DOTALL)


def arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in schema.fields])


def arrow_type(text: str) -> pa.DataType:
    """The type of ``array<struct<`a`:int>>``, written as ``schema.Field`` has it."""
    if text.endswith(">"):
        outer, inner = text[:-1].split("<", 1)
        parts = _parts(inner)
        if outer == "array":
            return pa.list_(arrow_type(inner))
        if outer == "map":
            return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
        fields = []
        for part in parts:
            named = _FIELD.fullmatch(part)
            assert named is not None, part
            fields.append(pa.field(named[1].replace("``", "`"), arrow_type(named[2])))
        return pa.struct(fields)
    sized = _SIZED.fullmatch(text)
    word = sized[1] if sized else text
    if word == "decimal":
        sizes = [int(size) for size in sized[2].split(",")] if sized else [10]
        return pa.decimal128(sizes[0], sizes[1] if len(sizes) > 1 else 0)
    if word not in _SIMPLE:
        raise SchemaError(f"a column of type {text} can't be given by a stateful operator")
    return _SIMPLE[word]


def _parts(text: str) -> list[str]:
    """What stands between the commas that are in no brackets."""
    found, depth, quoted = [""], 0, False
    for mark in text:
        quoted ^= mark == "`"
        if not quoted:
            depth += (mark in "<(") - (mark in ">)")
        if mark == "," and depth == 0 and not quoted:
            found.append("")
        else:
            found[-1] += mark
    return found
