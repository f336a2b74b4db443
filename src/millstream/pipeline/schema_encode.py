"""Rows to values that carry the id of a schema, as Confluent's serialisers write them.

The schema is registered when the job starts, so a change that readers could not follow stops the job before
it writes anything. Without a schema of the user's it is made from the columns, all of which may be null.
"""

from __future__ import annotations

import decimal
import functools
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from millstream.errors import MillstreamError, TopologyError, UndecodableRecord
from millstream.pipeline.encoded import avro_schema_of, json_schema_of
from millstream.pipeline.schema import SchemaError, from_ddl
from millstream.pipeline.sinks import TopicSink
from millstream.registry.client import RegistryClient
from millstream.registry.schema import JSON, Schema, parse
from millstream.registry.values import encoder

_PATIENCE = 5.0


def encode_function(spark: SparkSession, sink: TopicSink, kind: str) -> str:
    """Registers a sink's schema, and a function of SQL that makes values of structs of a type; its name."""
    encoding = sink.encoding
    assert encoding is not None
    text = encoding.text
    try:
        if text is None:
            columns = [(field.name, field.type) for field in from_ddl(kind[len("struct<") : -1]).fields]
            made = avro_schema_of if encoding.format == "avro" else json_schema_of
            text = made(columns, "".join(c if c.isalnum() else "_" for c in sink.topic))
        client = RegistryClient(encoding.registry, patience=_PATIENCE)
        id_ = client.register(encoding.subject, Schema(encoding.type, text))
    except (SchemaError, MillstreamError) as error:
        raise TopologyError(f"topic {sink.topic!r} as {encoding.format}: {error}", where=sink.at) from None
    type_, schema = encoding.type, text

    def encode(values: pa.Array) -> pa.Array:
        return encoded(values, type_, schema, id_)

    name = f"millstream_encoded_{encoding.type.lower()}_{id_}"
    spark.udf.register(name, fn.arrow_udf(encode, "binary"))
    return name


@functools.lru_cache(maxsize=64)
def _writer(type: str, text: str, id_: int) -> Any:
    return encoder(parse(type, text), id_)


def encoded(values: pa.Array, type: str, text: str, id_: int) -> pa.Array:
    """A column of structs as values."""
    write, is_json = _writer(type, text, id_), type == JSON
    made = []
    for row in values.to_pylist(maps_as_pydicts="strict"):
        try:
            made.append(None if row is None else write(_plain(row, is_json)))
        except UndecodableRecord as error:
            raise MillstreamError(f"a row does not fit its schema: {error}") from None
    return pa.array(made, pa.binary())


def _plain(value: Any, is_json: bool) -> Any:
    """A value of Arrow's as encoders take it, which is as JSON has it; there, a null is left out."""
    if isinstance(value, dict):
        return {
            name: _plain(each, is_json) for name, each in value.items() if each is not None or not is_json
        }
    if isinstance(value, list):
        return [_plain(each, is_json) for each in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, decimal.Decimal):
        return float(value) if is_json else str(value)
    return value.isoformat() if hasattr(value, "isoformat") else value
