"""Reads topics as DataFrames: ``spark.read`` and ``spark.readStream`` with ``format("millstream")``.

Spark makes a reader several times, in separate processes: one that plans a stream for as long as it runs, and
others that only carry the reader to the tasks. So a reader holds options, and nothing that can't be pickled.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError, DataLoss, MillstreamError, RequestFailed
from millstream.core.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from millstream.pipeline.connector.fetching import TO_GO_ON, SpanReader, lost
from millstream.pipeline.connector.offsets import (
    Offsets,
    Span,
    at_most,
    created_again,
    divide,
    finish_in,
    from_json,
    ids_in,
    parse_assign,
    parse_places,
    resolve,
    starts_in,
    tick_in,
    to_json,
    with_ids,
    with_starts,
    with_tick,
)
from millstream.pipeline.connector.options import PLAIN, ReadOptions
from millstream.pipeline.connector.ticks import read_tick
from millstream.pipeline.spark.task_cache import keep_loaded, shared_cluster
from millstream.records.batch import batches
from millstream.records.columns.json_values import JsonColumns, JsonField

log = logging.getLogger(__name__)

HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": HEADERS,
}
_SAMPLE_BYTES = 128 * 1024
OUTAGE_S = 60.0  # how long a stream waits for unreachable brokers
_REPORT_S = 300.0  # Spark reports a batch within this time, however slow the machine


def schema_of(options: ReadOptions) -> str:
    """The columns, with the names, types and order of Spark's own Kafka source."""
    return ", ".join(
        f"{name} {kind}" for name, kind in COLUMNS.items() if options.headers or name != "headers"
    )


def check_schema(schema: StructType) -> None:
    """Refuse a user's schema that does more than select columns: it can't change their types."""
    for column in schema.fields:
        if column.name == PLAIN:
            continue
        kind = COLUMNS.get(column.name)
        if kind is None:
            raise ConfigError(f"there is no column {column.name!r} to read; there are {', '.join(COLUMNS)}")
        if column.dataType.simpleString() != kind:
            raise ConfigError(
                f"column {column.name!r} is {kind}, not {column.dataType.simpleString()}; cast it later"
            )


class Task(InputPartition):
    """The spans that one Spark task reads."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__(spans)
        self.spans = spans


class _Source:
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
            matches = re.compile(options.pattern).fullmatch
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
        places = parse_places(text, option, time.time_ns() // 1_000_000)
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


T = TypeVar("T")


def again_if_topics_go(look: Callable[[], T]) -> T:
    """Repeat ``look`` if a topic is deleted between two of its requests. The next look then reports the
    deletion in words."""
    for _ in range(3):
        try:
            return look()
        except RequestFailed as problem:
            if problem.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
    return look()


class BatchReader(_Source, DataSourceReader):
    """``spark.read``: reads from one place to another, both fixed when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.max_offsets or options.min_offsets or options.max_bytes:
            raise ConfigError("limits per trigger are for streams; a batch has endingOffsets")

    def partitions(self) -> Sequence[InputPartition]:
        self.options.connection.check()
        partitions = self.topic_partitions()
        self.check_topics(partitions)
        start = self.place(self.options.start or "earliest", "startingOffsets", partitions)
        end = self.place(self.options.end or "latest", "endingOffsets", partitions)
        return self.tasks([Span(partition, start[partition], end[partition]) for partition in partitions])


