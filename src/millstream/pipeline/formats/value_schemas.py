"""Declares sources and sinks whose values carry the id of a schema: their columns, and how these are read.

A declaration may give the schema that the columns come from (Avro or JSON text, a ``.proto`` file, Spark
DDL). If it gives none, they come from the latest schema that the registry has for the subject when the flow
is loaded. Records may have been written with any schema that the registry knows; they are read as the
declared one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError, RegistryRefused, TopologyError
from millstream.sqltypes.ddl import Field, Schema, SchemaError, quoted, schema_of

if TYPE_CHECKING:
    from millstream.registry.avro.types import Type
    from millstream.registry.schema import ParsedSchema

FORMATS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
DEFAULT_REGISTRY = "http://127.0.0.1:8081"
DATA, REASON = "data", "reason"  # the fields of a decoded value's struct, of which one is null
OWN = 0  # the id that stands for the declared schema itself where there is no registry: in tests

Dependencies = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """The schema that a source's values are read as. It is sent to Spark's workers as it is."""

    format: str  # a key of FORMATS
    registry: str
    text: str  # empty for a JSON schema whose columns are given as DDL
    dependencies: Dependencies = ()
    message: str | None = None
    by_columns: bool = False  # True if the schema is made from columns that were named without one
    own_ids: bool = False  # True if OWN means the declared schema

    @property
    def type(self) -> str:
        return FORMATS[self.format]

    def parsed(self) -> ParsedSchema:
        from millstream.registry.parsing import parse

        return parse(self.type, self.text, self.dependencies)


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """The schema that a sink's values are written with."""

    format: str  # a key of FORMATS
    subject: str
    registry: str
    text: str | None  # None: it is made from the columns
    message: str | None = None  # of a Protobuf schema; None: its first message

    @property
    def type(self) -> str:
        return FORMATS[self.format]


def declare_sink_schema(
    format: str,
    schema: str | None,
    subject: str,
    registry: str | None,
    message: str | None,
    value: str | Sequence[str] | None,
    at: str,
) -> SinkSchema | None:
    """The schema that a sink was asked for; None for plain JSON."""
    if message is not None and format != "protobuf":
        raise TopologyError("message= requires format='protobuf'", where=at)
    if format == "json":
        if schema is not None or registry is not None:
            raise TopologyError(
                "schema= and registry= require format='avro', 'protobuf' or 'json-schema'", where=at
            )
        return None
    if format not in FORMATS:
        raise TopologyError(f"format={format!r} is not one of json, {', '.join(FORMATS)}", where=at)
    if isinstance(value, str):
        raise TopologyError(f"format={format!r} encodes columns: give value= as a list, or omit it", where=at)
    if schema is None and format == "protobuf":
        raise TopologyError("format='protobuf' needs schema=, a .proto file or its text", where=at)
    try:
        text = None if schema is None else schema_text(schema)
    except SchemaError as error:
        raise TopologyError(str(error), where=at) from None
    if schema is not None and text is None:
        raise TopologyError(f"schema={schema!r} is neither a schema nor a schema file", where=at)
    return SinkSchema(format, subject, registry_url(registry), text, message)


def own_value(given: SourceSchema, value: Any) -> bytes:
    """Encodes a value by the declared schema, as if the registry had it as ``OWN``: for tests, which have
    no registry. The value has JSON's types; for Avro it may also have Python's."""
    from millstream.registry.framing import framed
    from millstream.registry.values import encoder, plain

    if not given.text:
        return framed(OWN, json.dumps(value).encode())
    if given.format == "avro":
        value = plain(value)
    return encoder(given.parsed(), OWN, given.message)(value)


def registry_url(given: str | None) -> str:
    return given or os.environ.get("MILLSTREAM_REGISTRY") or DEFAULT_REGISTRY


def declare_source_schema(
    format: str, schema: object, registry: str | None, subject: str, message: str | None
) -> tuple[SourceSchema, Schema]:
    """The schema that a source's values are read as, and its columns. Raises SchemaError if the schema is
    wrong, and MillstreamError if the registry does not give one."""
    from millstream.registry import needs_extra

    url = registry_url(registry)
    with needs_extra():
        import fastavro  # noqa: F401  (if it is missing, that is said before Spark starts)

    text = schema_text(schema) if isinstance(schema, str | Path) else None
    if schema is not None and text is None:
        return _from_columns(format, schema, url)
    dependencies: Dependencies = ()
    if text is None:
        text, dependencies = _latest(url, subject, FORMATS[format])
    found = SourceSchema(format, url, text, dependencies, message)
    try:
        return found, Schema(tuple(columns(found)))
    except RegistryRefused as error:
        raise SchemaError(str(error)) from None


