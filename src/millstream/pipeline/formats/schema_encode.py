"""Encodes rows as values that carry the id of a schema, as Confluent's serialisers write them.

The schema is registered when the job starts, so a change that readers could not follow stops the job before
it writes anything. If the user gives no schema, one is made from the columns, all of which may be null.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.graph import TopicSink
from millstream.pipeline.formats.encoded_rows import check_columns, columns_of, encoded
from millstream.pipeline.formats.value_schemas import avro_schema_of, json_schema_of
from millstream.registry.client import RegistryClient
from millstream.registry.schema import Schema
from millstream.sqltypes.ddl import SchemaError

_PATIENCE = 5.0


def encode_function(spark: SparkSession, sink: TopicSink, kind: str) -> str:
    """Register a sink's schema, and a SQL function that encodes structs of type ``kind``. Returns the
    function's name."""
    sink_schema = sink.value_schema
    assert sink_schema is not None
    text = sink_schema.text
    try:
        check_columns(sink_schema, kind)
        if text is None:
            made = avro_schema_of if sink_schema.format == "avro" else json_schema_of
            text = made(columns_of(kind), "".join(c if c.isalnum() else "_" for c in sink.topic))
        client = RegistryClient(sink_schema.registry, patience=_PATIENCE)
        id_ = client.register(sink_schema.subject, Schema(sink_schema.type, text))
    except (SchemaError, MillstreamError) as error:
        raise TopologyError(f"topic {sink.topic!r} as {sink_schema.format}: {error}", where=sink.at) from None
    type_, schema, message = sink_schema.type, text, sink_schema.message
    said = f"{sink.at}: topic {sink.topic!r} as {sink_schema.format}"

    def encode(values: pa.Array) -> pa.Array:
        try:
            return encoded(values, type_, schema, id_, message)
        except MillstreamError as error:
            raise MillstreamError(f"{said}: {error}") from None

    own = hashlib.sha256(f"{sink.topic} {sink.at} {message}".encode()).hexdigest()[:12]
    name = f"millstream_encoded_{sink_schema.type.lower()}_{id_}_{own}"
    spark.udf.register(name, fn.arrow_udf(encode, "binary"))
    return name
