"""The functions that Spark's tasks run on the rows of a batch: send, drop or encode them.

Without a transaction, a task sends its records as they come (``Send``). In a transaction, a partition has one
sender. A broker takes a batch for a duplicate if it already knows the batch's sequence numbers in that
partition, for the same producer and epoch. With two senders on one partition, or one that sends a second
time, rows would be lost silently.

So tasks ``Encode``: they turn the rows into Kafka's batches, each for one partition of one topic. On a single
machine they hand the batches over to the driver (handover.py), which is the one sender. On a cluster the
batches are shuffled, a few hundred byte strings instead of all the rows, so that a partition has one task,
and those tasks run ``SendInTransaction``. Either way, a task that is not the first attempt refuses to run.
The whole batch is then run again, under another epoch.

All of these are functions for ``mapInArrow`` and not writers of a data source. For a writer, Spark starts new
Python processes with every batch, and gives no control over which task gets which rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.sender import BatchSender
from millstream.client.protocol.transaction_requests import ProducerSession
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.pipeline.connector.batch_encoding import EncodedBatch, Partitioner, interleaved_batches
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.connector.task_cache import keep_loaded, shared_cluster
from millstream.pipeline.planning.sink_columns import RECORD, SINK
from millstream.pipeline.run.delivery.handover import HandOver, ReceiverAddress
from millstream.records.columns.codec_interface import HEADERS_TYPE

ROWS = "rows"
# What ``Encode`` adds to a row for the shuffle: the task that it goes to, its partition's number among the
# targets, the task that it comes from and its number there, how many records it holds, and the batch itself.
TASK = "task"
SHUFFLED = {TASK: "int", "target": "int", "origin": "int", "number": "int", ROWS: "bigint", "data": "binary"}
ARROW = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
ORDER = ("origin", "number")


class TaskRepeated(MillstreamError):
    """A task that may have sent something already was started again."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Every partition that a query writes, numbered. ``first`` and ``count`` give each sink's range."""

    partitions: tuple[TopicPartition, ...]
    first: dict[int, int]
    count: dict[int, int]


def first_attempt_only() -> None:
    """Raise TaskRepeated in a task that Spark runs again."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is not None and task.attemptNumber() > 0:
        raise TaskRepeated(
            f"task {task.partitionId()} was started again (attempt {task.attemptNumber() + 1}) and may have"
            " sent its rows already"
        )


class Send:
    """Sends the records among a task's rows. Returns the other rows and, for each sink of records, a row with
    their number. ``topics`` are the sinks' topics. ``repeatable``: a task may send its records twice."""

    def __init__(self, options: WriteOptions, topics: Mapping[int, str], *, repeatable: bool) -> None:
        self._options = options
        self._topics = topics
        self._repeatable = repeatable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from millstream.pipeline.connector.sink import send_rows

        if not self._repeatable:
            first_attempt_only()
        names = pa.array([self._topics.get(sink) for sink in range(max(self._topics, default=-1) + 1)])
        for batch in batches:
            record = _are_records(batch, self._topics)
            sent = batch.filter(record)
            if sent.num_rows:
                records = _records(sent).append_column("topic", names.take(sent[SINK]))
                send_rows(self._options, iter([records]))
            yield from _given_back(batch, record)
        keep_loaded()


class Drop:
    """Sends nothing and returns what ``Send`` returns, for a batch whose records are in the log already."""

    def __init__(self, topics: Mapping[int, str]) -> None:
        self._topics = topics

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _given_back(batch, _are_records(batch, self._topics))
        keep_loaded()


def _are_records(batch: pa.RecordBatch, sinks: Collection[int]) -> pa.Array:
    """A mask of the rows that are for topics; the others are for views."""
    return pc.is_in(batch[SINK], value_set=pa.array(sinks, pa.int32()))


