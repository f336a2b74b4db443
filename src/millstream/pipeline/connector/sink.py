"""Writes DataFrames to topics: ``df.write`` and ``df.writeStream`` with ``format("millstream")``.

At least once: a task that Spark runs again writes its rows again. Within a task nothing is written twice,
because the broker recognises batches that are sent again after a lost response. The rows of one key keep
their order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from millstream.client.protocol.sender import BatchSender
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError
from millstream.pipeline.connector.batch_encoding import Partitioner, interleaved_batches
from millstream.pipeline.connector.columns import COLUMNS, HEADERS
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.connector.task_cache import shared_cluster, shared_sender

_TEXT = ("string", "binary")
_TIMES = ("timestamp", "timestamp_ntz")
_WRITABLE: dict[str, tuple[str, ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": _TIMES,
}


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise ConfigError unless the columns can form records."""
    kinds = {column.name: column.dataType.simpleString() for column in schema.fields}
    if "value" not in kinds:
        raise ConfigError(
            "a record needs a column `value` (string or binary); the columns are"
            f" {', '.join(kinds) or 'none'}. For rows as JSON: df.selectExpr('to_json(struct(*)) AS value')"
        )
    for name, kind in kinds.items():
        accepted = _WRITABLE.get(name)
        if accepted is None and name not in COLUMNS:
            raise ConfigError(
                f"column {name!r} is not part of a record and would be lost; put it into `value`, or drop it."
                f" A record has {', '.join(_WRITABLE)}"
            )
        if accepted is not None and kind.replace(" ", "") not in accepted:
            raise ConfigError(f"column {name!r} is {kind}; it must be {' or '.join(accepted)}")
    if options.topic is None and "topic" not in kinds:
        raise ConfigError("no topic to write to: give the option topic, or a column `topic`")


@dataclass
class WrittenRows(WriterCommitMessage):
    """What a task wrote."""

    rows: int


class _Rows:
    """Writes the Arrow batches of one task."""

    def __init__(self, options: WriteOptions, sender: BatchSender) -> None:
        self._options = options
        self._sender = sender
        self._counts: dict[str, int] = {}
        self._partitioner = Partitioner(random.randrange(1 << 16))

    def write(self, batch: pa.RecordBatch) -> int:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self._options.topic is not None:
            self._write_topic(self._options.topic, columns)
        else:
            topics = columns["topic"].dictionary_encode()
            if topics.null_count:
                raise ConfigError(
                    f"column `topic` is null in {topics.null_count} rows; give each row a topic, or set the"
                    " option topic"
                )
            names = topics.dictionary.to_pylist()
            for number, name in enumerate(names):
                rows = columns
                if len(names) > 1:
                    picked = np.flatnonzero(topics.indices.to_numpy() == number)
                    rows = {key: column.take(pa.array(picked)) for key, column in columns.items()}
                self._write_topic(name, rows)
        return int(batch.num_rows)

    def _write_topic(self, topic: str, columns: dict[str, pa.Array]) -> None:
        count = self._counts.get(topic)
        if count is None:
            cluster = shared_cluster(self._options.connection)
            count = self._counts[topic] = cluster.partitions_of(topic, create=True)
        partitions = self._partitioner.choose(topic, count, columns)
        for ready in interleaved_batches(columns, partitions, self._options):
            self._sender.send([(TopicPartition(topic, batch.partition), batch.data) for batch in ready])


def send_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
    """Write the rows of one task; returns once the broker has them."""
    sender = shared_sender(options)
    rows = _Rows(options, sender)
    written = 0
    try:
        for batch in batches:
            written += rows.write(batch)
        sender.flush()
    except BaseException:
        sender.failed = True  # what is in flight belongs to this task; the next one gets a new sender
        raise
    return WrittenRows(written)


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: appends only."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic can only be appended to: use mode('append')")
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_rows(self.options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: appends every micro-batch, at least once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_rows(self.options, iterator)
