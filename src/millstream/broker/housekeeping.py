"""The broker's periodic work: time-outs, ``flush.ms``, retention, the look ahead, idle connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from millstream.broker.horizon.watch import LOOK_EVERY
from millstream.broker.net.connection import ClientConnection
from millstream.broker.net.shared_io import SharedIO
from millstream.broker.node import Node
from millstream.broker.overload.description import DropWatch
from millstream.broker.topics.syncing import Syncer

_log = logging.getLogger(__name__)

BEAT = 0.1  # seconds; the resolution of session time-outs and flush.ms
CHECKPOINT_EVERY = 60.0
BACKUP_LOOK_EVERY = 1.0  # seconds between checks whether a copy of the catalogue is due
WHILE_FULL = 5.0  # seconds between attempts of retention to free space while the disk or memory is full


class Housekeeping:
    """Runs two tasks: a beat of short steps, and the longer jobs, which let the loop run in between.

    With an archive there is a third task: copying there may take any time, and the others don't wait for
    it.
    """

    def __init__(
        self, node: Node, shared: SharedIO, connections: Collection[ClientConnection], syncer: Syncer
    ) -> None:
        self._node = node
        self._shared = shared
        self._connections = connections
        self._syncer = syncer
        self._drops = DropWatch()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._jobs())]
        node = self._node
        if node.archiving is not None:
            self._tasks.append(asyncio.create_task(node.archiving.run(node.topics.partitions)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _beat(self) -> None:
        node, shared = self._node, self._shared
        beats = 0
        while True:
            await asyncio.sleep(BEAT)
            beats += 1
            try:
                if not node.role.is_follower:
                    node.coordinator.tick()
                    node.share_delivery.tick(node.clock.monotonic())
                    node.transactions.tick()
                node.maintenance.flush_by_time(self._syncer)
                node.maintenance.look_for_room()
                node.backpressure.tick()
                if beats % round(1 / BEAT) == 0:
                    shared.ticks += 1
                    shared.buffers.relieve(list(self._connections))
                    node.followers.tick(node.clock.monotonic())
                    self._drops.tick(node.topics, node.clock.monotonic())
                    if shared.ticks % 10 == 0:
                        self._close_idle()
            except Exception:
                _log.exception("housekeeping failed; it continues")

    def _close_idle(self) -> None:
        limit = self._node.config.connections_max_idle_ms
        if limit < 0:
            return
        oldest = self._shared.ticks - max(1, limit // 1000)
        for connection in list(self._connections):
            if connection.last_active < oldest and connection.is_idle:
                _log.debug("connection from %s closed: idle for %d ms", connection.peer, limit)
                connection.close()

    async def _jobs(self) -> None:
        """Run the longer jobs when they are due: retention, checkpoints, the look ahead, the backup."""
        maintenance, clock = self._node.maintenance, self._node.clock
        jobs: list[tuple[Callable[[], float], Callable[[], Awaitable[None]]]] = [
            (self._retention_interval, self._apply_retention),
            (lambda: CHECKPOINT_EVERY, self._checkpoint),
            (lambda: LOOK_EVERY, maintenance.look_ahead),
            (lambda: BACKUP_LOOK_EVERY, maintenance.back_up_catalogue),
        ]
        last = [clock.monotonic()] * len(jobs)
        while True:
            await asyncio.sleep(BEAT)
            for number, (every, job) in enumerate(jobs):
                if clock.monotonic() - last[number] < every():
                    continue
                try:
                    await job()
                except Exception:
                    _log.exception("housekeeping failed; it continues")
                last[number] = clock.monotonic()

    def _retention_interval(self) -> float:
        node = self._node
        interval = node.config.log_retention_check_interval_ms / 1000
        return min(interval, WHILE_FULL) if node.logs.full or node.memory.full else interval

    async def _apply_retention(self) -> None:
        await self._node.maintenance.apply_retention()
        self._node.maintenance.sync_rings(self._syncer)

    async def _checkpoint(self) -> None:
        self._node.maintenance.checkpoint()
