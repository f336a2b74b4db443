"""Reads topics as DataFrames: what batch and stream readers share, and the reader of ``spark.read``.

Spark makes a reader several times, in separate processes: one that plans a stream for as long as it runs, and
others that only carry the reader to the tasks. So a reader holds options, and nothing that can't be pickled.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError
from millstream.core.user_regex import compile_pattern
from millstream.pipeline.connector.columns import check_schema
from millstream.pipeline.connector.fetching import SpanReader
from millstream.pipeline.connector.offsets import (
    Offsets,
    Span,
    divide,
    parse_assign,
    parse_positions,
    resolve,
)
from millstream.pipeline.connector.options import PLAIN, ReadOptions
from millstream.pipeline.connector.task_cache import keep_loaded, shared_cluster
from millstream.records.columns.json_values import JsonColumns, JsonField


class Task(InputPartition):
    """The spans that one Spark task reads."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__(spans)
        self.spans = spans


class TopicReader:
    """What batch and stream readers share: finding the partitions, and reading spans of them."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self.options = options
        self.schema = schema

    @property
    def cluster(self) -> Cluster:
        return shared_cluster(self.options.connection)

    def topic_partitions(self) -> list[TopicPartition]:
        """All partitions to read that exist now."""
        options = self.options
        if options.pattern is not None:
            matches = compile_pattern(options.pattern)
            counts = {name: n for name, n in self.cluster.topics().items() if matches(name)}
            return [TopicPartition(name, i) for name, n in sorted(counts.items()) for i in range(n)]
        chosen = parse_assign(options.assign) if options.assign is not None else None
        names = options.topics if chosen is None else tuple(chosen)
        counts = self.cluster.topics(names)
        found = [TopicPartition(name, i) for name, n in sorted(counts.items()) for i in range(n)]
        if chosen is None:
            return found
        return [partition for partition in found if partition.partition in chosen[partition.topic]]

    def check_topics(self, partitions: Sequence[TopicPartition]) -> None:
        """Raise ConfigError for topics and partitions that the options name and that do not exist."""
        there = {partition.topic for partition in partitions}
        missing = [name for name in self.options.topics if name not in there]
        if missing:
            raise ConfigError(
                f"there is no topic {missing[0]!r} at {self.options.connection.address};"
                f" create it with `millstream topic create {missing[0]}`"
            )
        if self.options.assign is not None:
            for topic, numbers in parse_assign(self.options.assign).items():
                for number in numbers:
                    if TopicPartition(topic, number) not in partitions:
                        raise ConfigError(f"option assign: there is no partition {topic}[{number}]")

    def place(self, text: str, option: str, partitions: Sequence[TopicPartition]) -> Offsets:
        places = parse_positions(text, option, time.time_ns() // 1_000_000)
        return resolve(
            self.cluster,
            partitions,
            places,
            option,
            group=self.options.group,
            read_committed=self.options.read_committed,
            strict=self.options.fail_on_data_loss,
        )

    def tasks(self, spans: list[Span]) -> list[Task]:
        divided = divide(spans, min_tasks=self.options.min_partitions, max_records=self.options.max_records)
        return [Task(part) for part in divided]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Task):
            return  # Spark's stand-in where there was nothing to plan
        schema = to_arrow_schema(self.schema, timezone="UTC")
        names = frozenset(schema.names)
        plain = plain_reader(self.schema)
        for span in partition.spans:
            reader = SpanReader(
                self.cluster,
                span,
                names=names,
                read_committed=self.options.read_committed,
                fetch_bytes=self.options.fetch_bytes,
                fail_on_data_loss=self.options.fail_on_data_loss,
            )
            for batch in reader.batches():
                yield with_all(batch, span.partition, plain, schema)
        keep_loaded()


def plain_reader(schema: StructType) -> JsonColumns | None:
    if PLAIN not in schema.names:
        return None
    column = schema[PLAIN]
    required = json.loads(column.metadata["comment"])
    return JsonColumns(
        JsonField(field.name, field.dataType.simpleString(), field.name in required)
        for field in column.dataType.fields
    )


def with_all(
    batch: pa.RecordBatch, partition: TopicPartition, plain: JsonColumns | None, schema: pa.Schema
) -> pa.RecordBatch:
    """The records with what they don't contain themselves: their topic and partition, and the fields of
    values that are plain JSON."""
    rows = batch.num_rows
    values = batch.column("value") if "value" in schema.names else None
    if plain is not None and values is not None:
        read = plain.read(values)
        values = pc.if_else(read.is_null(), values, None) if read.null_count else pa.nulls(rows, values.type)
    arrays = []
    for field in schema:
        if field.name == "topic":
            arrays.append(pa.repeat(partition.topic, rows))
        elif field.name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition.partition, pa.int32()), rows))
        elif field.name == PLAIN:
            arrays.append(read)
        elif field.name == "value":
            arrays.append(values)
        else:
            arrays.append(batch.column(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class BatchReader(TopicReader, DataSourceReader):
    """``spark.read``: reads from one place to another, both fixed when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.max_offsets or options.min_offsets or options.max_bytes:
            raise ConfigError("limits per trigger apply to streams only; limit a batch with endingOffsets")

    def partitions(self) -> Sequence[InputPartition]:
        self.options.connection.check()
        partitions = self.topic_partitions()
        self.check_topics(partitions)
        start = self.place(self.options.start or "earliest", "startingOffsets", partitions)
        end = self.place(self.options.end or "latest", "endingOffsets", partitions)
        return self.tasks([Span(partition, start[partition], end[partition]) for partition in partitions])
