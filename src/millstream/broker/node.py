"""The node: what every request handler works on.

It holds the catalogue (which topics there should be), the partitions (what is served), the groups, the
transactions, and what they share. A topic is served once all of its logs are open, and no longer from the
moment its deletion is written down; between the two, the catalogue is ahead of what clients see, never
behind.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from millstream.broker.catalogue import FILE_NAME, Catalogue, Topic
from millstream.broker.codes import KAFKA_STORAGE_ERROR
from millstream.broker.coordinator import GroupCoordinator
from millstream.broker.deadlines import Deadlines
from millstream.broker.metrics import Metrics
from millstream.broker.partition import HostedTopic, Partition
from millstream.broker.sessions import FetchSessions
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import Clock
from millstream.config import BrokerConfig, TopicConfig, settings_of, with_changes
from millstream.errors import LogError, MillstreamError
from millstream.log.directory import LogDirectory, MemoryDirectory
from millstream.log.files import Files
from millstream.wire.frame import TopicKey

_log = logging.getLogger(__name__)
_NEVER = settings_of(TopicConfig)["flush.ms"].default
_PATIENCE = 0.005  # seconds of work after which the loop gets its turn


class Node:
    """One broker's state: catalogue, partitions, groups, transactions, clock and settings."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        files: Files | None = None,
    ) -> None:
        """Open the data directory and everything in it, through ``files`` where tests bring their own.
        Raises DataDirectoryError."""
        self.config = config
        self._configured = config  # as it was started; what is changed while running stands over it
        self.clock = clock
        self.host = ""  # where clients are told to connect; the server knows once it listens
        self.port = 0
        self.metrics = Metrics()
        self.deadlines = Deadlines(loop, clock)
        self.sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock)
        self.hosted: dict[TopicKey, HostedTopic] = {}  # each topic under its name and under its id
        self.flushed_by_time: set[Partition] = set()  # those with flush.ms
        self._memory = MemoryDirectory(clock)
        self._directory = LogDirectory.open(config.data, files=files, clock=clock) if config.data else None
        try:
            path = Path(config.data) / FILE_NAME if config.data else None
            self.catalogue = Catalogue(path, defaults=config.topic)
            self.transactions = TransactionCoordinator(self.catalogue, config, clock, self.hosted)
            try:
                self._open_logs()
            except BaseException:
                self.catalogue.close()
                raise
        except BaseException:
            if self._directory is not None:
                self._directory.close()
            raise
        self.config = self._with_overrides(self.catalogue.broker_overrides)
        self.transactions.set_config(self.config)
        self.coordinator = GroupCoordinator(self.catalogue, self.config, clock)

    def _open_logs(self) -> None:
        started = time.monotonic()
        if self._directory is not None:
            self._directory.claim(self.catalogue.cluster_id, self.config.node_id)
            known = {
                (topic.name, index)
                for topic in self.catalogue.topics.values()
                for index in range(topic.partitions)
            }
            for stray in self._directory.strays(known):
                aside = self._directory.set_aside(stray)
                _log.warning("%s is a log of no known topic; it was set aside as %s", stray, aside.name)
        count = 0
        for topic in self.catalogue.topics.values():
            hosted = HostedTopic(topic.name, topic.id)
            for index in range(topic.partitions):
                self._open(hosted, index, topic.config)
            self._host(hosted)
            count += topic.partitions
        if count:
            seconds = time.monotonic() - started
            _log.info(
                "%d partitions of %d topics opened in %.2f s", count, len(self.catalogue.topics), seconds
            )

    # Looking up

    def topics(self) -> Iterable[HostedTopic]:
        """Every topic that is served, by name."""
        return [topic for key, topic in self.hosted.items() if isinstance(key, str)]

    def partitions(self) -> Iterable[Partition]:
        return [partition for topic in self.topics() for partition in topic.partitions]

    def partition(self, topic: str, index: int) -> Partition | None:
        hosted = self.hosted.get(topic)
        if hosted is None or not 0 <= index < len(hosted.partitions):
            return None
        return hosted.partitions[index]

    @property
    def data_path(self) -> str:
        """The data directory, for those who ask; empty if all is in memory."""
        return self._directory.path if self._directory is not None else ""

    # Changing

    async def create_topic(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str],
        topic_id: uuid.UUID | None = None,
    ) -> Topic:
        """Create a topic and serve it. Raises RequestRefused, or LogError where the disk refuses."""
        topic = await self.catalogue.create_topic(name, partitions, overrides, topic_id)
        hosted = HostedTopic(name, topic.id)
        await self._open_many(hosted, range(partitions), topic.config)
        self._host(hosted)
        return topic

    async def delete_topic(self, name: str) -> None:
        """Stop serving a topic and delete its logs."""
        await self.catalogue.delete_topic(name)
        hosted = self.hosted.pop(name, None)
        if hosted is None:
            return
        del self.hosted[hosted.id_bytes]
        gone, hosted.partitions = hosted.partitions, []
        for partition in gone:
            self.flushed_by_time.discard(partition)
            partition.close()
        started = time.monotonic()
        for partition in gone:
            while partition.is_staged or partition.is_syncing:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            self._directory_of(partition.log.config).delete_log(name, partition.index)
            started = await _breathe(started)

    async def add_partitions(self, name: str, total: int) -> Topic:
        topic = await self.catalogue.add_partitions(name, total)
        hosted = self.hosted[name]
        have = len(hosted.partitions)
        more = HostedTopic(name, topic.id)
        await self._open_many(more, range(have, total), topic.config)
        for partition in more.partitions:
            partition.topic = hosted
        hosted.partitions += more.partitions
        hosted.described.clear()
        return topic

    async def alter_topic(self, name: str, overrides: Mapping[str, str]) -> Topic:
        """Replace all of a topic's own settings."""
        topic = await self.catalogue.set_topic_overrides(name, overrides)
        hosted = self.hosted.get(name)
        for partition in hosted.partitions if hosted is not None else ():
            partition.log.set_config(topic.config)
            self._watch_flushing(partition)
        return topic

    async def alter_broker(self, overrides: Mapping[str, str]) -> None:
        """Replace all settings of the broker that were changed while it ran."""
        changed = self._with_overrides(overrides)
        await self.catalogue.set_broker_overrides(overrides)
        self.config = changed
        self.coordinator.set_config(changed)
        self.transactions.set_config(changed)

    async def alter_group(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace all of a group's own settings."""
        await self.catalogue.set_group_overrides(name, overrides)
        self.coordinator.alter_group(name)

    def _with_overrides(self, overrides: Mapping[str, str]) -> BrokerConfig:
        return with_changes(self._configured, overrides)

    # Logs

    def _directory_of(self, config: TopicConfig) -> LogDirectory | MemoryDirectory:
        if self._directory is None or config.millstream_storage == "memory":
            return self._memory
        return self._directory

    def _open(self, topic: HostedTopic, index: int, config: TopicConfig) -> None:
        directory = self._directory_of(config)
        log = directory.open_log(topic.name, index, config)
        log.transactions_gate = self.transactions.gate
        partition = Partition(topic, index, log, in_memory=directory is self._memory)
        topic.partitions.append(partition)
        self._watch_flushing(partition)

    async def _open_many(self, topic: HostedTopic, indexes: range, config: TopicConfig) -> None:
        started = time.monotonic()
        try:
            for index in indexes:
                self._open(topic, index, config)
                started = await _breathe(started)
        except LogError:
            raise
        except MillstreamError as error:
            # The topic stays in the catalogue: a restart opens what can't be opened now.
            raise LogError(KAFKA_STORAGE_ERROR, str(error)) from error

    def _host(self, topic: HostedTopic) -> None:
        self.hosted[topic.name] = self.hosted[topic.id_bytes] = topic

    def _watch_flushing(self, partition: Partition) -> None:
        if partition.log.config.flush_ms < _NEVER and not partition.in_memory:
            self.flushed_by_time.add(partition)
        else:
            self.flushed_by_time.discard(partition)

    # Housekeeping, in steps that never keep the loop for long

    async def apply_retention(self) -> None:
        """Delete what is beyond its topic's retention, and forget producers not heard of for long."""
        started = time.monotonic()
        for partition in self.partitions():
            log = partition.log
            if log.failed is None:
                log.expire_producers(self.clock.now_ms(), self.config.producer_id_expiration_ms)
                log.apply_retention(self.clock.now_ms())
            started = await _breathe(started)

    def checkpoint(self) -> None:
        """Write down how far each log is synced, so that less is checked after a crash."""
        if self._directory is not None:
            self._directory.checkpoint()

    def close(self) -> None:
        """Sync and close everything; the next start finds it in order."""
        self.deadlines.close()
        self.catalogue.close()
        self._memory.close()
        if self._directory is not None:
            self._directory.close()


async def _breathe(started: float) -> float:
    """Let the loop have its turn if this has worked for a while; the time to count from now on."""
    now = time.monotonic()
    if now - started < _PATIENCE:
        return started
    await asyncio.sleep(0)
    return time.monotonic()
