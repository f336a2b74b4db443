"""Periodic maintenance of a broker's logs and catalogue, in steps that never block the loop for long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from millstream.broker.catalogue.backup import BackupClock, back_up_or_complain
from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.horizon.watch import HorizonWatch
from millstream.broker.topics.local_topics import LocalTopics
from millstream.broker.topics.logs import TopicLogs
from millstream.broker.topics.pacing import yield_if_due
from millstream.broker.topics.syncing import Syncer
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig
from millstream.core.errors import LogFailed

_log = logging.getLogger(__name__)


class Maintenance:
    """See the module's description. ``broker.housekeeping`` says when each step is due."""

    def __init__(
        self,
        catalogue: Catalogue,
        topics: LocalTopics,
        logs: TopicLogs,
        watch: HorizonWatch,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        """``config`` returns the settings in force, which may be changed at run time."""
        self._catalogue = catalogue
        self._topics = topics
        self._logs = logs
        self._watch = watch
        self._clock = clock
        self._config = config
        self._backups = BackupClock()

    async def apply_retention(self) -> None:
        """Delete records past their topic's retention, and expire idle producers."""
        started = time.monotonic()
        for partition in self._topics.partitions():
            log = partition.log
            if log.failed is None:
                log.expire_producers(self._clock.now_ms(), self._config().producer_id_expiration_ms)
                with contextlib.suppress(LogFailed):  # it has logged why; continue with the other logs
                    log.apply_retention(self._clock.now_ms())
            started = await yield_if_due(started)

    def sync_rings(self, syncer: Syncer) -> None:
        """Sync the logs whose ring has dropped records: the files are removed with the sync."""
        for partition in self._topics.partitions():
            ring = partition.log.ring
            if ring is not None and ring.dropped() and partition.log.failed is None:
                if partition.in_memory:
                    partition.log.sync()
                else:
                    syncer.sync(partition)

    def flush_by_time(self, syncer: Syncer) -> None:
        """Sync the logs whose ``flush.ms`` is up."""
        if self._logs.flushed_by_time:
            now_ms = self._clock.now_ms()
            for partition in self._logs.flushed_by_time:
                if partition.log.failed is None and partition.log.sync_due(now_ms):
                    syncer.sync(partition)

    async def look_ahead(self) -> None:
        """Update the forecasts: how far back logs reach, when the disk is full, which groups lose records."""
        started = time.monotonic()
        for _ in self._watch.look(self._config(), self._topics, self._free_bytes):
            started = await yield_if_due(started)

    def _free_bytes(self) -> int | None:
        if self._logs.disk is None:
            return None
        try:
            return shutil.disk_usage(self._logs.disk.path).free
        except OSError:
            return None

    def checkpoint(self) -> None:
        """Write how far each log is synced to a file, so that less has to be checked after a crash."""
        disk = self._logs.disk
        if disk is not None:
            try:
                disk.checkpoint()
            except OSError as error:
                disk.make_room()
                _log.error("can't write the checkpoints: %s; after a crash, more has to be checked", error)

    async def back_up_catalogue(self) -> None:
        """Back up the catalogue if a backup is due."""
        now = self._clock.monotonic()
        state = self._catalogue.topics_version, self._catalogue.changes
        if self._logs.disk is not None and self._backups.is_due(now, *state):
            if await asyncio.to_thread(back_up_or_complain, Path(self._logs.disk.path)):
                self._backups.made(now, *state)
            else:
                self._backups.failed(now)

    def look_for_room(self) -> None:
        """Check whether the disk or the memory for topics is full, or has room again."""
        self._logs.memory.look()
        if self._logs.disk is not None:
            self._logs.disk.look_for_room()
