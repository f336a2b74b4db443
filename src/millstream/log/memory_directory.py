"""Logs in memory: topics with ``millstream.storage=memory``, and brokers without a directory.

They all share one bound (``millstream.memory.bytes``). When it is reached, the setting
``millstream.overload`` of each topic decides what makes room, in this order:

1. ``buffer``: the oldest records spill to the disk of the data directory, and are read from there.
2. ``drop``: rings drop their oldest segments, the largest ring first, however small they become.
3. Otherwise records are refused with KAFKA_STORAGE_ERROR, as on a full disk, and producers retry. This
   always applies to ``backpressure``, and to ``buffer`` in a broker without a directory. Records are
   accepted again when a tenth of the memory is free.
"""

from __future__ import annotations

import logging
import os
import threading

from millstream.core.clock import Clock
from millstream.core.errors import LogFailed
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.partition import PartitionLog
from millstream.log.segment.segment import LOG_SUFFIX
from millstream.log.storage.memory import NO_LIMIT, MemoryFiles

_log = logging.getLogger(__name__)

_PIECE = 1024 * 1024  # bytes spilled at once, or more if more are needed


def share_of_memory() -> int:
    """The default bound for topics in memory: a quarter of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


class MemoryDirectory:
    """The logs in memory; see the module docstring. ``spill_to`` is a directory on a disk, empty for none."""

    def __init__(self, clock: Clock | None = None, *, limit: int = NO_LIMIT, spill_to: str = "") -> None:
        self._files = MemoryFiles(limit)
        self._files.make_room = self._make_room
        self._spill_to = spill_to
        self._thread = threading.get_ident()  # the thread that owns the logs
        self._directory = LogDirectory.open("/memory", files=self._files, clock=clock)
        self._directory.pool.out_of_room = self._out_of_room
        self.full: LogFailed | None = None  # why records are refused
        self.spilled_bytes = 0  # since the start

    @property
    def logs(self) -> dict[tuple[str, int], PartitionLog]:
        return self._directory.logs

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return self._files.used

    @property
    def limit(self) -> int:
        return self._files.limit

    def open_log(self, topic: str, partition: int, config: TopicConfig) -> PartitionLog:
        log = self._directory.open_log(topic, partition, config, is_new=True)
        if self.full is not None and not self._gives_way(log):
            log.suspend(self.full)
        return log

    def delete_log(self, topic: str, partition: int) -> None:
        self._directory.delete_log(topic, partition)

    def drop_log(self, topic: str, partition: int) -> str:
        """Delete a log at once. Returns an empty path: nothing is left to remove later."""
        self.delete_log(topic, partition)
        return ""

    def spilled(self, log: PartitionLog) -> int:
        """Bytes of a log that are currently on the disk."""
        return sum(file.spilled for file in self._files.files_in(log.path, LOG_SUFFIX))

    def _gives_way(self, log: PartitionLog) -> bool:
        """True if a log can make room when the memory is full."""
        policy = log.config.millstream_overload
        return policy == "drop" or (policy == "buffer" and bool(self._spill_to))

    def _make_room(self, size: int) -> None:
        surplus = self._files.used + size - self._files.limit
        if self._spill_to:
            surplus -= self._spill(max(surplus, _PIECE))
        while surplus > 0 and threading.get_ident() == self._thread:  # compaction must not change logs
            rings = [log for log in list(self.logs.values()) if log.ring is not None]
            before = self._files.used
            if not any(
                log.ring is not None and log.ring.drop_oldest()
                for log in sorted(rings, key=lambda log: log.size_bytes, reverse=True)
            ):
                break
            surplus -= before - self._files.used

    def _spill(self, wanted: int) -> int:
        """Move ``wanted`` bytes to the disk, the oldest segments first. Returns how many were moved."""
        found = 0
        buffering = [log for log in list(self.logs.values()) if log.config.millstream_overload == "buffer"]
        files = [
            file for log in buffering for file in self._files.files_in(log.path, LOG_SUFFIX) if file.data
        ]
        for file in sorted(files, key=lambda file: file.modified_ms):
            while found < wanted and file.data:
                found += file.spill(max(wanted - found, _PIECE), self._spill_to)
            if found >= wanted:
                break
        self.spilled_bytes += found
        return found

    def _out_of_room(self) -> None:
        if self.full is None:
            self.full = LogFailed(
                f"the memory for topics is full: millstream.memory.bytes is {self.limit}. Records are "
                "refused until a tenth of it is free; reads continue. Have topics keep less, choose another "
                "millstream.overload for them, or raise the limit"
            )
            _log.error("%s", self.full)
            for log in self.logs.values():
                if not self._gives_way(log):
                    log.suspend(self.full)

    def look(self) -> None:
        """Accept records again if there is room."""
        if self.full is not None and self.used <= self.limit - self.limit // 10:
            self.full = None
            _log.info("there is room in the memory for topics again: records are accepted")
            for log in self.logs.values():
                log.suspend(None)

    def close(self) -> None:
        """Drop all logs."""
        self._directory.logs.clear()