def schema_text(given: str | Path) -> str | None:
    """The text of a schema that is given as text or as a file; None for DDL."""
    if isinstance(given, Path) or given.endswith((".avsc", ".json", ".proto")):
        try:
            return Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"can't read the schema {str(given)!r}: {error}") from None
    if given.lstrip().startswith(("{", "[", '"', "syntax", "//", "/*")):
        return given
    return None


def _latest(url: str, subject: str, type: str) -> tuple[str, Dependencies]:
    from millstream.registry.client import RegistryClient

    client = RegistryClient(url, timeout=5.0)
    try:
        found = client.version(subject).schema
    except RegistryRefused as error:
        if error.code not in (40401, 40402):
            raise
        raise MillstreamError(
            f"the registry at {client.url} has no subject {subject!r}; register its schema with"
            f" `millstream schema register {subject} FILE`, or give schema="
        ) from None
    if found.type != type:
        raise MillstreamError(
            f"subject {subject!r} at {client.url} has a schema of type {found.type}, not {type}"
        )
    return found.text, client.dependencies(found)


# ---- columns -----------------------------------------------------------------------------------------


def columns(given: SourceSchema) -> list[Field]:
    """The columns of a schema. One is required if a JSON schema requires it and never allows null."""
    from millstream.registry.avro.schema import AvroSchema
    from millstream.registry.avro.types import Record
    from millstream.registry.json.schema import JsonSchema
    from millstream.registry.protobuf.schema import ProtobufSchema

    parsed = given.parsed()
    if isinstance(parsed, AvroSchema):
        if not isinstance(parsed.root, Record):
            return [Field("value", avro_ddl(parsed.root))]
        return [Field(each.name, avro_ddl(each.type)) for each in parsed.root.fields]
    if isinstance(parsed, ProtobufSchema):
        from millstream.pipeline.formats.protobuf_columns import message_type
        from millstream.registry.values import message_class, message_path

        kind = message_type(message_class(parsed, message_path(parsed, given.message)).DESCRIPTOR)
        return [Field(field.name, _ddl(field.type)) for field in kind]
    assert isinstance(parsed, JsonSchema)
    node = parsed.document.raw
    if not isinstance(node, dict) or not isinstance(node.get("properties"), dict):
        raise SchemaError("a JSON schema without properties gives no columns; give schema= as DDL instead")
    required = node.get("required") or ()
    return [
        Field(name, _json_ddl(parsed, each, 0), name in required and not _json_nullable(parsed, each))
        for name, each in node["properties"].items()
    ]


def avro_ddl(type: Type) -> str:
    from millstream.pipeline.formats.avro_plan import arrow_type

    return _ddl(arrow_type(type))


def _ddl(type: Any) -> str:
    """Spark's name for an Arrow type."""
    import pyarrow as pa

    if pa.types.is_list(type):
        return f"array<{_ddl(type.value_type)}>"
    if pa.types.is_map(type):
        return f"map<{_ddl(type.key_type)},{_ddl(type.item_type)}>"
    if pa.types.is_struct(type):
        return "struct<" + ",".join(f"{quoted(field.name)}:{_ddl(field.type)}" for field in type) + ">"
    if pa.types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp" if type.tz else "timestamp_ntz"
    names = {
        pa.null(): "string",  # which never has a value
        pa.bool_(): "boolean",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }
    return names[type]


_JSON_TYPES = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_JSON_FORMATS = {"date-time": "timestamp", "date": "date"}


def _json_ddl(schema: Any, node: Any, depth: int) -> str:
    """The type of a column. What has no type of its own in Spark is read as its JSON text."""
    node = _json_resolved(schema, node)
    if depth > 20 or not isinstance(node, dict):
        return "string"
    kinds = node.get("type")
    named = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind not in (None, "null")]
    choices = [each for each in node.get("oneOf") or node.get("anyOf") or () if not _is_null(each)]
    if not named and len(choices) == 1:
        return _json_ddl(schema, choices[0], depth + 1)
    if len(named) != 1:
        return "string"
    if named[0] == "array" and isinstance(node.get("items"), dict):
        return f"array<{_json_ddl(schema, node['items'], depth + 1)}>"
    if named[0] == "object":
        properties, rest = node.get("properties"), node.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            inner = (
                f"{quoted(name)}:{_json_ddl(schema, each, depth + 1)}" for name, each in properties.items()
            )
            return f"struct<{','.join(inner)}>"
        return f"map<string,{_json_ddl(schema, rest, depth + 1)}>" if isinstance(rest, dict) else "string"
    if named[0] == "string":
        return _JSON_FORMATS.get(node.get("format", ""), "string")
    return _JSON_TYPES.get(named[0], "string")


