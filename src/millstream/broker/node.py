"""The node: one broker's state, the object that every request handler works on.

It holds the catalogue (which topics should exist), the partitions (which are served), the groups, the
transactions, and what they share. A topic is served once all of its logs are open, and no longer once its
deletion is written to the catalogue. So the catalogue may be ahead of what clients see, but is never behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.broker.catalogue.backup import BackupClock, back_up_or_complain
from millstream.broker.catalogue.catalogue import Catalogue, Topic
from millstream.broker.catalogue.database import FILE_NAME, Database, is_lost, lost
from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.metrics import Metrics
from millstream.broker.net.deadlines import Deadlines
from millstream.broker.net.quotas import Entity
from millstream.broker.net.throttling import Throttling
from millstream.broker.outlook.watch import Watch
from millstream.broker.overload.backpressure import Backpressure
from millstream.broker.standby.copy_state import CopyState
from millstream.broker.standby.followers import Followers
from millstream.broker.standby.in_sync import InSync
from millstream.broker.standby.leader_link import producer_id_of
from millstream.broker.standby.promotion import succeed
from millstream.broker.topics.fetch_sessions import FetchSessions
from millstream.broker.topics.lookups import Lookups
from millstream.broker.topics.opening import NEVER, as_copy, logs_on_disk, sort_out
from millstream.broker.topics.partition import HostedTopic, Partition
from millstream.broker.topics.preparation import target_of
from millstream.broker.topics.removal import Removal
from millstream.broker.transactions.coordinator import TransactionCoordinator
from millstream.broker.upkeep.archiving import Archiving
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig, TopicConfig, with_changes
from millstream.core.errors import (
    ConfigError,
    LogError,
    LogFailed,
    MillstreamError,
    NotLeader,
    RequestRefused,
)
from millstream.core.kafka_errors import KAFKA_STORAGE_ERROR, NOT_CONTROLLER
from millstream.log.directory import LogDirectory, Wanted
from millstream.log.memory_directory import MemoryDirectory, share_of_memory
from millstream.log.partition import PartitionLog
from millstream.log.storage.files import Files
from millstream.wire.frame import TopicKey

if TYPE_CHECKING:
    from millstream.broker.standby.standby import Standby

_log = logging.getLogger(__name__)
Broker = tuple[int, str, int]  # id, host and port, as clients are told
_PATIENCE = 0.005  # seconds of work after which the loop may run other tasks


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
        """Open the data directory and everything in it. Tests may pass their own ``files``.
        Raises DataDirectoryError."""
        self.config = config
        self.configured = config  # as started; settings changed at run time override it in ``config``
        self.clock = clock
        self.host = ""  # where clients are told to connect; set by the server once it listens
        self.port = 0
        self.own_host, self.own_port = "", 0  # this broker's address, even while another broker leads
        self.own_id = config.node_id
        self._claimed_id = config.node_id
        self._peers: list[Broker] = []  # while another broker leads: its standbys
        self.metrics = Metrics()
        self.deadlines = Deadlines(loop, clock)
        self.lookups = Lookups(loop)
        self.sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock)
        self.hosted: dict[TopicKey, HostedTopic] = {}  # each topic under its name and under its id
        self.topics_number = 0  # incremented whenever a topic is added, removed or altered
        self.followers = Followers(self)
        self.in_sync = InSync(self)
        self.standby: Standby | None = None  # on a standby: what copies the leader
        self.fenced_by = ""  # the address of the broker that replaced this one as leader
        self.trims: dict[Partition, int] = {}  # the leader's log start offsets, still to be applied
        self._not_leading: NotLeader | None = None
        self.is_aside = False  # another broker leads
        self.flushed_by_time: set[Partition] = set()  # the partitions with flush.ms
        self.memory = MemoryDirectory(
            clock,
            limit=config.millstream_memory_bytes or share_of_memory(),
            spill_to=config.data,
        )
        self.archiving: Archiving | None = None
        has_archive = bool(config.millstream_archive_url)
        if has_archive and not config.data:
            raise ConfigError(
                "millstream.archive.url: a broker without a data directory has nothing to archive"
            )
        self._directory: LogDirectory | None = None
        self._backups = BackupClock()
        database = None
        if config.data:
            reserve = config.millstream_disk_reserve_bytes
            self._directory = LogDirectory.open(config.data, files=files, clock=clock, reserve=reserve)
        try:
            if self._directory is not None:
                if is_lost(Path(config.data)):
                    raise lost(Path(config.data))
                database = Database(Path(config.data) / FILE_NAME, self._directory.make_room)
            # A standby has its leader's topics. Whether it has an archive matters only once it leads.
            may_archive = has_archive or bool(config.follow)
            self.catalogue = Catalogue(defaults=config.topic, archive=may_archive, database=database)
            self.transactions = TransactionCoordinator(self.catalogue, config, clock, self.hosted)
            try:
                self.catalogue_state = self._check_role()
                self._go_by(self.catalogue_state.own_id(config.node_id))
                if has_archive:
                    self.archiving = Archiving(config, self.catalogue, clock, loop, self.lookups)
                self._open_logs(self.catalogue_state)
            except BaseException:
                self.catalogue.close()
                raise
        except BaseException:
            if self._directory is not None:
                self._directory.close()
            raise
        self.config = self._with_overrides(self.catalogue.broker_overrides, self.catalogue.cluster_overrides)
        self.transactions.set_config(self.config)
        self.coordinator = GroupCoordinator(self.catalogue, self.config, clock)
        self.backpressure = Backpressure(self.catalogue, self.coordinator, clock)
        self.catalogue.on_commits = self.backpressure.committed
        self.throttling = Throttling()
        self.throttling.set_quotas(self.catalogue.quotas)
        self.on_quotas: Callable[[], None] | None = None  # tells connections to look up their quotas again
        for topic in self.topics():
            self._configure(topic, self.catalogue.topics[topic.name].config)
        self.watch = Watch(self.catalogue, clock)
        if self._directory is not None:
            self._directory.work_aside(self.lookups.aside)
        self.removal = Removal(
            lambda partition: self._directory_of(partition.log.config), self._directory, self._logs_removed
        )

    def _check_role(self) -> CopyState:
        """Check that this directory may lead or follow. Raises DataDirectoryError or ConfigError."""
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
                self._directory.claim(self.catalogue.cluster_id, self._claimed_id)
            sort_out(self._directory, self.catalogue, follows=bool(self.config.follow))
        count = 0
        self._is_copy = bool(self.config.follow or state.is_promoted)
        logs: dict[tuple[str, int], PartitionLog] = {}
        if self._directory is not None:
            follows = bool(self.config.follow)
            logs = logs_on_disk(self._directory, self.catalogue, is_copy=self._is_copy, follows=follows)
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
        if self.archiving is not None and not self.config.follow:
            self.archiving.adopt_lost(self.partitions(), self._bring_back)
        if count:
            seconds = time.monotonic() - started
            _log.info(
                "%d partitions of %d topics opened in %.2f s", count, len(self.catalogue.topics), seconds
            )

    def _bring_back(self, partition: Partition) -> PartitionLog:
        """Open the log of an offline partition whose missing records are in the archive."""
        assert self._directory is not None
        wanted = Wanted(partition.topic.name, partition.index, partition.log.config, partition.topic.id)
        partition.log = self._connected(self._directory.reopen(wanted))
        return partition.log

    @property
    def is_blank(self) -> bool:
        """True if there is nothing here that another broker's copy would replace."""
        return not self.catalogue.topics and len(self.catalogue.lineage) == 1

    # Looking up

    def topics(self) -> Iterable[HostedTopic]:
        """Every topic that is served, each once."""
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
        """The path of the data directory; empty if everything is in memory."""
        return self._directory.path if self._directory is not None else ""

    # Changing

    async def create_topic(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str],
        topic_id: uuid.UUID | None = None,
    ) -> Topic:
        """Create a topic and serve it. Raises RequestRefused, or LogError if the disk fails or is full."""
        self._check_room(self.catalogue.topic_config(overrides))
        await self.removal.done(name)
        topic = await self.catalogue.create_topic(name, partitions, overrides, topic_id)
        hosted = HostedTopic(name, topic.id)
        try:
            await self._open_many(hosted, range(partitions), topic.config)
        except LogError as error:
            await self._take_back(self.catalogue.delete_topic(name), hosted, range(partitions), error)
            raise
        self._host(hosted)
        self._configure(hosted, topic.config)
        return topic

    def _configure(self, hosted: HostedTopic, config: TopicConfig) -> None:
        """Apply the settings for compression, copies and backpressure to a topic's partitions."""
        hosted.keep_as(target_of(config))
        hosted.copies = 1 if hosted.in_memory else config.min_insync_replicas
        for partition in hosted.partitions:
            partition.in_sync = self.in_sync if hosted.copies > 1 else None
        self.backpressure.configure(hosted, config)
        self.in_sync.look()

    async def delete_topic(self, name: str) -> None:
        """Stop serving a topic. Its logs are removed in the background, and its archived segments a little
        later. Neither comes back, even after a crash."""
        await self.catalogue.delete_topic(name, *self._archived(name))
        await self._stop_serving(name)

    async def _logs_removed(self, topics: list[str]) -> None:
        if not self.is_aside:  # else the entry comes from the leader, once the leader's own logs are gone
            await self.catalogue.logs_removed(topics)

    async def _stop_serving(self, name: str) -> None:
        hosted = self.hosted.pop(name, None)
        if hosted is None:
            return
        self.topics_number += 1
        del self.hosted[hosted.id_bytes]
        gone, hosted.partitions = hosted.partitions, []
        hosted.guard(None)
        self.backpressure.forget_topic(name)
        self.removal.begin(name, gone)
        started = time.monotonic()
        for partition in gone:
            self.flushed_by_time.discard(partition)
            partition.close()
            started = await _breathe(started)

    def _archived(self, name: str) -> tuple[str, int]:
        """The archive prefix of a topic that is about to be deleted (or ""), and when it may be removed."""
        hosted = self.hosted.get(name)
        if hosted is None or self.archiving is None:
            return "", 0
        logs = [partition.log for partition in hosted.partitions]
        if not any(log.config.remote_storage_enable or log.archive.is_known for log in logs):
            return "", 0
        return self.archiving.prefix(hosted), self.clock.now_ms() + logs[0].config.file_delete_delay_ms

    async def add_partitions(self, name: str, total: int) -> Topic:
        if (known := self.catalogue.topics.get(name)) is not None:
            self._check_room(known.config)
        topic = await self.catalogue.add_partitions(name, total)
        hosted = self.hosted[name]
        have = len(hosted.partitions)
        more = HostedTopic(name, topic.id)
        try:
            await self._open_many(more, range(have, total), topic.config)
        except LogError as error:
            taking_back = self.catalogue.take_back_partitions(name, have)
            await self._take_back(taking_back, more, range(have, total), error)
            raise
        self._grow(hosted, more, topic.config)
        return topic

    def _grow(self, hosted: HostedTopic, more: HostedTopic, config: TopicConfig) -> None:
        for partition in more.partitions:
            partition.topic = hosted
        self.topics_number += 1
        hosted.partitions += more.partitions
        hosted.described.clear()
        self._configure(hosted, config)

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
            if config.remote_storage_enable and not partition.log.config.remote_storage_enable:
                partition.log.archive.create()
            partition.log.set_config(config)
            self._watch_flushing(partition)
        self._configure(hosted, config)

    async def alter_broker(self, overrides: Mapping[str, str], *, everywhere: bool = False) -> None:
        """Replace all run-time settings: this broker's own, which take precedence, or all brokers'."""
        known = self.catalogue
        if everywhere:
            changed = self._with_overrides(known.broker_overrides, overrides)
        else:
            changed = self._with_overrides(overrides, known.cluster_overrides)
        await known.set_broker_overrides(overrides, everywhere=everywhere)
        self.config = changed
        self.coordinator.set_config(changed)
        self.transactions.set_config(changed)
        if self.archiving is not None:
            self.archiving.config = changed

    async def alter_group(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace all of a group's own settings."""
        await self.catalogue.set_group_overrides(name, overrides)
        self.coordinator.alter_group(name)

    def _with_overrides(self, own: Mapping[str, str], everywhere: Mapping[str, str]) -> BrokerConfig:
        return with_changes(self.configured, {**everywhere, **own})

    # As a copy of another broker

    @property
    def brokers(self) -> list[Broker]:
        """The leader, and the standbys: if the leader is lost, they can tell clients which broker leads."""
        peers = self._peers if self.is_aside else self.followers.brokers
        return [
            (self.config.node_id, self.host, self.port),
            *(peer for peer in peers if peer[0] != self.config.node_id),
        ]

    def _go_by(self, node_id: int) -> None:
        self.own_id = node_id
        self.configured = dataclasses.replace(self.configured, node_id=node_id)
        self.config = dataclasses.replace(self.config, node_id=node_id)

    def go_by(self, node_id: int) -> Sequence[int] | None:
        """Take the id that the leader gave this broker. Returns the configured id and the new one if they
        differ, to be stored; else None."""
        if node_id != self.own_id:
            _log.warning("the leader has node.id %d as well; this broker goes by %d", self.own_id, node_id)
            leader_id = self.config.node_id
            self._go_by(node_id)
            self.config = dataclasses.replace(self.config, node_id=leader_id)
        return None if node_id == self._claimed_id else (self._claimed_id, node_id)

    def lead_clients_to(self, leader: Broker, peers: Iterable[Broker] = ()) -> None:
        """Direct clients to this leader, in responses to Metadata. A client that sends its requests here
        anyway is still refused."""
        node_id, self.host, self.port = leader
        self._peers = list(peers)
        if node_id == self.config.node_id:
            return
        self.config = dataclasses.replace(self.config, node_id=node_id)
        for topic in self.topics():
            topic.described.clear()

    async def new_producer_id(self) -> int:
        """A producer id that was never given out; asked of the leader if needed. Raises RequestRefused."""
        if not self.is_aside:
            return await self.catalogue.new_producer_id()
        return await producer_id_of(self.host, self.port)

    async def fence(self, by: str, node_id: int) -> None:
        """Another broker leads from now on, also after a restart: take no more writes, and direct clients
        to it. Returns when everything accepted before is written. An empty address undoes it."""
        if by:
            self.not_leading(f"the broker at {by} was promoted in place of this one")
            host, _, port = by.rpartition(":")
            self.lead_clients_to((node_id, host, int(port)), [(self.own_id, self.own_host, self.own_port)])
        await self.catalogue.write_copy_facts(fenced=by or None)
        self.fenced_by = by
        if by:
            self.followers.wake_all()
            return
        self.is_aside = False
        self._not_leading = None
        self.catalogue.refuse(None)
        for partition in self.partitions():
            partition.log.refuse(None)
        self.coordinator = GroupCoordinator(self.catalogue, self.config, self.clock)
        self.lead_clients_to((self.own_id, self.own_host, self.own_port))

    def not_leading(self, reason: str) -> None:
        """Refuse clients' writes, to these topics and to topics created later."""
        self.is_aside = True
        self._not_leading = NotLeader(reason)
        self.catalogue.refuse(RequestRefused(NOT_CONTROLLER, reason))
        for partition in self.partitions():
            partition.log.refuse(self._not_leading)
        self.coordinator.close()

    async def serve_catalogue(self) -> None:
        """Serve what is in the catalogue: open new topics and partitions, close deleted topics, apply
        settings."""
        topics = self.catalogue.topics
        for hosted in self.topics():
            known = topics.get(hosted.name)
            if known is None or known.id != hosted.id:
                await self._stop_serving(hosted.name)
                await self.removal.done(hosted.name)
        for topic in list(topics.values()):
            found = self.hosted.get(topic.name)
            if found is None:
                found = HostedTopic(topic.name, topic.id)
                await self._open_many(found, range(topic.partitions), as_copy(topic.config))
                self._host(found)
            elif len(found.partitions) < topic.partitions:
                more = HostedTopic(topic.name, topic.id)
                indexes = range(len(found.partitions), topic.partitions)
                await self._open_many(more, indexes, as_copy(topic.config))
                self._grow(found, more, as_copy(topic.config))
            else:
                self._set_config(found, as_copy(topic.config))

    def cut_log(self, log: PartitionLog, offset: int) -> tuple[PartitionLog, Path]:
        assert self._directory is not None
        return self._directory.cut_log(log, offset)

    def restart_log(self, log: PartitionLog, offset: int) -> PartitionLog:
        assert self._directory is not None
        return self._directory.restart_log(log, offset)

    async def apply_trims(self) -> None:
        """Move log start offsets up to the leader's, which are in ``trims``."""
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
        """Mark the directory as belonging to the catalogue's cluster."""
        assert self._directory is not None
        self._directory.claim(self.catalogue.cluster_id, self._claimed_id)

    # Logs

    def _directory_of(self, config: TopicConfig) -> LogDirectory | MemoryDirectory:
        if self._directory is None or config.millstream_storage == "memory":
            return self.memory
        return self._directory

    def _open(
        self, topic: HostedTopic, index: int, config: TopicConfig, log: PartitionLog | None = None
    ) -> None:
        """Add a partition to a topic: with the log given, which is open, or with a new one."""
        directory = self._directory_of(config)
        if log is not None:
            pass  # it is already open
        elif directory is self._directory:
            if self.config.follow:
                config = as_copy(config)
            log = directory.open_log(
                topic.name, index, config, topic_id=topic.id, is_new=True, is_copy=self._is_copy
            )
        else:
            log = self.memory.open_log(topic.name, index, config)
        partition = Partition(topic, index, self._connected(log), in_memory=directory is self.memory)
        topic.partitions.append(partition)
        self._watch_flushing(partition)

    def _connected(self, log: PartitionLog) -> PartitionLog:
        """Set the callbacks through which a log asks and tells this node."""
        log.transactions_gate = self.transactions.gate
        if self._not_leading is not None:
            log.refuse(self._not_leading)
        log.start_moves = self._start_moves
        return log

    async def _open_many(self, topic: HostedTopic, indexes: range, config: TopicConfig) -> None:
        started = time.monotonic()
        try:
            for index in indexes:
                self._open(topic, index, config)
                if config.remote_storage_enable:
                    topic.partitions[-1].log.archive.create()
                started = await _breathe(started)
        except LogError:
            raise
        except MillstreamError as error:
            raise LogError(KAFKA_STORAGE_ERROR, str(error)) from error

    def _check_room(self, config: TopicConfig) -> None:
        """Raise LogError if the disk is full: no new topic or partition is created then."""
        directory = self._directory_of(config)
        if isinstance(directory, LogDirectory) and directory.full:
            raise LogError(KAFKA_STORAGE_ERROR, directory.full)

    async def _take_back(
        self, change: asyncio.Future[Topic], topic: HostedTopic, indexes: range, error: LogError
    ) -> None:
        """Undo a change to the catalogue whose partitions could not be opened: no client may see them."""
        try:
            taken_back = await change
        except RequestRefused as refused:
            _log.error("%s: %s; what was begun of it can't be taken back: %s", topic.name, error, refused)
            return
        for partition in topic.partitions:
            self.flushed_by_time.discard(partition)
        for index in indexes:
            self._directory_of(taken_back.config).delete_log(topic.name, index)
        if topic.name in self.catalogue.deleted_topics:
            await self.catalogue.logs_removed([topic.name])

    def _host(self, topic: HostedTopic) -> None:
        self.topics_number += 1
        self.hosted[topic.name] = self.hosted[topic.id_bytes] = topic

    def _watch_flushing(self, partition: Partition) -> None:
        if partition.log.config.flush_ms < NEVER and not partition.in_memory:
            self.flushed_by_time.add(partition)
        else:
            self.flushed_by_time.discard(partition)

    async def set_quotas(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Replace all quotas of an entity, and apply them at once."""
        await self.catalogue.set_quotas(entity, quotas)
        self.throttling.set_quotas(self.catalogue.quotas)
        if self.on_quotas is not None:
            self.on_quotas()

    # Housekeeping, in steps that never block the loop for long

    async def apply_retention(self) -> None:
        """Delete records past their topic's retention, and expire idle producers."""
        started = time.monotonic()
        for partition in self.partitions():
            log = partition.log
            if log.failed is None:
                log.expire_producers(self.clock.now_ms(), self.config.producer_id_expiration_ms)
                with contextlib.suppress(LogFailed):  # it has logged why; go on with the other logs
                    log.apply_retention(self.clock.now_ms())
            started = await _breathe(started)

    def _start_moves(self, log: PartitionLog, start: int) -> None:
        if not self.is_aside:  # a standby gets the losses that its leader records
            self.catalogue.losses.start_moves(log, start, self.catalogue.offsets, self.clock)

    async def look_ahead(self) -> None:
        """Update the forecasts: how far back logs reach, when the disk is full, which groups lose records."""
        started = time.monotonic()
        for _ in self.watch.look(self.config, self.topics(), self._free_bytes):
            started = await _breathe(started)

    def _free_bytes(self) -> int | None:
        if self._directory is None:
            return None
        try:
            return shutil.disk_usage(self._directory.path).free
        except OSError:
            return None

    def checkpoint(self) -> None:
        """Write how far each log is synced to a file, so that less has to be checked after a crash."""
        if self._directory is not None:
            try:
                self._directory.checkpoint()
            except OSError as error:
                self._directory.make_room()
                _log.error("can't write the checkpoints: %s; after a crash more is checked", error)

    async def back_up_catalogue(self) -> None:
        """Back up the catalogue if a backup is due."""
        now = self.clock.monotonic()
        state = self.catalogue.topics_version, self.catalogue.changes
        if self._directory is not None and self._backups.is_due(now, *state):
            if await asyncio.to_thread(back_up_or_complain, Path(self._directory.path)):
                self._backups.made(now, *state)
            else:
                self._backups.failed(now)

    @property
    def full(self) -> str:
        """The message for clients while the disk is full; empty while it is not."""
        return self._directory.full if self._directory is not None else ""

    def look_for_room(self) -> None:
        """Check whether the disk or the memory for topics is full, or has room again."""
        self.memory.look()
        if self._directory is not None:
            self._directory.look_for_room()

    def close(self) -> None:
        """Sync and close everything, so that the next start finds it in order."""
        self.deadlines.close()
        self.lookups.close()
        if self.archiving is not None:
            self.archiving.close()
        self.catalogue.close()
        self.memory.close()
        if self._directory is not None:
            self._directory.close()


async def _breathe(started: float) -> float:
    """Let other tasks run if this one has worked for a while. Returns the time to count from next."""
    if time.monotonic() - started < _PATIENCE:
        return started
    await asyncio.sleep(0)
    return time.monotonic()
