"""Writing DataFrames to topics: ``df.write`` and ``df.writeStream`` with ``format("millstream")``.

At least once: a task that Spark runs again writes its rows again. Within a task nothing is written twice,
because batches sent again after a lost answer are recognised. The rows of one key keep their order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from millstream.client.position import TopicPartition
from millstream.client.sender import Sender
from millstream.errors import ConfigError
from millstream.pipeline.links import shared_cluster, shared_sender
from millstream.pipeline.options import WriteOptions
from millstream.pipeline.source import COLUMNS, HEADERS
from millstream.records import arrow

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
# Rows without a key go to one partition for this many, then to the next: batches stay large.
_KEYLESS_RUN = 1000


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise ConfigError unless the columns can be records."""
    kinds = {column.name: column.dataType.simpleString() for column in schema.fields}
    if "value" not in kinds:
        raise ConfigError(
            f"a record needs a column `value` (string or binary); there are {', '.join(kinds) or 'none'}."
            " For rows as JSON: df.selectExpr('to_json(struct(*)) AS value')"
        )
    for name, kind in kinds.items():
        accepted = _WRITABLE.get(name)
        if accepted is None and name not in COLUMNS:
            raise ConfigError(
                f"column {name!r} is no part of a record and would be lost; put it into `value`, or drop it."
                f" A record has {', '.join(_WRITABLE)}"
            )
        if accepted is not None and kind.replace(" ", "") not in accepted:
            raise ConfigError(f"column {name!r} is {kind}; it has to be {' or '.join(accepted)}")
    if options.topic is None and "topic" not in kinds:
        raise ConfigError("where to? Give the option topic, or a column `topic`")


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    rows: int


class _Rows:
    """Writes the Arrow batches of one task."""

    def __init__(self, options: WriteOptions, sender: Sender) -> None:
        self._options = options
        self._sender = sender
        self._counts: dict[str, int] = {}
        self._turn = random.randrange(1 << 16)

    def write(self, batch: pa.RecordBatch) -> int:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self._options.topic is not None:
            self._write_topic(self._options.topic, columns)
        else:
            topics = columns["topic"].dictionary_encode()
            if topics.null_count:
                raise ConfigError(f"column `topic` is null in {topics.null_count} rows; where to?")
            names = topics.dictionary.to_pylist()
            for number, name in enumerate(names):
                rows = columns
                if len(names) > 1:
                    picked = np.flatnonzero(topics.indices.to_numpy() == number)
                    rows = {key: column.take(pa.array(picked)) for key, column in columns.items()}
                self._write_topic(name, rows)
        return int(batch.num_rows)

    def _write_topic(self, topic: str, columns: dict[str, pa.Array]) -> None:
        value = columns["value"]
        if len(value) == 0:
            return
        encoder = arrow.Encoder(value, columns.get("key"), columns.get("headers"), columns.get("timestamp"))
        partitions = self._partitions(topic, columns)
        order = np.argsort(partitions, kind="stable").astype(np.int32)
        numbers, starts = np.unique(partitions[order], return_index=True)
        parts = [
            (
                TopicPartition(topic, int(number)),
                encoder.batches(rows, max_bytes=self._options.batch_bytes, codec=self._options.codec),
            )
            for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True)
        ]
        # One batch of every partition, then the next of each: a request carries as many as it can.
        while parts:
            ready, going_on = [], []
            for partition, batches in parts:
                found = next(batches, None)
                if found is not None:
                    ready.append((partition, found[0]))
                    going_on.append((partition, batches))
            self._sender.send(ready)
            parts = going_on

    def _partitions(self, topic: str, columns: dict[str, pa.Array]) -> Any:
        count = self._counts.get(topic)
        if count is None:
            cluster = shared_cluster(self._options.connection)
            count = self._counts[topic] = cluster.partitions_of(topic, create=True)
        rows = len(columns["value"])
        key = columns.get("key")
        found = np.full(rows, -1, np.int32) if key is None else arrow.partitions_of(key, count)
        keyless = np.flatnonzero(found < 0)
        if len(keyless):
            found[keyless] = (self._turn + np.arange(len(keyless)) // _KEYLESS_RUN) % count
            self._turn = (self._turn + 1 + len(keyless) // _KEYLESS_RUN) % count
        chosen = columns.get("partition")
        if chosen is not None:
            given = chosen.fill_null(-1).to_numpy(zero_copy_only=False)
            mask = chosen.is_valid().to_numpy(zero_copy_only=False)
            wrong = mask & ((given < 0) | (given >= count))
            if wrong.any():
                raise ConfigError(
                    f"column `partition` says {given[wrong][0]}, but topic {topic} has {count} partitions"
                )
            found = np.where(mask, given, found).astype(np.int32)
        return found


def send_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task, and return when the broker has them."""
    sender = shared_sender(options)
    rows = _Rows(options, sender)
    written = 0
    try:
        for batch in batches:
            written += rows.write(batch)
        sender.flush()
    except BaseException:
        sender.failed = True  # what is in flight belongs to this task; the next one starts clean
        raise
    return Written(written)


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: append only."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic is appended to, not overwritten: use mode('append')")
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_rows(self.options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: every micro-batch appended, at least once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_rows(self.options, iterator)