def _json_resolved(schema: Any, node: Any) -> Any:
    for _ in range(20):
        if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
            break
        _, node = schema.document.resolve(node["$ref"])
    return node


def _is_null(node: Any) -> bool:
    return isinstance(node, dict) and node.get("type") == "null"


def _json_nullable(schema: Any, node: Any) -> bool:
    node = _json_resolved(schema, node)
    if not isinstance(node, dict):
        return True
    kinds = node.get("type")
    choices = node.get("oneOf") or node.get("anyOf") or ()
    return (isinstance(kinds, list) and "null" in kinds) or any(_is_null(each) for each in choices)


# ---- columns that are given --------------------------------------------------------------------------


def _from_columns(format: str, given: object, url: str) -> tuple[SourceSchema, Schema]:
    """The columns that DDL, a dataclass or a StructType names, read from whatever was written."""
    schema = schema_of(given)
    if format == "protobuf":
        raise SchemaError(
            "a Protobuf source takes its schema from a .proto file, its text, or the registry, not from"
            " columns"
        )
    if format == "json-schema":
        return SourceSchema(format, url, ""), schema
    fields = [
        {"name": f.name, "type": ["null", _avro_type(f.type, f.name)], "default": None} for f in schema.fields
    ]
    text = json.dumps({"type": "record", "name": "Columns", "fields": fields})
    return SourceSchema(format, url, text, by_columns=True), schema


_AVRO: dict[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def _avro_type(name: str, path: str) -> Any:
    """The Avro type for the name of a Spark type."""
    if name in _AVRO:
        return _AVRO[name]
    if name.startswith("decimal"):
        precision, _, scale = name[len("decimal") :].strip("()").partition(",")
        number = {"precision": int(precision or 10), "scale": int(scale or 0)}
        return {"type": "bytes", "logicalType": "decimal", **number}
    if name.startswith("array<"):
        return {"type": "array", "items": ["null", _avro_type(name[6:-1], path + "_item")]}
    if name.startswith("map<string,"):
        return {"type": "map", "values": ["null", _avro_type(name[11:-1], path + "_value")]}
    if name.startswith("struct<"):
        inner = schema_of(name[7:-1])
        fields = [
            {"name": f.name, "type": ["null", _avro_type(f.type, f"{path}_{f.name}")], "default": None}
            for f in inner.fields
        ]
        return {"type": "record", "name": f"{path}_record", "fields": fields}
    raise SchemaError(f"column {path!r}: Avro has no type for {name}")


def avro_schema_of(fields: list[tuple[str, str]], name: str) -> str:
    """The Avro schema for writing rows with these columns. Every field may be null."""
    written = [
        {"name": column, "type": ["null", _avro_type(kind, column)], "default": None}
        for column, kind in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": written})


_JSON_SCHEMAS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    **{kind: {"type": "integer"} for kind in ("tinyint", "smallint", "int", "bigint")},
    **{kind: {"type": "number"} for kind in ("float", "double")},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
}


def json_schema_of(fields: list[tuple[str, str]], title: str) -> str:
    """The JSON schema of rows with these columns. Null columns are left out, and no others are allowed."""
    return json.dumps({"title": title, **_json_object(fields)})


def _json_object(fields: list[tuple[str, str]]) -> dict[str, Any]:
    properties = {name: _json_type(kind) for name, kind in fields}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _json_or_null(kind: str) -> dict[str, Any]:
    """The schema of an array's item or a map's value, which can't be left out where it is null."""
    made = _json_type(kind)
    return {**made, "type": [made["type"], "null"]} if "type" in made else made


def _json_type(kind: str) -> dict[str, Any]:
    if kind.startswith("array<"):
        return {"type": "array", "items": _json_or_null(kind[6:-1])}
    if kind.startswith("map<string,"):
        return {"type": "object", "additionalProperties": _json_or_null(kind[11:-1])}
    if kind.startswith("struct<"):
        return _json_object([(field.name, field.type) for field in schema_of(kind[7:-1]).fields])
    if kind.startswith("decimal"):
        return {"type": "number"}
    return _JSON_SCHEMAS.get(kind, {})