def _records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The record columns of rows, with headers in the form that records have."""
    rows = rows.select([name for name in rows.schema.names if name in RECORD])
    at = rows.schema.get_field_index("headers")
    if at < 0:
        return rows
    parsed = [
        None if text is None else [{"key": name, "value": value.encode()} for name, value in text.items()]
        for text in (None if text is None else json.loads(text) for text in rows["headers"].to_pylist())
    ]
    return rows.set_column(at, "headers", pa.array(parsed, HEADERS_TYPE))


def _given_back(batch: pa.RecordBatch, record: pa.Array) -> Iterator[pa.RecordBatch]:
    names = [name for name in batch.schema.names if name not in RECORD]
    fields = [pa.field(name, batch.schema.field(name).type) for name in names]
    schema = pa.schema([*fields, pa.field(ROWS, pa.int64())])
    kept = batch.filter(pc.invert(record)).select(names)
    ones = pa.array([1] * kept.num_rows, pa.int64())
    yield pa.RecordBatch.from_arrays([*kept.columns, ones], schema=schema)
    for entry in batch[SINK].filter(record).value_counts().to_pylist():
        row = {name: [entry["values"] if name == SINK else None] for name in names}
        yield pa.RecordBatch.from_pydict({**row, ROWS: [entry["counts"]]}, schema=schema)


class Encode:
    """Turns records into Kafka's batches. If ``to`` is the driver's address, the batches are handed over to
    it, and the records counted. If it is a number of tasks, each batch is addressed to the task that has to
    send it. Rows for views pass through unchanged."""

    def __init__(self, options: WriteOptions, targets: Targets, to: ReceiverAddress | int) -> None:
        self._options = options
        self._targets = targets
        self._to = to

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        origin = 0 if task is None else task.partitionId()
        if isinstance(self._to, ReceiverAddress):
            first_attempt_only()
            with closing(HandOver(self._to)) as driver:
                yield from self._handed_over(batches, origin, driver)
        else:
            yield from self._addressed(batches, origin, self._to)
        keep_loaded()

    def _addressed(
        self, batches: Iterator[pa.RecordBatch], origin: int, tasks: int
    ) -> Iterator[pa.RecordBatch]:
        partitioner = Partitioner(origin)
        number = 0
        for batch in batches:
            schema = _shuffled(batch.schema)
            record = _are_records(batch, self._targets.first)
            if record.true_count < batch.num_rows:
                added = {TASK: origin % tasks, "origin": origin, "number": -1, ROWS: 1}
                yield _with(added, batch.filter(pc.invert(record)), schema)
            for sink, ready in self._encoded(batch, record, partitioner):
                targets = [self._targets.first[sink] + one.partition for one in ready]
                made: dict[str, list[Any]] = {
                    SINK: [sink] * len(ready),
                    TASK: [target % tasks for target in targets],
                    "target": targets,
                    "origin": [origin] * len(ready),
                    "number": [number] * len(ready),
                    ROWS: [one.rows for one in ready],
                    "data": [one.data for one in ready],
                }
                yield _rows_of(made, len(ready), schema)
                number += 1

    def _handed_over(
        self, batches: Iterator[pa.RecordBatch], origin: int, driver: HandOver
    ) -> Iterator[pa.RecordBatch]:
        partitioner = Partitioner(origin)
        for batch in batches:
            record = _are_records(batch, self._targets.first)
            for sink, ready in self._encoded(batch, record, partitioner):
                for encoded in ready:
                    driver.give(self._targets.first[sink] + encoded.partition, encoded.data)
            yield from _given_back(batch, record)
        driver.finish()

    def _encoded(
        self, batch: pa.RecordBatch, record: pa.Array, partitioner: Partitioner
    ) -> Iterator[tuple[int, list[EncodedBatch]]]:
        """The records of an Arrow batch, sink by sink, as Kafka's batches."""
        sinks = batch[SINK].filter(record).unique().to_pylist()
        for sink in sinks:
            alone = len(sinks) == 1 and record.true_count == batch.num_rows
            rows = batch if alone else batch.filter(pc.equal(batch[SINK], sink))
            records = _records(rows)
            columns = dict(zip(records.schema.names, records.columns, strict=True))
            first, count = self._targets.first[sink], self._targets.count[sink]
            partitions = partitioner.choose(self._targets.partitions[first].topic, count, columns)
            for ready in interleaved_batches(columns, partitions, self._options, transactional=True):
                yield sink, ready


def _with(added: Mapping[str, int], rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the columns of the shuffle added. Their values are the same for all rows."""
    columns = [
        rows[field.name]
        if field.name not in SHUFFLED
        else pa.repeat(pa.scalar(added.get(field.name), field.type), rows.num_rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows_of(made: Mapping[str, list[Any]], size: int, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of these columns; the schema's other columns are null."""
    columns = [
        pa.array(made[field.name], field.type) if field.name in made else pa.nulls(size, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _shuffled(schema: pa.Schema) -> pa.Schema:
    kept = [pa.field(field.name, field.type) for field in schema if field.name not in RECORD]
    return pa.schema([*kept, *(pa.field(name, ARROW[kind]) for name, kind in SHUFFLED.items())])


class SendInTransaction:
    """Sends encoded batches under a producer id and epoch, in the producer's transaction, which the driver
    began and will end. Returns the other rows, and the number of records of each sink."""

    def __init__(self, options: WriteOptions, targets: Targets, producer: ProducerSession) -> None:
        self._options = options
        self._targets = targets
        self._producer = producer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first_attempt_only()
        sender = self.sender(shared_cluster(self._options.connection))
        yield from self._sent(batches, sender)
        keep_loaded()

    def sender(self, cluster: Cluster) -> BatchSender:
        """A sender in this transaction, for tasks and for the driver."""
        timeout_ms = round(1000 * self._options.connection.patience)
        return BatchSender(cluster, timeout_ms=timeout_ms, producer=self._producer)

    def _sent(self, batches: Iterator[pa.RecordBatch], sender: BatchSender) -> Iterator[pa.RecordBatch]:
        counts: dict[int, int] = {}
        schema: pa.Schema | None = None
        try:
            for batch in batches:
                names = [name for name in batch.schema.names if name not in SHUFFLED or name == ROWS]
                schema = pa.schema([pa.field(name, batch.schema.field(name).type) for name in names])
                encoded = batch["data"].is_valid()
                if encoded.true_count < batch.num_rows:
                    kept = batch.filter(pc.invert(encoded)).select(names)
                    yield pa.RecordBatch.from_arrays(kept.columns, schema=schema)
                if encoded.true_count:
                    self._send(sender, batch.filter(encoded), counts)
            sender.flush()
        except BaseException:
            sender.close()  # drops what is in flight; the next task can't use this connection
            raise
        if schema is not None:
            columns: dict[str, object] = {SINK: list(counts), ROWS: list(counts.values())}
            yield pa.RecordBatch.from_pydict(
                {name: columns.get(name, [None] * len(counts)) for name in schema.names}, schema=schema
            )

    def _send(self, sender: BatchSender, batch: pa.RecordBatch, counts: dict[int, int]) -> None:
        partitions = self._targets.partitions
        data = batch["data"]
        sender.send(
            (partitions[target], bytearray(memoryview(data[at].as_buffer())))
            for at, target in enumerate(batch["target"].to_pylist())
        )
        for sink, rows in zip(batch[SINK].to_pylist(), batch[ROWS].to_pylist(), strict=True):
            counts[sink] = counts.get(sink, 0) + rows
