"""What tasks do with the rows of a batch: the functions that run on Spark's executors.

Without a transaction a task sends its records as they come (``Send``). In a transaction there are two steps,
with a shuffle between them:

``Encode`` makes batches of Kafka's of the rows, each for one partition of one topic. What is shuffled are
those batches: some hundreds of bytes strings instead of as many rows.

``SendInTransaction`` sends them, each task all batches of the partitions that are its own. A broker takes
batches of one producer and epoch in a partition for duplicates if it knows their sequence numbers; two tasks
on one partition, or a task that runs a second time, would lose rows in silence. So the shuffle sees to it
that a partition has one task, and a task that is not the first attempt refuses to run: the whole batch is
then run again, under another epoch. What is not too large for it the driver sends itself, without the
shuffle: that is cheaper by a third and more, and there is but one sender. A task that finds it is too large
says so and gives nothing else, and the batch goes the other way.

All are functions of ``mapInArrow`` and not writers of a data source: for that, Spark starts new Python
processes with every batch, and lets no one say which task gets which rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millstream.client.cluster import Cluster
from millstream.client.position import TopicPartition
from millstream.client.sender import Sender
from millstream.client.transactions import Producer
from millstream.errors import MillstreamError
from millstream.pipeline.encoding import Encoded, Partitioner, rounds
from millstream.pipeline.links import keep_loaded, shared_cluster
from millstream.pipeline.options import WriteOptions
from millstream.pipeline.outgoing import RECORD, SINK
from millstream.records.columns import HEADERS_TYPE

ROWS = "rows"
# What ``Encode`` adds to a row for the shuffle: the task it goes to, the partition among the targets, where
# it comes from and as which, how many records it holds, and the batch itself.
TASK = "task"
SHUFFLED = {TASK: "int", "target": "int", "origin": "int", "round": "int", ROWS: "bigint", "data": "binary"}
ORDER = ("origin", "round")


_GIVEN_UP = -1  # a task that there is not


class TaskRepeated(MillstreamError):
    """A task that may have sent something already was started once more."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Every partition that a query writes, numbered; ``first`` and ``count`` say which are a sink's."""

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
    """Sends the records among a task's rows; gives back the other rows, and for each sink of records one row
    with their number. ``topics`` are those of the sinks; ``repeatable`` is whether a task may send twice."""

    def __init__(self, options: WriteOptions, topics: Mapping[int, str], *, repeatable: bool) -> None:
        self._options = options
        self._topics = topics
        self._repeatable = repeatable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from millstream.pipeline.sink import send_rows

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
    """Sends nothing, and gives back what ``Send`` does: for a batch whose records are in the log already."""

    def __init__(self, topics: Mapping[int, str]) -> None:
        self._topics = topics

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _given_back(batch, _are_records(batch, self._topics))
        keep_loaded()


def _are_records(batch: pa.RecordBatch, sinks: Collection[int]) -> pa.Array:
    """Which rows are for topics; the others are for views."""
    return pc.is_in(batch[SINK], value_set=pa.array(sinks, pa.int32()))


