"""Owed markers: write the end of each decided transaction to every partition that has its records.

A marker is owed from the commit point on (``broker.transactions.decisions``). It is staged at once and
written at the end of the turn, together with the turn's other records. While the log takes no writes (a
full disk), the marker is retried until the write succeeds, after a restart too. Until then, readers of
committed records in that partition wait before the transaction, and its transactional id can't begin
another one: the records of the new transaction would be decided by the old one's marker.

Markers do not get a sync of their own. The row in the catalogue stands in for the marker until a later sync
of the log covers it. Then the row is deleted, many at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from millstream.broker.topics.partition import AppendTurn, LocalTopic, Partition
from millstream.broker.topics.syncing import Syncer
from millstream.broker.transactions.decisions import OwedMarker, TransactionDecisions
from millstream.core.clock import Clock
from millstream.core.errors import LogError, RequestRefused
from millstream.wire.frame import TopicKey

_log = logging.getLogger(__name__)

RETRY_EVERY = 0.5  # seconds between attempts to write a marker
FORGET_EVERY = 1.0  # seconds between deletions of rows; a marker unsynced for that long gets its log synced
_COORDINATOR_EPOCH = 0  # there is one coordinator, and it never moves


def _nothing() -> None:
    """The default callback: no caller waits."""


class _Group:
    """The markers of one decision, and how many of them are still to be tried and written."""

    __slots__ = ("attempted", "complete", "unattempted", "unwritten")

    def __init__(self, count: int, attempted: Callable[[], None], complete: Callable[[], None]) -> None:
        self.unattempted = self.unwritten = count
        self.attempted = attempted  # called once every marker was tried
        self.complete = complete  # called once every marker is written


class _MarkerWrite:
    """One marker that is being written. It is a ``PendingAppend``: its partition reports the result."""

    __slots__ = ("_markers", "group", "is_recorded", "marker", "offset", "partition", "since", "was_tried")

    needs_sync = False
    timeout_ms = -1

    def __init__(self, markers: Markers, marker: OwedMarker, group: _Group, *, is_recorded: bool) -> None:
        self._markers = markers
        self.marker = marker
        self.group = group
        self.is_recorded = is_recorded  # the catalogue has a row for it
        self.partition: Partition | None = None
        self.offset = -1
        self.since = 0.0
        self.was_tried = False

    def settled(self, place: int, failure: LogError | None) -> None:
        if failure is None:
            self._markers.written(self)
        else:
            self._markers.failed(self, failure)


class Markers:
    """All owed markers of one broker. Lives on the server's loop."""

    def __init__(
        self, decisions: TransactionDecisions, hosted: Mapping[TopicKey, LocalTopic], clock: Clock
    ) -> None:
        self._decisions = decisions
        self._hosted = hosted
        self._clock = clock
        self._turn: AppendTurn | None = None
        self._syncer: Syncer | None = None
        self._failed: list[_MarkerWrite] = []  # to be retried
        self._written: list[_MarkerWrite] = []  # their rows can be deleted once the log is synced past them
        self._retry_at = self._forget_at = 0.0

    def start(self, turn: AppendTurn, syncer: Syncer) -> None:
        self._turn, self._syncer = turn, syncer

    def partition_of(self, marker: OwedMarker) -> Partition | None:
        topic = self._hosted.get(marker.topic_id)
        if topic is None or marker.partition >= len(topic.partitions):
            return None
        return topic.partitions[marker.partition]

    def is_due(self, marker: OwedMarker) -> bool:
        """True if the transaction that the marker ends is still open in its partition."""
        partition = self.partition_of(marker)
        if partition is None:
            return False
        if partition.log.offline is not None:
            return True  # unknown until its files are restored or given up
        found = partition.log.transactions.open.get(marker.producer_id)
        return found is not None and found[0] == marker.first_offset

    def write(
        self,
        owed: Sequence[OwedMarker],
        *,
        attempted: Callable[[], None] = _nothing,
        complete: Callable[[], None] = _nothing,
        is_recorded: bool = True,
    ) -> None:
        """Stage all of these in this turn.

        ``attempted`` is called when each marker is written or has failed once, ``complete`` when the last
        one is written. Both may be called before this returns.
        """
        if not owed:
            attempted()
            complete()
            return
        group = _Group(len(owed), attempted, complete)
        for marker in owed:
            self._try(_MarkerWrite(self, marker, group, is_recorded=is_recorded))

    def unwritten(self) -> list[OwedMarker]:
        """The markers that could not be written yet."""
        return [owed.marker for owed in self._failed]

    def holds(self, topic_id: bytes, partition: int, producer_id: int) -> bool:
        """True if the producer's open transaction here is decided, and its marker waits for a retry."""
        wanted = (topic_id, partition, producer_id)
        return any(owed.marker[:3] == wanted for owed in self._failed)

    def tick(self, now: float) -> None:
        """Retry failed markers, and delete the rows of synced ones. Cheap if there are none."""
        if self._failed and now >= self._retry_at:
            self._retry_at = now + RETRY_EVERY
            again, self._failed = self._failed, []
            for owed in again:
                self._try(owed)
        if self._written and now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY
            self._forget_synced(now)

    def _try(self, owed: _MarkerWrite) -> None:
        marker = owed.marker
        if not self.is_due(marker):
            self._done(owed)
            return
        partition = self.partition_of(marker)
        assert partition is not None
        assert self._turn is not None
        # A marker from a client (WriteTxnMarkers) may have named a coordinator epoch above ours.
        known = partition.log.transactions.coordinators.get(marker.producer_id, _COORDINATOR_EPOCH)
        try:
            owed.offset = partition.append_marker(
                self._turn,
                marker.producer_id,
                marker.epoch,
                commit=marker.is_commit,
                coordinator_epoch=max(known, _COORDINATOR_EPOCH),
            )
        except LogError as error:
            self.failed(owed, error)
            return
        owed.partition = partition
        partition.unsettled.append((owed, 0))

    def written(self, owed: _MarkerWrite) -> None:
        owed.since = self._clock.monotonic()
        self._done(owed)

    def failed(self, owed: _MarkerWrite, failure: LogError) -> None:
        if not owed.was_tried:
            _log.warning(
                "transactional id %s is %s, but partition %d of topic %s can't be told yet: %s",
                owed.marker.transaction,
                "committed" if owed.marker.is_commit else "aborted",
                owed.marker.partition,
                self._name(owed.marker),
                failure,
            )
        owed.partition = None
        self._failed.append(owed)
        self._was_tried(owed)

    def _done(self, owed: _MarkerWrite) -> None:
        """The marker is written, or is no longer due."""
        if owed.is_recorded:
            self._written.append(owed)
        self._was_tried(owed)
        group = owed.group
        group.unwritten -= 1
        if group.unwritten == 0:
            group.complete()

    def _was_tried(self, owed: _MarkerWrite) -> None:
        if not owed.was_tried:
            owed.was_tried = True
            owed.group.unattempted -= 1
            if owed.group.unattempted == 0:
                owed.group.attempted()

    def _forget_synced(self, now: float) -> None:
        synced, waiting = [], []
        for owed in self._written:
            partition = owed.partition
            if partition is None or partition.log.synced_offset > owed.offset:
                synced.append(owed)
                continue
            if self.partition_of(owed.marker) is not partition:
                synced.append(owed)  # the topic was deleted
                continue
            waiting.append(owed)
            if now - owed.since >= FORGET_EVERY and not partition.is_syncing and partition.log.failed is None:
                assert self._syncer is not None
                self._syncer.sync(partition)
        self._written = waiting
        if not synced:
            return

        def forgotten(future: asyncio.Future[None]) -> None:
            if future.cancelled() or future.exception() is not None:
                self._written += synced  # tried again later; the catalogue logs the reason

        try:
            self._decisions.forget_owed([owed.marker for owed in synced]).add_done_callback(forgotten)
        except RequestRefused:
            self._written += synced

    def _name(self, marker: OwedMarker) -> str:
        topic = self._hosted.get(marker.topic_id)
        return topic.name if topic is not None else marker.topic_id.hex()
