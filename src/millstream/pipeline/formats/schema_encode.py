"""Encodes rows as values that carry the id of a schema, as Confluent's serialisers write them.

The schema is registered when the job starts, so a change that readers could not follow stops the job before
it writes anything. If the user gives no schema, one is made from the columns, all of which may be null.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def encode_functions(spark: SparkSession) -> Iterator[Callable[[TopicSink, str], str]]:
    """Gives what registers a sink's schema, and a SQL function that encodes structs of the given type. It
    returns the function's name. The session has the functions within the block only: queries that are planned
    there keep them."""
    names: list[str] = []

    def encode_function(sink: TopicSink, kind: str) -> str:
        names.append(f"millstream_encoded_{uuid.uuid4().hex}")
        spark.udf.register(names[-1], fn.arrow_udf(_encoder(sink, kind), "binary"))
        return names[-1]

    try:
        yield encode_function
    finally:
        for name in names:
            spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


def _encoder(sink: TopicSink, kind: str) -> Callable[[pa.Array], pa.Array]:
    """Register a sink's schema. Returns what encodes structs of type ``kind``."""
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

    return encode