class StreamReader(_Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``: micro-batches of what has been appended."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._last_call: Offsets | None = None  # AvailableNow: nothing beyond this
        self._latest: Offsets | None = None
        self._committed: Offsets | None = None
        self._waiting_since: float | None = None
        self._moved = False  # True once this run has planned a batch

    @property
    def cluster(self) -> Cluster:
        """The cluster, with more patience than for a batch read. The user of a batch read is waiting, and can
        start it again."""
        cluster = super().cluster
        cluster.patience = max(cluster.patience, OUTAGE_S)
        return cluster

    # Planning, in Spark's long-lived driver-side process ------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as below
        self.options.connection.check()
        partitions = self.topic_partitions()
        self.check_topics(partitions)
        placed = self.place(self.options.start or "latest", "startingOffsets", partitions)
        return with_ids(with_starts({}, placed), self._ids(placed))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self.options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        partitions = self.topic_partitions()
        self._last_call = self._ends(partitions)
        if self.options.end is not None:
            wanted = self.place(self.options.end, "endingOffsets", partitions)
            self._last_call = {p: min(offset, wanted[p]) for p, offset in self._last_call.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if self.options.end is not None and self._last_call is None:
            raise ConfigError("a stream has endingOffsets only if it ends: trigger(availableNow=True)")
        known = from_json(start)
        begun = {**starts_in(start), **known}
        # The offsets that Spark continues from are processed. Spark commits them only with the next batch, so
        # the group of a query that has caught up would otherwise seem to lag forever.
        self._commit(begun)

        def look() -> Offsets:
            nonlocal begun
            partitions = self.topic_partitions()
            self._check_gone(begun, partitions)
            begun = self._check_ids(begun, ids_in(start), partitions)
            return self._ends(partitions)

        self._latest = again_if_topics_go(look)
        known = {partition: offset for partition, offset in known.items() if partition in begun}
        end = dict(self._latest)
        if self._last_call is not None:
            end = {p: min(offset, self._last_call[p]) for p, offset in end.items() if p in self._last_call}
        begun = self._starts(begun, end)
        end = {p: self._check_cut(p, begun[p], offset) for p, offset in end.items()}
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(begun, end)
        tick, finish = tick_in(start), None
        if self._last_call is None:
            tick = self._tick(tick)
        elif end == known:
            tick, finish = self._finish(start)
        self._moved = self._moved or end != known
        if end == known and tick == tick_in(start) and finish in (None, finish_in(start)):
            return start  # unchanged, because Spark makes a batch whenever the text differs
        new = {partition: begun[partition] for partition in end if partition not in known}
        return with_ids(with_starts(with_tick(to_json(end), tick, finish), new), self._ids(end))

    def _ids(self, offsets: Offsets) -> Mapping[str, str]:
        """The topics' ids, as of the last look at them."""
        return self.cluster.known_topic_ids({partition.topic for partition in offsets})

    def _tick(self, last: int) -> int:
        """The time of the last tick, or of a new one if that is due."""
        wanted = None if self.options.tick_file is None else read_tick(self.options.tick_file).at_ms
        now = time.time_ns() // 1_000_000
        return now if wanted is not None and last < wanted <= now else last

    def _finish(self, start: dict[str, Any]) -> tuple[int, int | None]:
        """The tick, and how far to carry event time, once everything is read and nothing more will come. A
        batch of this run shows what still waits for event time. The driver then says how far to carry it."""
        if self.options.tick_file is None:
            return tick_in(start), None
        if not self._moved:
            self._moved = True
            return time.time_ns() // 1_000_000, None
        deadline = time.monotonic() + _REPORT_S
        while start not in (told := read_tick(self.options.tick_file)).after:
            if not told.there:
                return tick_in(start), None  # the job is being closed
            if time.monotonic() > deadline:
                raise MillstreamError(f"Spark has not reported the last batch in {_REPORT_S:g} s")
            time.sleep(0.01)
        return time.time_ns() // 1_000_000 if told.again else tick_in(start), told.finish

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = self._check_planned(from_json(end), ids_in(end))
        # After a restart in batch 0, Spark asks for initial offsets again. The planned ones count.
        begun = {**from_json(start), **starts_in(end)}
        if unknown := sorted(set(until) - set(begun)):
            raise ConfigError(
                f"the checkpoint does not say where {unknown[0]} starts; start with a new checkpoint"
            )
        moved = [partition for partition, offset in until.items() if offset > begun[partition]]
        if not moved:
            # Operators that wait for time must learn of it: a task without records tells them.
            timed = tick_in(end) > tick_in(start) or finish_in(end) != finish_in(start)
            return [Task([])] if timed else []
        earliest = self._planned_starts(moved)
        spans = []
        for partition in earliest:
            first = begun[partition]
            if earliest[partition] > first:
                gone = min(earliest[partition], until[partition])
                self._lost(lost(partition, first, gone, f"the log starts at {earliest[partition]}"))
                first = gone
            spans.append(Span(partition, first, until[partition]))
        return self.tasks(spans)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(from_json(end))

    def stop(self) -> None:
        self.cluster.close()

    def _commit(self, processed: Offsets) -> None:
        if self.options.group is None or not self.options.commit or processed == self._committed:
            return
        self._committed = processed
        try:
            self.cluster.commit(self.options.group, processed)
        except MillstreamError as problem:
            # Spark's checkpoint is what counts; the group only shows the progress.
            log.warning("offsets were not committed to group %s: %s", self.options.group, problem)

    def _ends(self, partitions: Sequence[TopicPartition]) -> Offsets:
        if not partitions:
            return {}
        return self.cluster.ends(partitions, LATEST, read_committed=self.options.read_committed)

    def _starts(self, begun: Offsets, end: Offsets) -> Offsets:
        """Where to continue. Partitions that did not exist before are read from their start."""
        new = [partition for partition in end if partition not in begun]
        return {**begun, **self.cluster.ends(new, EARLIEST)} if new else begun

    def _check_gone(self, begun: Offsets, partitions: Sequence[TopicPartition]) -> None:
        gone = sorted(set(begun) - set(partitions))
        if gone:
            names = ", ".join(f"{partition} from offset {begun[partition]}" for partition in gone)
            self._lost(
                DataLoss(
                    f"{names}: deleted while they were being read. What was appended after these offsets and"
                    f" not read yet is lost. To go on with what is there: {TO_GO_ON}"
                )
            )

    def _check_ids(
        self, begun: Offsets, ids: Mapping[str, str], partitions: Sequence[TopicPartition]
    ) -> Offsets:
        """Where to continue, without topics that were created again: those are read from their start."""
        now = self.cluster.known_topic_ids({partition.topic for partition in partitions})
        again = created_again(ids, now)
        if not again:
            return begun
        read = ", ".join(f"{p} up to offset {at - 1}" for p, at in sorted(begun.items()) if p.topic in again)
        self._lost(
            DataLoss(
                f"{', '.join(again)}: deleted and created again since the last batch. Read before: {read};"
                " what came after that is lost. To read the new from its start, begin a new checkpoint, or go"
                f" on with this one: {TO_GO_ON}"
            )
        )
        return {partition: at for partition, at in begun.items() if partition.topic not in again}

    def _check_planned(self, until: Offsets, ids: Mapping[str, str]) -> Offsets:
        """What can be read of a planned batch. Perhaps a run that was killed planned it, and a topic may have
        been created again since: its offsets then mean other records."""
        self.cluster.topics(ids)
        again = created_again(ids, self.cluster.known_topic_ids(ids))
        if not again:
            return until
        self._lost(
            DataLoss(
                f"{', '.join(again)}: deleted and created again after a batch of it was planned. The batch"
                f" can't be read any more. To go on without it: {TO_GO_ON}"
            )
        )
        return {partition: at for partition, at in until.items() if partition.topic not in again}

    def _planned_starts(self, planned: Sequence[TopicPartition]) -> Offsets:
        """The earliest offsets of a batch's partitions, without those whose topic was deleted since."""
        try:
            return self.cluster.ends(planned, EARLIEST)
        except RequestFailed as problem:
            if problem.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
        topics = {partition.topic for partition in planned}
        there = self.cluster.topics(topics)
        gone = ", ".join(sorted(topics - set(there)))
        self._lost(
            DataLoss(
                f"{gone}: deleted after a batch of it was planned. The batch can't be read any more. To go on"
                f" without it: {TO_GO_ON}"
            )
        )
        return self.cluster.ends([p for p in planned if p.topic in there], EARLIEST)

    def _check_cut(self, partition: TopicPartition, begun: int, end: int) -> int:
        if end < begun:
            self._lost(
                DataLoss(
                    f"{partition}: read up to offset {begun}, but the log ends at {end}: the topic was made"
                    " anew or cut. Start the query with a new checkpoint to read what is there now. To go on"
                    f" at offset {begun}, once there is one: {TO_GO_ON}"
                )
            )
            return begun
        return end

    def _lost(self, problem: DataLoss) -> None:
        if self.options.fail_on_data_loss:
            raise problem
        log.warning("%s", problem)

    def _limited(self, begun: Offsets, end: Offsets) -> Offsets:
        options = self.options
        waiting = sum(offset - begun[partition] for partition, offset in end.items())
        if options.min_offsets is not None and 0 < waiting < options.min_offsets and self._last_call is None:
            now = time.monotonic()
            if self._waiting_since is None:
                self._waiting_since = now
            if now - self._waiting_since < options.max_delay_ms / 1000:
                return {partition: begun[partition] for partition in end}
        self._waiting_since = None
        if options.max_offsets is not None:
            end = at_most(begun, end, options.max_offsets)
        if options.max_bytes is not None:
            size = self._record_size(begun, end)
            end = at_most(begun, end, max(1, int(options.max_bytes / size)))
        return end

    def _record_size(self, begun: Offsets, end: Offsets) -> float:
        """Bytes of batches per offset, estimated from the first waiting batches of each partition."""
        cluster = self.cluster
        moved = [partition for partition, offset in end.items() if offset > begun[partition]]

        def sample() -> float:
            size = offsets = 0
            for link, partitions in cluster.by_leader(moved).items():
                wanted = {p: (begun[p], max(1024, _SAMPLE_BYTES // len(moved))) for p in partitions}
                link.send_fetch(wanted, wait_ms=0, read_committed=self.options.read_committed)
                for answer in link.receive_fetch():
                    for _, header in batches(answer.records):
                        size += header.size
                        offsets += header.last_offset_delta + 1
            return size / offsets if offsets else 1.0

        return cluster.patiently("looking at what is waiting", sample) if moved else 1.0
