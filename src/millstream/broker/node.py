"""The node: what every request handler works on.

It holds the catalogue (which topics there should be), the partitions (what is served), the groups, the
transactions, and what they share. A topic is served once all of its logs are open, and no longer from the
moment its deletion is written down; between the two, the catalogue is ahead of what clients see, never
behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.broker.catalogue import Catalogue, Topic
from millstream.broker.codes import KAFKA_STORAGE_ERROR, NOT_CONTROLLER
from millstream.broker.coordinator import GroupCoordinator
from millstream.broker.copy_state import CopyState
from millstream.broker.database import FILE_NAME
from millstream.broker.deadlines import Deadlines
from millstream.broker.followers import Followers
from millstream.broker.metrics import Metrics
from millstream.broker.partition import HostedTopic, Partition
from millstream.broker.promotion import succeed
from millstream.broker.sessions import FetchSessions
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import Clock
from millstream.config import BrokerConfig, TopicConfig, settings_of, with_changes
from millstream.errors import ConfigError, LogError, MillstreamError, NotLeader, RequestRefused
from millstream.log.directory import LogDirectory, MemoryDirectory
from millstream.log.files import Files
from millstream.log.partition import PartitionLog
from millstream.wire.frame import TopicKey

if TYPE_CHECKING:
    from millstream.broker.standby import Standby

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
        self.own_host, self.own_port = "", 0  # the same of this broker, also while another one leads
        self.metrics = Metrics()
        self.deadlines = Deadlines(loop, clock)
        self.sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock)
        self.hosted: dict[TopicKey, HostedTopic] = {}  # each topic under its name and under its id
        self.topics_number = 0  # of the changes in which topics there are and what they are
        self.followers = Followers(self)
        self.standby: Standby | None = None  # what keeps this a copy of another broker, if it is one
        self.fenced_by = ""  # the address of the broker that leads since this one was replaced
        self.trims: dict[Partition, int] = {}  # where a leader's logs begin
        self._not_leading: NotLeader | None = None
        self.is_aside = False  # another broker leads
        self.flushed_by_time: set[Partition] = set()  # those with flush.ms
        self._memory = MemoryDirectory(clock)
        self._directory = LogDirectory.open(config.data, files=files, clock=clock) if config.data else None
        try:
            path = Path(config.data) / FILE_NAME if config.data else None
            self.catalogue = Catalogue(path, defaults=config.topic)
            self.transactions = TransactionCoordinator(self.catalogue, config, clock, self.hosted)
            try:
                self.catalogue_state = self._check_role()
                self._open_logs(self.catalogue_state)
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

    def _check_role(self) -> CopyState:
        """Whether this directory may lead, or follow, as it is told to. Raises DataDirectoryError."""
        state = self.catalogue.copy_state()
        if not self.config.follow:
            state.check_may_lead(self.config.data)
        elif self._directory is None:
            raise ConfigError("a standby keeps a copy on disk: --follow needs --data")
        return state

    def _open_logs(self, state: CopyState) -> None:
        started = time.monotonic()
        if self._directory is not None:
            if not (self.config.follow and self.is_blank):
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
        self._is_copy = bool(self.config.follow or state.is_promoted)
        logs = self._open_on_disk()
        for topic in self.catalogue.topics.values():
            hosted = HostedTopic(topic.name, topic.id)
            for index in range(topic.partitions):
                self._open(hosted, index, topic.config, logs.get((topic.name, index)))
            self._host(hosted)
            count += topic.partitions
        if state.is_promoted and not self.config.follow:
            assert self._directory is not None
            succeed(state, self.catalogue, self._directory, self.partitions())
            self._is_copy = False
        if count:
            seconds = time.monotonic() - started
            _log.info(
                "%d partitions of %d topics opened in %.2f s", count, len(self.catalogue.topics), seconds
            )

    def _open_on_disk(self) -> dict[tuple[str, int], PartitionLog]:
        """The logs of all topics that are on disk."""
        if self._directory is None:
            return {}
        wanted = [
            (topic.name, index, as_copy(topic.config) if self.config.follow else topic.config)
            for topic in self.catalogue.topics.values()
            if self._directory_of(topic.config) is self._directory
            for index in range(topic.partitions)
        ]
        opened = self._directory.open_logs(wanted, is_copy=self._is_copy)
        return {(log.topic, log.partition): log for log in opened}

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing here that another broker's copy would take the place of."""
        return not self.catalogue.topics and len(self.catalogue.lineage) == 1

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
        await self._stop_serving(name)

    async def _stop_serving(self, name: str) -> None:
        hosted = self.hosted.pop(name, None)
        if hosted is None:
            return
        self.topics_number += 1
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
        await self._grow(self.hosted[name], topic)
        return topic

    async def _grow(self, hosted: HostedTopic, topic: Topic) -> None:
        more = HostedTopic(topic.name, topic.id)
        await self._open_many(more, range(len(hosted.partitions), topic.partitions), topic.config)
        for partition in more.partitions:
            partition.topic = hosted
        self.topics_number += 1
        hosted.partitions += more.partitions
        hosted.described.clear()

    async def alter_topic(self, name: str, overrides: Mapping[str, str]) -> Topic:
        """Replace all of a topic's own settings."""
        topic = await self.catalogue.set_topic_overrides(name, overrides)
        self.topics_number += 1
        hosted = self.hosted.get(name)
        if hosted is not None:
            self._set_config(hosted, topic.config)
        return topic

    def _set_config(self, hosted: HostedTopic, config: TopicConfig) -> None:
        for partition in hosted.partitions:
            partition.log.set_config(config)
            self._watch_flushing(partition)

    async def alter_broker(self, overrides: Mapping[str, str]) -> None:
        """Replace all settings of the broker that were changed while it ran."""
        changed = self._with_overrides(overrides)
        await self.catalogue.set_broker_overrides(overrides)
        self.config = changed
        self.coordinator.set_config(changed)
        self.transactions.set_config(changed)

    def _with_overrides(self, overrides: Mapping[str, str]) -> BrokerConfig:
        return with_changes(self._configured, overrides)

    # As a copy of another broker

    def lead_clients_to(self, node_id: int, host: str, port: int) -> None:
        """Whoever asks where to go is told: there. Changes nothing for who comes here all the same."""
        self.config = dataclasses.replace(self.config, node_id=node_id)
        self.host, self.port = host, port
        for topic in self.topics():
            topic.described.clear()

    async def fence(self, by: str) -> None:
        """Another broker leads from now on, also after a restart: take no more writes, and send clients
        there. Done when all that was taken before is written. An empty address takes it back."""
        if by:
            self.not_leading(f"the broker at {by} was promoted in place of this one")
            host, _, port = by.rpartition(":")
            self.lead_clients_to(self.config.node_id, host, int(port))
        await self.catalogue.write_copy_facts(fenced=by or None)
        self.fenced_by = by
        if by:
            self.followers.wake_all()
            return
        self.is_aside = False
        self._not_leading = None
        self.catalogue.refuse(None)
        for partition in self.partitions():
            partition.log.refuse(partition.log.failed)
        self.coordinator = GroupCoordinator(self.catalogue, self.config, self.clock)
        self.lead_clients_to(self._configured.node_id, self.own_host, self.own_port)

    def not_leading(self, reason: str) -> None:
        """Take no writes of clients, now or for topics to come."""
        self.is_aside = True
        self._not_leading = NotLeader(reason)
        self.catalogue.refuse(RequestRefused(NOT_CONTROLLER, reason))
        for partition in self.partitions():
            partition.log.refuse(self._not_leading)
        self.coordinator.close()

    async def serve_catalogue(self) -> None:
        """Serve the topics that the catalogue has: open what is new or has grown, close what is gone."""
        topics = self.catalogue.topics
        for hosted in self.topics():
            known = topics.get(hosted.name)
            if known is None or known.id != hosted.id:
                await self._stop_serving(hosted.name)
        for topic in list(topics.values()):
            found = self.hosted.get(topic.name)
            if found is None:
                found = HostedTopic(topic.name, topic.id)
                await self._open_many(found, range(topic.partitions), topic.config)
                self._host(found)
            elif len(found.partitions) < topic.partitions:
                await self._grow(found, topic)
            else:
                self._set_config(found, as_copy(topic.config))

    def cut_log(self, log: PartitionLog, offset: int) -> tuple[PartitionLog, Path]:
        assert self._directory is not None
        log, aside = self._directory.cut_log(log, offset)
        log.refuse(self._not_leading or NotLeader(""))
        return log, aside

    def restart_log(self, log: PartitionLog, offset: int) -> PartitionLog:
        assert self._directory is not None
        log = self._directory.restart_log(log, offset)
        log.refuse(self._not_leading or NotLeader(""))
        return log

    async def apply_trims(self) -> None:
        """Let logs begin where the leader's do, which is in ``trims``."""
        if not self.trims:
            return
        trims, self.trims = self.trims, {}
        for partition, start in trims.items():
            log = partition.log
            log.log_start_offset = max(log.log_start_offset, min(start, log.end_offset))
        self.checkpoint()
        started = time.monotonic()
        for partition in trims:
            partition.log.apply_retention(self.clock.now_ms())
            started = await _breathe(started)

    def claim(self) -> None:
        """The directory is of the catalogue's cluster from now on."""
        assert self._directory is not None
        self._directory.claim(self.catalogue.cluster_id, self._configured.node_id)

    def keep_catalogue(self, lineage: Sequence[Sequence[Any]]) -> None:
        """Before another broker's takes its place: keep the catalogue of one that led, or was to."""
        if len(lineage) > len(self.catalogue.lineage):
            path = Path(self.data_path) / f"catalogue-before-{lineage[-1][0]}.db"
            if not path.exists():
                self.catalogue.save_as(path)
                _log.warning("the catalogue of this broker, from before another led, is kept in %s", path)

    # Logs

    def _directory_of(self, config: TopicConfig) -> LogDirectory | MemoryDirectory:
        if self._directory is None or config.millstream_storage == "memory":
            return self._memory
        return self._directory

    def _open(
        self, topic: HostedTopic, index: int, config: TopicConfig, log: PartitionLog | None = None
    ) -> None:
        directory = self._directory_of(config)
        if log is not None:
            pass  # it is open
        elif directory is self._directory:
            if self.config.follow:
                config = as_copy(config)
            log = directory.open_log(topic.name, index, config, is_copy=self._is_copy)
        else:
            log = self._memory.open_log(topic.name, index, config)
        log.transactions_gate = self.transactions.gate
        if self._not_leading is not None:
            log.refuse(self._not_leading)
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
        self.topics_number += 1
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


def as_copy(config: TopicConfig) -> TopicConfig:
    """A topic's settings in a copy of it: when a segment is full and what is too old, the leader decides."""
    return dataclasses.replace(
        config,
        retention_ms=-1,
        retention_bytes=-1,
        segment_ms=_NEVER,
        segment_jitter_ms=0,
        flush_ms=_NEVER,
        flush_messages=_NEVER,
    )


async def _breathe(started: float) -> float:
    """Let the loop have its turn if this has worked for a while; the time to count from now on."""
    now = time.monotonic()
    if now - started < _PATIENCE:
        return started
    await asyncio.sleep(0)
    return time.monotonic()
