"""The broker's periodic work: time-outs, ``flush.ms``, retention, the look ahead, idle connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from millstream.broker.outlook.watch import LOOK_EVERY
from millstream.broker.overload.description import DropWatch

if TYPE_CHECKING:
    from millstream.broker.server import Server

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

    def __init__(self, server: Server) -> None:
        self._server = server
        self._drops = DropWatch()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._jobs())]
        node = self._server.node
        if node.archiving is not None:
            self._tasks.append(asyncio.create_task(node.archiving.run(node.partitions)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _beat(self) -> None:
        server = self._server
        beats = 0
        while True:
            await asyncio.sleep(BEAT)
            beats += 1
            try:
                if not server.node.is_aside:
                    server.node.coordinator.tick()
                    server.node.transactions.tick()
                self._flush_by_time()
                server.node.look_for_room()
                server.node.backpressure.tick()
                if beats % round(1 / BEAT) == 0:
                    server.ticks += 1
                    server.buffers.relieve(list(server.connections))
                    server.node.followers.tick(server.clock.monotonic())
                    self._drops.tick(server.node.topics(), server.clock.monotonic())
                    if server.ticks % 10 == 0:
                        self._close_idle()
            except Exception:
                _log.exception("housekeeping failed; it goes on")

    def _flush_by_time(self) -> None:
        server = self._server
        if server.node.flushed_by_time:
            now_ms = server.clock.now_ms()
            for partition in server.node.flushed_by_time:
                if partition.log.failed is None and partition.log.sync_due(now_ms):
                    server.syncer.sync(partition)

    def _close_idle(self) -> None:
        server = self._server
        limit = server.node.config.connections_max_idle_ms
        if limit < 0:
            return
        oldest = server.ticks - max(1, limit // 1000)
        for connection in list(server.connections):
            if connection.last_active < oldest and connection.is_idle:
                _log.debug("connection from %s closed: idle for %d ms", connection.peer, limit)
                connection.close()

    async def _jobs(self) -> None:
        """Run the longer jobs when they are due: retention, checkpoints, the look ahead, the backup."""
        server = self._server
        clock = server.clock
        jobs: list[tuple[Callable[[], float], Callable[[], Awaitable[None]]]] = [
            (self._retention_interval, self._apply_retention),
            (lambda: CHECKPOINT_EVERY, self._checkpoint),
            (lambda: LOOK_EVERY, server.node.look_ahead),
            (lambda: BACKUP_LOOK_EVERY, server.node.back_up_catalogue),
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
                    _log.exception("housekeeping failed; it goes on")
                last[number] = clock.monotonic()

    def _retention_interval(self) -> float:
        node = self._server.node
        interval = node.config.log_retention_check_interval_ms / 1000
        return min(interval, WHILE_FULL) if node.full or node.memory.full else interval

    async def _apply_retention(self) -> None:
        server = self._server
        await server.node.apply_retention()
        for partition in server.node.partitions():
            ring = partition.log.ring
            if ring is not None and ring.dropped() and partition.log.failed is None:
                if partition.in_memory:
                    partition.log.sync()
                else:
                    server.syncer.sync(partition)  # what a ring has dropped is removed with a sync

    async def _checkpoint(self) -> None:
        self._server.node.checkpoint()
