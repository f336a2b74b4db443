"""A log as a ring: it keeps the newest records within a byte limit (``millstream.overload=drop``).

The limit holds at every moment, in the file system too. Whole segments are dropped. A ring has at least
sixteen of them, so what it keeps is never much less than what it may keep.

How it works:

- When a segment is full and the next one has begun, the oldest segments are *dropped*: readers find that
  the log starts later. Enough are dropped for the new segment and the one after it.
- Their files are removed with the next sync, which a new segment requests anyway. It removes them in its
  thread once the remaining segments are durable. Otherwise a power loss could destroy both old and new
  segments, and offsets would be assigned twice.
- If that has not happened by the time their space is needed, they are removed immediately.
- Segments that retention or a trim deletes from a ring are removed in the same way. They do not wait for
  ``file.delete.delay.ms``: their files would exist beside a ring that fills up again.

Nothing is renamed on the way. A process that is killed meanwhile leaves a few old segments, which the
next one drops. Readers that hold a slice of a dropped segment continue.
"""

from __future__ import annotations

import threading
from itertools import islice

from millstream.core.topic_config import TopicConfig, ring_segment_bytes
from millstream.log.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment
from millstream.log.snapshots import SNAPSHOT_SUFFIX
from millstream.log.state import LogState
from millstream.log.storage.files import sync_if_there

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

    def __init__(self, log: LogState) -> None:
        self._log = log
        self.limit = self._segment_bytes = 0
        self.dropped_records = 0
        self.dropped_bytes = 0
        self._dropped: list[Segment] = []  # segments whose files still exist
        self._removing = threading.Lock()

    @property
    def is_bounded(self) -> bool:
        """True if the log is a ring now; it may only have been one before."""
        return self.limit < _NO_LIMIT

    def set_config(self, config: TopicConfig) -> int:
        """Take over the limit, or have none if the log is no longer a ring. Returns the size of its
        segments."""
        if config.millstream_overload == "drop":
            self.limit = config.millstream_overload_bytes
            self._segment_bytes = ring_segment_bytes(self.limit, config.segment_bytes)
        else:
            self.limit, self._segment_bytes = _NO_LIMIT, config.segment_bytes
        return self._segment_bytes

    def make_room(self, size: int) -> None:
        """Make room for the new, empty last segment, whose first batch has ``size`` bytes. May raise
        OSError."""
        wanted = max(size, self._segment_bytes)
        if self._dropped:
            self._remove_now()
        there = self._log.segments.size
        if self._drop(there + wanted + self._segment_bytes - self.limit) and there + wanted > self.limit:
            self._remove_now()

    def retire(self, offset: int) -> list[Segment]:
        """Remove the segments entirely below ``offset``, except the last one, and return them. Retention
        deletes them, so they do not count as dropped."""
        log = self._log
        count = sum(log.segments.ceiling(n, log.end_offset) <= offset for n in range(len(log.segments) - 1))
        return self._take(count) if count else []

    def shrink(self) -> None:
        """Apply a limit that may have been lowered since the last segment began."""
        self._drop(self._log.segments.size - self.limit)

    def drop_oldest(self) -> bool:
        """Drop a segment and its files because memory is short. True if there was one. May raise OSError."""
        there = len(self._log.segments) > 1 and self.limit < _NO_LIMIT
        if there:
            self._drop(1)
            self._remove_now()
        return there

    def _drop(self, surplus: int) -> bool:
        """Drop the oldest segments until they add up to ``surplus`` bytes, but never the last one."""
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
        """Hide the oldest segments from readers. The next sync removes their files."""
        log = self._log
        start = log.segments[count].base_offset
        if start > log.log_start_offset:
            log.announce_start(start)
        removed = log.segments.remove_first(count)
        log.log_start_offset = max(log.log_start_offset, start)
        log.epochs.cut_start(start)  # even if a trim has already moved the log start
        for segment in removed:
            segment.let_go()
        self._dropped += removed
        return removed

    def dropped(self) -> list[Segment]:
        """The dropped segments whose files still exist: for ``remove``, after a sync."""
        return list(self._dropped)

    def remove(self, dropped: list[Segment]) -> None:
        """Remove files of dropped segments. The names of the segments after them must be durable. From
        any thread. May raise OSError."""
        with self._removing:
            log = self._log
            files = log.pool.files
            gone = [segment for segment in dropped if segment in self._dropped]
            if not gone:
                return
            # The state of the producers of the dropped records. Retention may remove the file meanwhile.
            sync_if_there(files, log.snapshot_path(log.segments[0].base_offset))
            for segment in gone:
                files.remove(segment.path + LOG_SUFFIX)
            if any(segment.aborted.count for segment in gone):
                # Otherwise a crash could restore the log's file without the index of its aborted
                # transactions.
                files.sync_directory(log.path)
            for segment in gone:
                for suffix in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX):
                    files.remove(segment.path + suffix)
                self._dropped.remove(segment)

    def _remove_now(self) -> None:
        """Remove the files of dropped segments without waiting for a sync."""
        self._log.pool.files.sync_directory(self._log.path)
        self.remove(self.dropped())
