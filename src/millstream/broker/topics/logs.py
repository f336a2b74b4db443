"""The logs behind the partitions: on disk or in memory, opened as partitions of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable

from millstream.broker.topics.opening import NEVER, as_copy
from millstream.broker.topics.pacing import yield_if_due
from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.core.errors import LogError, MillstreamError
from millstream.core.kafka_errors import KAFKA_STORAGE_ERROR
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory, LogToOpen
from millstream.log.memory_directory import MemoryDirectory
from millstream.log.partition import PartitionLog


class TopicLogs:
    """The directories of one broker, and what its logs have in common."""

    def __init__(
        self,
        disk: LogDirectory | None,
        memory: MemoryDirectory,
        connect: Callable[[PartitionLog], None],
        *,
        follows: bool,
    ) -> None:
        """``connect`` sets the callbacks of a log. ``follows``: they are copies of another broker's."""
        self.disk = disk
        self.memory = memory
        self.is_copy = False  # the logs on disk are another broker's, copied
        self.flushed_by_time: set[Partition] = set()  # the partitions with flush.ms
        self._connect = connect
        self._follows = follows

    @property
    def data_path(self) -> str:
        """The path of the data directory; empty if everything is in memory."""
        return self.disk.path if self.disk is not None else ""

    @property
    def full(self) -> str:
        """The message for clients while the disk is full; empty while it is not."""
        return self.disk.full if self.disk is not None else ""

    def directory_of(self, config: TopicConfig) -> LogDirectory | MemoryDirectory:
        if self.disk is None or config.millstream_storage == "memory":
            return self.memory
        return self.disk

    def open(
        self, topic: LocalTopic, index: int, config: TopicConfig, log: PartitionLog | None = None
    ) -> None:
        """Add a partition to a topic: with the log given, which is open, or with a new one."""
        directory = self.directory_of(config)
        if log is not None:
            pass  # it is already open
        elif isinstance(directory, LogDirectory):
            if self._follows:
                config = as_copy(config)
            log = directory.open_log(
                topic.name, index, config, topic_id=topic.id, is_new=True, is_copy=self.is_copy
            )
        else:
            log = directory.open_log(topic.name, index, config)
        self._connect(log)
        partition = Partition(topic, index, log, in_memory=directory is self.memory)
        topic.partitions.append(partition)
        self._note_flushing(partition)

    async def open_many(self, topic: LocalTopic, indexes: range, config: TopicConfig) -> None:
        """Add new partitions to a topic. Raises LogError."""
        started = time.monotonic()
        try:
            for index in indexes:
                self.open(topic, index, config)
                if config.remote_storage_enable:
                    topic.partitions[-1].log.archive.create()
                started = await yield_if_due(started)
        except LogError:
            raise
        except MillstreamError as error:
            raise LogError(KAFKA_STORAGE_ERROR, str(error)) from error

    def reopen(self, partition: Partition) -> PartitionLog:
        """Open the log of an offline partition whose missing records are in the archive."""
        assert self.disk is not None
        log = self.disk.reopen(
            LogToOpen(partition.topic.name, partition.index, partition.log.config, partition.topic.id)
        )
        self._connect(log)
        partition.log = log
        return log

    def check_room(self, config: TopicConfig) -> None:
        """Raise LogError if the disk is full: no new topic or partition is created then."""
        directory = self.directory_of(config)
        if isinstance(directory, LogDirectory) and directory.full:
            raise LogError(KAFKA_STORAGE_ERROR, directory.full)

    def set_config(self, partition: Partition, config: TopicConfig) -> None:
        if config.remote_storage_enable and not partition.log.config.remote_storage_enable:
            partition.log.archive.create()
        partition.log.set_config(config)
        self._note_flushing(partition)

    def _note_flushing(self, partition: Partition) -> None:
        if partition.log.config.flush_ms < NEVER and not partition.in_memory:
            self.flushed_by_time.add(partition)
        else:
            self.flushed_by_time.discard(partition)

    def forget(self, partition: Partition) -> None:
        """The partition is not served any more."""
        self.flushed_by_time.discard(partition)

    def close(self) -> None:
        self.memory.close()
        if self.disk is not None:
            self.disk.close()
