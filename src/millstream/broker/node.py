"""The node: what one broker consists of, put together. Every request handler works on it.

Each part is in the room where it belongs: which topics are served and how they change (``topics``), whether
this broker leads (``standby.role``), what is done to its logs by the clock (``upkeep.maintenance``). The node
opens them in order and passes to each what it needs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.copy_state import CopyState
from millstream.broker.catalogue.database import FILE_NAME, CatalogueDatabase, is_lost, lost
from millstream.broker.catalogue.quotas import Entity
from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.groups.share.delivery import ShareDelivery
from millstream.broker.horizon.watch import HorizonWatch
from millstream.broker.net.counters import BrokerCounters
from millstream.broker.net.deadlines import Deadlines
from millstream.broker.net.throttling import Throttling
from millstream.broker.overload.backpressure import Backpressure
from millstream.broker.standby.catalogue_copy import is_blank
from millstream.broker.standby.followers import Followers, LeaderState
from millstream.broker.standby.in_sync import InSync
from millstream.broker.standby.leader_link import producer_id_of
from millstream.broker.standby.promotion import succeed
from millstream.broker.standby.role import Broker, Role
from millstream.broker.standby.standby import Standby
from millstream.broker.topics.admin import TopicAdmin
from millstream.broker.topics.batch_preparation import BatchPreparer, target_of
from millstream.broker.topics.fetch_sessions import FetchSessions
from millstream.broker.topics.local_topics import LocalTopics
from millstream.broker.topics.logs import TopicLogs
from millstream.broker.topics.opening import logs_on_disk, sort_out
from millstream.broker.topics.partition import LocalTopic
from millstream.broker.topics.segment_threads import SegmentThreads
from millstream.broker.transactions.coordinator import TransactionCoordinator
from millstream.broker.upkeep.archiving import Archiving
from millstream.broker.upkeep.maintenance import Maintenance
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig, with_changes
from millstream.core.errors import ConfigError
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.memory_directory import MemoryDirectory, share_of_memory
from millstream.log.partition import PartitionLog
from millstream.log.storage.files import Files

_log = logging.getLogger(__name__)


class Node:
    """One broker's parts, its clock and its settings. Also the ``TopicPolicies`` of its topics."""

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
        self.config = config  # in force: as started, and overridden by settings changed at run time
        self._as_started = config
        self.clock = clock
        self.counters = BrokerCounters()
        self.deadlines = Deadlines(loop, clock)
        self.segment_threads = SegmentThreads(loop)
        self.preparer = BatchPreparer(loop)
        self.sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock)
        self.throttling = Throttling()
        self.on_quotas: Callable[[], None] | None = None  # tells connections to look up their quotas again
        self.topics = LocalTopics()
        self.hosted = self.topics.by_key
        self.standby: Standby | None = None  # on a standby: what copies the leader
        self.archiving: Archiving | None = None
        has_archive = bool(config.millstream_archive_url)
        if has_archive and not config.data:
            raise ConfigError(
                "millstream.archive.url: a broker without a data directory has nothing to archive"
            )
        self.memory = MemoryDirectory(
            clock,
            limit=config.millstream_memory_bytes or share_of_memory(),
            spill_to=config.data,
        )
        disk: LogDirectory | None = None
        database = None
        if config.data:
            reserve = config.millstream_disk_reserve_bytes
            disk = LogDirectory.open(config.data, files=files, clock=clock, reserve=reserve)
        try:
            if disk is not None:
                if is_lost(Path(config.data)):
                    raise lost(Path(config.data))
                database = CatalogueDatabase(Path(config.data) / FILE_NAME, disk.make_room)
            # A standby has its leader's topics. Whether it has an archive matters only once it leads.
            may_archive = has_archive or bool(config.follow)
            self.catalogue = Catalogue(defaults=config.topic, archive=may_archive, database=database)
            self.transactions = TransactionCoordinator(self.catalogue, config, clock, self.hosted)
            try:
                self.copy_state = self._check_role()
                own_id = self.copy_state.own_id(config.node_id)
                self.role = Role(config.node_id, own_id, self.catalogue, self.topics, self._role_changed)
                self.logs = TopicLogs(disk, self.memory, self._connect_log, follows=bool(config.follow))
                if has_archive:
                    self.archiving = Archiving(config, self.catalogue, clock, loop, self.segment_threads)
                self._open_logs()
            except BaseException:
                self.catalogue.close()
                raise
        except BaseException:
            if disk is not None:
                disk.close()
            raise
        self.config = self._with_overrides(self.catalogue.broker_overrides, self.catalogue.cluster_overrides)
        self.transactions.set_config(self.config)
        self._open_groups()
        if not config.follow:
            self.share_delivery.cut_to_logs()
        self.backpressure = Backpressure(
            self.catalogue, lambda group, topic: self.coordinator.is_reading(group, topic), clock
        )
        self.catalogue.on_commits = self.backpressure.committed
        self.throttling.set_quotas(self.catalogue.quotas)
        leader = LeaderState(self.catalogue, self.topics, clock, self.logs.data_path)
        self.followers = Followers(leader, self.role, lambda: self.in_sync.look())
        self.in_sync = InSync(self.followers, self.catalogue, self.deadlines, clock, lambda: self.config)
        self.topic_admin = TopicAdmin(
            self.catalogue, self.topics, self.logs, self, lambda: not self.role.is_follower
        )
        for topic in self.topics:
            self.configure_topic(topic, self.catalogue.topics[topic.name].config)
        self.watch = HorizonWatch(self.catalogue, clock)
        self.maintenance = Maintenance(
            self.catalogue, self.topics, self.logs, self.watch, clock, lambda: self.config
        )
        if disk is not None:
            disk.work_aside(self.segment_threads.aside)

    # Opening

    def _check_role(self) -> CopyState:
        """Check that this directory may lead or follow. Raises DataDirectoryError or ConfigError."""
        state = self.catalogue.copy_state()
        if not self.config.follow:
            state.check_may_lead(self.config.data)
        elif not self.config.data:
            raise ConfigError("a standby keeps a copy on disk: --follow needs --data")
        return state

    def _open_logs(self) -> None:
        started = time.monotonic()
        disk, follows = self.logs.disk, bool(self.config.follow)
        is_promoted = self.copy_state.is_promoted and not follows
        self.logs.is_copy = follows or is_promoted
        opened: dict[tuple[str, int], PartitionLog] = {}
        if disk is not None:
            if not (follows and is_blank(self.catalogue)):
                disk.claim(self.catalogue.cluster_id, self.role.configured_id)
            sort_out(disk, self.catalogue, follows=follows)
            opened = logs_on_disk(disk, self.catalogue, is_copy=self.logs.is_copy, follows=follows)
        for topic in self.catalogue.topics.values():
            hosted = LocalTopic(topic.name, topic.id)
            for index in range(topic.partitions):
                self.logs.open(hosted, index, topic.config, opened.get((topic.name, index)))
            self.topics.add(hosted)
        if is_promoted:
            assert disk is not None
            succeed(self.copy_state, self.catalogue, disk, self.topics.partitions())
            self.logs.is_copy = False
        if self.archiving is not None and not follows:
            self.archiving.adopt_lost(self.topics.partitions(), self.logs.reopen)
        if count := len(self.topics.partitions()):
            seconds = time.monotonic() - started
            _log.info("%d partitions of %d topics opened in %.2f s", count, len(self.topics), seconds)

    def _connect_log(self, log: PartitionLog) -> None:
        """Set the callbacks through which a log asks and tells this node."""
        log.transactions_gate = self.transactions.gate
        if self.role.refusal is not None:
            log.refuse(self.role.refusal)
        log.start_moves = self._start_moves

    def _start_moves(self, log: PartitionLog, start: int) -> None:
        if not self.role.is_follower:  # a standby gets the losses that its leader records
            self.catalogue.losses.start_moves(log, start, self.catalogue.offsets, self.clock)
            if (topic := self.hosted.get(log.topic)) is not None:
                self.share_delivery.on_log_start(topic.id_bytes, log.partition, start)

    # Leading and following

    @property
    def brokers(self) -> list[Broker]:
        """The leader, and the standbys: if the leader is lost, they can tell clients which broker leads."""
        role = self.role
        peers = role.peers if role.is_follower else self.followers.brokers
        return [
            (role.leader_id, role.host, role.port),
            *(peer for peer in peers if peer[0] != role.leader_id),
        ]

    def follow(self, address: str, host: str, port: int) -> Standby:
        """Become a standby of the broker at this address. The caller starts it."""
        self.role.stop_leading(f"this broker is a standby; the one at {address} leads")
        self.role.leader_address = address
        self.standby = Standby(
            address,
            host,
            port,
            role=self.role,
            catalogue=self.catalogue,
            state=self.copy_state,
            topics=self.topics,
            topic_admin=self.topic_admin,
            logs=self.logs,
            checkpoint=self.maintenance.checkpoint,
            clock=self.clock,
            threads=self.config.log_flush_threads,
        )
        # Until the leader says where clients reach it. They must never take a standby for the leader.
        self.role.lead_clients_to((self.role.own_id, host, port))
        return self.standby

    def _role_changed(self) -> None:
        if self.role.is_follower:
            self.coordinator.close()
            self.share_delivery.close()
        else:
            self._open_groups()

    def _open_groups(self) -> None:
        self.coordinator = GroupCoordinator(self.catalogue, self.config, self.clock)
        self.share_delivery = ShareDelivery(
            self.catalogue.share_states,
            self,
            lambda group: self.coordinator.settings.of(group),
            lambda: self.config.group_share_max_share_sessions,
            self.clock,
        )
        self.coordinator.share.dropped = self.share_delivery.forget_group

    async def fence(self, by: str, node_id: int) -> None:
        """Another broker leads from now on; see ``Role.fence``."""
        await self.role.fence(by, node_id)
        if by:
            self.followers.wake_all()

    async def new_producer_id(self) -> int:
        """A producer id that was never given out; asked of the leader if needed. Raises RequestRefused."""
        if not self.role.is_follower:
            return await self.catalogue.new_producer_id()
        return await producer_id_of(self.role.host, self.role.port)

    # Logs, for share groups

    def log_of(self, topic_id: bytes, index: int) -> PartitionLog | None:
        topic = self.hosted.get(topic_id)
        return topic.partitions[index].log if topic and 0 <= index < len(topic.partitions) else None

    async def offset_at(self, log: PartitionLog, time_ms: int) -> int:
        """The first offset that is not older than this, or the end. Raises LogError."""
        if self.archiving is not None and log.log_start_offset < log.segments[0].base_offset:
            found = await self.archiving.first_at(log, time_ms)
        else:
            found = await self.segment_threads.search(log.search_time(time_ms))
        return log.written_offset if found is None else found[0]

    # Policies of topics

    def configure_topic(self, topic: LocalTopic, config: TopicConfig) -> None:
        """Apply the settings for compression, copies and backpressure to a topic's partitions."""
        topic.keep_as(target_of(config))
        topic.copies = 1 if topic.in_memory else config.min_insync_replicas
        for partition in topic.partitions:
            partition.in_sync = self.in_sync if topic.copies > 1 else None
        self.backpressure.configure(topic, config)
        self.in_sync.look()

    def drop_topic(self, topic: LocalTopic) -> None:
        self.backpressure.forget_topic(topic)
        self.share_delivery.forget_topic(topic.id_bytes)

    def archived_prefix(self, topic: LocalTopic) -> tuple[str, int]:
        return self.archiving.to_remove(topic) if self.archiving is not None else ("", 0)

    # Settings

    @property
    def configured(self) -> BrokerConfig:
        """The settings as started, with the id that this broker goes by."""
        return dataclasses.replace(self._as_started, node_id=self.role.own_id)

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
        self.share_delivery.configure_all()
        self.transactions.set_config(changed)
        if self.archiving is not None:
            self.archiving.config = changed

    async def alter_group(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace all of a group's own settings."""
        await self.catalogue.set_group_overrides(name, overrides)
        self.coordinator.alter_group(name)
        self.share_delivery.configure(name)

    def _with_overrides(self, own: Mapping[str, str], everywhere: Mapping[str, str]) -> BrokerConfig:
        return with_changes(self.configured, {**everywhere, **own})

    async def set_quotas(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Replace all quotas of an entity, and apply them at once."""
        await self.catalogue.set_quotas(entity, quotas)
        self.throttling.set_quotas(self.catalogue.quotas)
        if self.on_quotas is not None:
            self.on_quotas()

    # Closing

    def close(self) -> None:
        """Sync and close everything, so that the next start finds a clean shutdown."""
        self.deadlines.close()
        self.segment_threads.close()
        if self.archiving is not None:
            self.archiving.close()
        self.catalogue.close()
        self.logs.close()
