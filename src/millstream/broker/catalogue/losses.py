"""What groups missed: records that were deleted before the group had committed them.

A log calls ``PartitionLog.start_moves`` before its start offset moves, while the records to be deleted
can still be read. For each group whose committed offset is below the new start, this module records how
many records it loses, their offsets, and when they were written (by the batch). Consumers find out by
Kafka's own means (OFFSET_OUT_OF_RANGE at their next Fetch). Operators find out from a log line, a metric
and the group's description. Other clients notice nothing.

Losses are counted from what was committed. A consumer that is killed between reading and committing would
have read those records again, so they count as lost too.

One loss is kept for each group and partition. While a group does not move and the log's tail does, its
one loss grows. If a group moved on and lost records again, its latest loss is kept, with the sum of all.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from millstream.broker.catalogue.database import CatalogueDatabase, ignore_failure
from millstream.broker.groups.committed_offset import CommittedOffset
from millstream.core.clock import Clock
from millstream.core.errors import CatalogueFailed
from millstream.log.partition import PartitionLog
from millstream.log.times import times_at

_log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]  # topic, partition


class Loss(NamedTuple):
    """Records of one partition that one group missed.

    They go from ``first_offset`` up to ``next_offset``, were written from ``first_ms`` to ``last_ms``
    (-1: not known), and were last deleted at ``lost_ms``. ``total`` includes earlier losses.
    """

    first_offset: int
    next_offset: int
    first_ms: int
    last_ms: int
    lost_ms: int
    total: int

    @property
    def records(self) -> int:
        return self.next_offset - self.first_offset

    def and_then(self, later: Loss) -> Loss:
        """This loss followed by a later one: merged if they join, else the later one with the sum of both."""
        if later.first_offset > self.next_offset:
            return later._replace(total=self.total + later.records)
        return Loss(
            self.first_offset,
            later.next_offset,
            self.first_ms if self.first_ms >= 0 else later.first_ms,
            max(self.last_ms, later.last_ms),
            later.lost_ms,
            self.total + later.next_offset - self.next_offset,
        )


class Losses:
    """The losses of all groups, in memory and in the catalogue's file."""

    def __init__(self, database: CatalogueDatabase) -> None:
        self._database = database
        self._losses: dict[str, dict[TopicPartition, Loss]] = {}
        self._told: dict[tuple[str, TopicPartition], int] = {}  # the number of records in the last log line

    def load(self) -> None:
        for group, topic, partition, *fields in self._database.rows("SELECT * FROM losses"):
            self._losses.setdefault(group, {})[topic, partition] = Loss(*fields)

    def of(self, group: str) -> Mapping[TopicPartition, Loss]:
        """What a group missed, by topic and partition."""
        return self._losses.get(group, {})

    def groups(self) -> Iterable[str]:
        return list(self._losses)

    def start_moves(
        self,
        log: PartitionLog,
        start: int,
        offsets: Mapping[str, Mapping[str, Mapping[int, CommittedOffset]]],
        clock: Clock,
    ) -> None:
        """Record what groups lose, given their committed ``offsets``, when the log begins at ``start``."""
        lost: dict[str, Loss] = {}
        last_ms: int | None = None
        for group, topics in offsets.items():
            committed = topics.get(log.topic, {}).get(log.partition)
            if committed is None or committed.offset >= start:
                continue
            first = max(committed.offset, log.log_start_offset)
            if first >= start:
                continue
            if last_ms is None:
                last_ms = times_at(log, start - 1).last_ms
            first_ms = times_at(log, first).first_ms
            lost[group] = Loss(first, start, first_ms, last_ms, clock.now_ms(), start - first)
        if lost:
            self._record((log.topic, log.partition), lost)

    def _record(self, partition: TopicPartition, lost: Mapping[str, Loss]) -> None:
        rows = []
        for group, loss in lost.items():
            before = self._losses.get(group, {}).get(partition)
            kept = loss if before is None else before.and_then(loss)
            self._losses.setdefault(group, {})[partition] = kept
            rows.append((group, *partition, *kept))
            self._tell(group, partition, kept)

        def write(db: sqlite3.Connection) -> None:
            for row in rows:
                # Skip a topic that was deleted meanwhile.
                db.execute(
                    "INSERT OR REPLACE INTO losses SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? "
                    "WHERE EXISTS (SELECT 1 FROM topics WHERE name = ?)",
                    (*row, row[1]),
                )

        try:
            written = self._database.write(write, lambda _: None)
        except CatalogueFailed:
            return  # shutting down
        ignore_failure(written)  # memory has it, and it is logged

    def _tell(self, group: str, partition: TopicPartition, loss: Loss) -> None:
        """Log a new loss, and again whenever it has doubled.

        So a group that is not used any more does not fill the log.
        """
        told = self._told.get((group, partition), 0)
        if loss.first_offset < loss.next_offset and 0 < told <= loss.records < 2 * told:
            return
        self._told[group, partition] = loss.records
        _log.warning(
            "group %s fell behind the start of %s-%d: %d records (offsets %d to %d%s) were deleted before it"
            " had read them",
            group,
            *partition,
            loss.records,
            loss.first_offset,
            loss.next_offset - 1,
            _written(loss),
        )

    def forget(self, group: str, db: sqlite3.Connection | None = None) -> None:
        """Forget a deleted group: in the file if ``db`` is given, else in memory."""
        if db is not None:
            db.execute('DELETE FROM losses WHERE "group" = ?', (group,))
            return
        for partition in self._losses.pop(group, {}):
            self._told.pop((group, partition), None)

    def forget_topic(self, name: str) -> None:
        """Forget a deleted topic in memory. Its rows in the file were deleted with it."""
        for group, partitions in list(self._losses.items()):
            for partition in [partition for partition in partitions if partition[0] == name]:
                del partitions[partition]
                self._told.pop((group, partition), None)
            if not partitions:
                del self._losses[group]


def _written(loss: Loss) -> str:
    if loss.first_ms < 0 or loss.last_ms < 0:
        return ""
    return f", written from {_moment(loss.first_ms)} to {_moment(loss.last_ms)}"


def _moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
