"""Reads topics as streams: plans micro-batches of what has been appended.

Spark keeps a process for each stream, in which it asks the reader how far the next batch goes. The reader's
``tickFile`` (``tick_file.py``) may ask for a batch only because time has passed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
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
from millstream.core.errors import ConfigError, MillstreamError, RequestFailed
from millstream.core.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from millstream.pipeline.connector.data_loss import LostRecords
from millstream.pipeline.connector.fetching import lost
from millstream.pipeline.connector.offsets import (
    Offsets,
    Span,
    at_most,
    finish_in,
    from_json,
    ids_in,
    mentioned,
    starts_in,
    tick_in,
    to_json,
    with_ids,
    with_starts,
    with_tick,
)
from millstream.pipeline.connector.options import ReadOptions
from millstream.pipeline.connector.source import Task, TopicReader
from millstream.pipeline.connector.tick_file import read_tick
from millstream.records.batch import batches

log = logging.getLogger(__name__)

_SAMPLE_BYTES = 128 * 1024
OUTAGE_S = 60.0  # how long a stream waits for unreachable brokers
_REPORT_S = 300.0  # Spark reports a batch within this time, however slow the machine

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


class StreamReader(TopicReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``: micro-batches of what has been appended."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._lost = LostRecords(fail=options.fail_on_data_loss)
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
            if self.options.pattern is not None:  # a topic that is not mentioned has come later
                partitions = mentioned(self.options.end, "endingOffsets", partitions)
            wanted = self.place(self.options.end, "endingOffsets", partitions)
            self._last_call = {p: min(self._last_call[p], wanted[p]) for p in partitions}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if self.options.end is not None and self._last_call is None:
            raise ConfigError("endingOffsets requires a stream that ends: use trigger(availableNow=True)")
        known = from_json(start)
        begun = {**starts_in(start), **known}
        # The offsets that Spark continues from are processed. Spark commits them only with the next batch, so
        # the group of a query that has caught up would otherwise seem to lag forever.
        self._commit(begun)

        def look() -> Offsets:
            nonlocal begun
            partitions = self.topic_partitions()
            self._lost.check_gone(begun, partitions)
            begun = self._lost.check_ids(self.cluster, begun, ids_in(start), partitions)
            return self._ends(partitions)

        self._latest = again_if_topics_go(look)
        known = {partition: offset for partition, offset in known.items() if partition in begun}
        end = dict(self._latest)
        if self._last_call is not None:
            end = {p: min(offset, self._last_call[p]) for p, offset in end.items() if p in self._last_call}
        begun = self._starts(begun, end)
        end = {p: self._lost.check_end(p, begun[p], offset) for p, offset in end.items()}
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
                raise MillstreamError(f"Spark did not report the last batch within {_REPORT_S:g} s")
            time.sleep(0.01)
        return time.time_ns() // 1_000_000 if told.again else tick_in(start), told.finish

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = self._lost.check_planned(self.cluster, from_json(end), ids_in(end))
        # After a restart in batch 0, Spark asks for initial offsets again. The planned ones count.
        begun = {**from_json(start), **starts_in(end)}
        if unknown := sorted(set(until) - set(begun)):
            raise ConfigError(f"the checkpoint has no offset for {unknown[0]}; start with a new checkpoint")
        moved = [partition for partition, offset in until.items() if offset > begun[partition]]
        if not moved:
            # Operators that wait for time must learn of it: a task without records tells them.
            timed = tick_in(end) > tick_in(start) or finish_in(end) != finish_in(start)
            return [Task([])] if timed else []
        earliest = self._lost.planned_starts(self.cluster, moved)
        spans = []
        for partition in earliest:
            first = begun[partition]
            if earliest[partition] > first:
                gone = min(earliest[partition], until[partition])
                self._lost.report(lost(partition, first, gone, f"the log starts at {earliest[partition]}"))
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
