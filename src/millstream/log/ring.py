"""A log as a ring: the newest records in so many bytes, and the oldest go (``millstream.overload=drop``).

The bound is kept at every moment, in the file system too, by whole segments: a ring has at least sixteen of
them, so what is kept is never much less than what may be.

How it works:

- When a segment is full and the next one begun, the oldest are *dropped*: readers find that the log starts
  later. So many go that the new segment has room, and the one after it.
- Their files go with the next sync, which a new segment asks for anyway: in its thread, after what is left
  is on the disk. Else a power loss could take old and new alike, and offsets would be given twice.
- Where that has not happened by the time their room is needed, they go there and then.
- What retention or a trim takes from a ring goes the same way. It does not wait out ``file.delete.delay.ms``:
  those files would be there beside a ring that fills up again.

Nothing is renamed on the way: a process that is killed meanwhile leaves a few old segments, which the next
one drops. Whoever holds a slice of a dropped segment reads on.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING

from millstream.config import TopicConfig, ring_segment_bytes
from millstream.log.files import sync_if_there
from millstream.log.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment
from millstream.log.snapshots import SNAPSHOT_SUFFIX

if TYPE_CHECKING:
    from millstream.log.partition import PartitionLog

_NO_LIMIT = 1 << 62


class Ring:
    """Keeps one log within ``limit`` bytes."""

    __slots__ = (
        "_dropped",
        "_log",
        "_removing",
        "_segment_bytes",
        "dropped_bytes",
        "dropped_records",
        "limit",
    )

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.limit = self._segment_bytes = 0
        self.dropped_records = 0
        self.dropped_bytes = 0
        self._dropped: list[Segment] = []  # whose files are there still
        self._removing = threading.Lock()

    @property
    def is_bounded(self) -> bool:
        """Whether the log is a ring now, and not only was one."""
        return self.limit < _NO_LIMIT

    def set_config(self, config: TopicConfig) -> int:
        """Be of this size, or without end where the log is no ring any more; the size of its segments."""
        if config.millstream_overload == "drop":
            self.limit = config.millstream_overload_bytes
            self._segment_bytes = ring_segment_bytes(self.limit, config.segment_bytes)
        else:
            self.limit, self._segment_bytes = _NO_LIMIT, config.segment_bytes
        return self._segment_bytes

    def make_room(self, size: int) -> None:
        """The last segment was begun and is empty; the next batch has ``size`` bytes. May raise OSError."""
        wanted = max(size, self._segment_bytes)
        if self._dropped:
            self._remove_now()
        there = self._log.segments.size
        if self._drop(there + wanted + self._segment_bytes - self.limit) and there + wanted > self.limit:
            self._remove_now()

    def retire(self, offset: int) -> list[Segment]:
        """Forget the segments that are wholly below ``offset``, but for the last one: retention's, not
        dropped for want of room. They are returned."""
        log = self._log
        count = sum(log.segments.ceiling(n, log.end_offset) <= offset for n in range(len(log.segments) - 1))
        return self._take(count) if count else []

    def shrink(self) -> None:
        """The limit may have been lowered since the last segment was begun."""
        self._drop(self._log.segments.size - self.limit)

    def drop_oldest(self) -> bool:
        """Drop a segment and its files, as memory is short; whether there was one. May raise OSError."""
        there = len(self._log.segments) > 1 and self.limit < _NO_LIMIT
        if there:
            self._drop(1)
            self._remove_now()
        return there

    def _drop(self, surplus: int) -> bool:
        """Forget the oldest segments, until they make up ``surplus`` bytes; never the last one."""
        log = self._log
        count = freed = 0
        for segment in islice(log.segments, len(log.segments) - 1):
            if freed >= surplus:
                break
            freed += segment.size
            count += 1
        if count == 0:
            return False
        before = log.log_start_offset
        self._take(count)
        self.dropped_records += log.log_start_offset - before
        self.dropped_bytes += freed
        return True

    def _take(self, count: int) -> list[Segment]:
        """Take the oldest segments away from readers; their files go with the next sync."""
        log = self._log
        start = log.segments[count].base_offset
        if start > log.log_start_offset and log.start_moves is not None:
            log.start_moves(log, start)
        removed = log.segments.remove_first(count)
        log.log_start_offset = max(log.log_start_offset, start)
        log.epochs.cut_start(start)  # also where a trim had moved the start before
        for segment in removed:
            segment.let_go()
        self._dropped += removed
        return removed

    def dropped(self) -> list[Segment]:
        """The dropped segments whose files are there still: for ``remove``, after a sync."""
        return list(self._dropped)

    def remove(self, dropped: list[Segment]) -> None:
        """Remove files of dropped segments; the names of those after them are on the disk. From any thread.
        May raise OSError."""
        with self._removing:
            log = self._log
            files = log.pool.files
            gone = [segment for segment in dropped if segment in self._dropped]
            if not gone:
                return
            # What the producers of the dropped records did. Retention may take it away meanwhile.
            sync_if_there(files, log.snapshot_path(log.segments[0].base_offset))
            for segment in gone:
                files.remove(segment.path + LOG_SUFFIX)
            if any(segment.aborted.count for segment in gone):
                # Else a crash could bring the log back, but not what tells which of its records were aborted.
                files.sync_directory(log.path)
            for segment in gone:
                for suffix in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX):
                    files.remove(segment.path + suffix)
                self._dropped.remove(segment)

    def _remove_now(self) -> None:
        """No sync has come round to it."""
        self._log.pool.files.sync_directory(self._log.path)
        self.remove(self.dropped())
