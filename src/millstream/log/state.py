"""The state of one partition's log, which its parts share: offsets, segments, producers, archive.

``PartitionLog`` extends it with appends and reads. Retention, compaction, the ring and the rules for failing
disks work on this class, so none of them depends on the whole log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from millstream.core.clock import Clock
from millstream.core.errors import LogFailed, LogOffline
from millstream.core.topic_config import TopicConfig
from millstream.log.archive.journal import Archive
from millstream.log.epochs import LeaderEpochs
from millstream.log.producers import Producers
from millstream.log.segment.segment import file_name
from millstream.log.segment.segments import Segments
from millstream.log.snapshots import SNAPSHOT_SUFFIX
from millstream.log.storage.files import FilePool
from millstream.log.transactions import PartitionTransactions


class LogState(ABC):
    """The offsets, segments and producers of a log. They belong to the log's thread."""

    config: TopicConfig

    def __init__(self, topic: str, partition: int, *, path: str, pool: FilePool, clock: Clock) -> None:
        self.topic = topic
        self.partition = partition
        self.path = path
        self.pool = pool
        self.clock = clock
        self.failed: LogFailed | None = None  # set once the log takes no more writes, for good
        self.log_start_offset = 0
        self.end_offset = 0
        self.written_offset = 0
        self.synced_offset = 0
        self.leader_epoch = 0
        self.epochs = LeaderEpochs(pool.files, path)
        self.producers = Producers()
        self.transactions = PartitionTransactions()
        self.segments = Segments()
        self.archive = Archive(pool.files, path)
        self.is_swapping = False  # compaction replaces segments; nothing else may remove any meanwhile

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return self.segments.size

    @property
    def local_start_offset(self) -> int:
        """Records from here on are on this broker's disk; older ones are in the archive."""
        return max(self.log_start_offset, self.segments[0].base_offset)

    @property
    def last_stable_offset(self) -> int:
        """The end of what readers of committed records may see: see ``transactions``."""
        unstable = self.transactions.first_unstable
        if unstable is None:
            return self.written_offset
        return unstable if unstable > self.log_start_offset else self.log_start_offset

    @property
    def offline(self) -> LogOffline | None:
        """Why this log serves nobody; None if it does."""
        return self.failed if isinstance(self.failed, LogOffline) else None

    def snapshot_path(self, offset: int) -> str:
        return f"{self.path}/{file_name(offset)}{SNAPSHOT_SUFFIX}"

    @abstractmethod
    def stop_for_good(self, failure: LogFailed) -> None:
        """Take no more writes. ``log.disk_failures`` decides this."""

    @abstractmethod
    def roll(self, size: int = 0) -> None:
        """Seal the last segment and start another one at the end offset. An empty segment stays. ``size``
        is the size of the batch that needs it."""

    @abstractmethod
    def sync_names(self) -> None:
        """Make every file name of this log durable, before any of its files is removed."""

    @abstractmethod
    def announce_start(self, offset: int) -> None:
        """Announce that the log's start moves to ``offset``, while the old records are still readable."""