def _records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of records, with their headers as records have them."""
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
    """Records become batches of Kafka's, addressed to the task that is to send them; the rows of views go
    along as they are. A task that comes to more than ``most`` bytes gives up (``too_large``)."""

    def __init__(
        self, options: WriteOptions, targets: Targets, tasks: int, *, most: int | None = None
    ) -> None:
        self._options = options
        self._targets = targets
        self._tasks = tasks
        self._most = most

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        origin = 0 if task is None else task.partitionId()
        partitioner = Partitioner(origin)
        number = size = 0
        for batch in batches:
            if self._most is not None and size > self._most:
                continue  # whoever stops reading costs Spark the process
            schema = _shuffled(batch.schema)
            record = _are_records(batch, self._targets.first)
            if record.true_count < batch.num_rows:
                yield self._passed_on(batch.filter(pc.invert(record)), schema, origin)
            sinks = batch[SINK].filter(record).unique().to_pylist()
            for sink in sinks:
                alone = len(sinks) == 1 and record.true_count == batch.num_rows
                rows = batch if alone else batch.filter(pc.equal(batch[SINK], sink))
                records = _records(rows)
                columns = dict(zip(records.schema.names, records.columns, strict=True))
                first, count = self._targets.first[sink], self._targets.count[sink]
                topic = self._targets.partitions[first].topic
                partitions = partitioner.choose(topic, count, columns)
                for ready in rounds(columns, partitions, self._options, transactional=True):
                    size += sum(len(one.data) for one in ready)
                    if self._most is not None and size > self._most:
                        yield self._given_up(schema)
                        break
                    yield self._addressed(ready, sink, schema, origin, number)
                    number += 1
        keep_loaded()

    @staticmethod
    def _given_up(schema: pa.Schema) -> pa.RecordBatch:
        columns = [pa.array([_GIVEN_UP if field.name == TASK else None], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _passed_on(self, rows: pa.RecordBatch, schema: pa.Schema, origin: int) -> pa.RecordBatch:
        size = rows.num_rows
        added = {TASK: origin % self._tasks, "origin": origin, "round": -1, ROWS: 1}
        columns = [
            rows[field.name]
            if field.name not in SHUFFLED
            else pa.repeat(pa.scalar(added.get(field.name), field.type), size)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _addressed(
        self, ready: list[Encoded], sink: int, schema: pa.Schema, origin: int, number: int
    ) -> pa.RecordBatch:
        targets = [self._targets.first[sink] + batch.partition for batch in ready]
        size = len(ready)
        made = {
            SINK: [sink] * size,
            TASK: [target % self._tasks for target in targets],
            "target": targets,
            "origin": [origin] * size,
            "round": [number] * size,
            ROWS: [batch.rows for batch in ready],
            "data": [batch.data for batch in ready],
        }
        columns = [
            pa.array(made[field.name], field.type) if field.name in made else pa.nulls(size, field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def too_large(encoded: pa.Table) -> bool:
    """Whether a task gave up: then this is not all that there is."""
    return bool(pc.any(pc.equal(encoded[TASK], _GIVEN_UP)).as_py())


def _shuffled(schema: pa.Schema) -> pa.Schema:
    kinds = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
    kept = [pa.field(field.name, field.type) for field in schema if field.name not in RECORD]
    return pa.schema([*kept, *(pa.field(name, kinds[kind]) for name, kind in SHUFFLED.items())])


class SendInTransaction:
    """Sends batches that stand encoded under a producer id and epoch, in its transaction, which the driver
    began and will end; gives back the other rows, and the number of records of each sink."""

    def __init__(self, options: WriteOptions, targets: Targets, producer: Producer) -> None:
        self._options = options
        self._targets = targets
        self._producer = producer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first_attempt_only()
        yield from self.send(batches, shared_cluster(self._options.connection))
        keep_loaded()

    def send(self, batches: Iterator[pa.RecordBatch], cluster: Cluster) -> Iterator[pa.RecordBatch]:
        """The same for whoever has a connection."""
        timeout_ms = round(1000 * self._options.connection.patience)
        sender = Sender(cluster, timeout_ms=timeout_ms, producer=self._producer)
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
                    self._pass_on(sender, batch.filter(encoded), counts)
            sender.flush()
        except BaseException:
            sender.close()  # with whatever is in flight: the connection is of no use to the next task
            raise
        if schema is not None:
            columns: dict[str, object] = {SINK: list(counts), ROWS: list(counts.values())}
            yield pa.RecordBatch.from_pydict(
                {name: columns.get(name, [None] * len(counts)) for name in schema.names}, schema=schema
            )

    def _pass_on(self, sender: Sender, batch: pa.RecordBatch, counts: dict[int, int]) -> None:
        partitions = self._targets.partitions
        data = batch["data"]
        sender.send(
            (partitions[target], bytearray(memoryview(data[at].as_buffer())))
            for at, target in enumerate(batch["target"].to_pylist())
        )
        for sink, rows in zip(batch[SINK].to_pylist(), batch[ROWS].to_pylist(), strict=True):
            counts[sink] = counts.get(sink, 0) + rows
