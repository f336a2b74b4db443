"""The data source behind ``format("millstream")`` in Spark: its readers and writers, batch and streaming.

Where millstream is installed, Spark finds it by itself, through the module ``pyspark_millstream``.
``millstream.pipeline.register`` is for sessions that don't look there.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from millstream.pipeline.connector.columns import schema_of
from millstream.pipeline.connector.options import ReadOptions, WriteOptions
from millstream.pipeline.connector.sink import BatchWriter, StreamWriter
from millstream.pipeline.connector.source import BatchReader
from millstream.pipeline.connector.stream_reader import StreamReader


class MillstreamDataSource(DataSource):
    """Topics of a broker that speaks the Kafka protocol: millstream's own, or Apache Kafka."""

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> str:
        return schema_of(ReadOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(ReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamReader(ReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(WriteOptions.of(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(WriteOptions.of(self.options), schema)
