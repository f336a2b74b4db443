"""Compaction beside the server: which log is cleaned next, by whom, and what came of it.

Every ``log.cleaner.backoff.ms`` the compacted logs are looked at, and cleaned one after the other, the
dirtiest first. The work is done by a child process; a log in memory is cleaned by a thread. What the loop
does is short: it says what is to be cleaned, and puts new segments in the places of old ones.

A log whose compaction fails is **uncleanable** from then on, until the broker is started again or its topic's
settings are changed: that is logged, and a metric. If the disk was full, it is tried again. Nobody else's
compaction is held up by it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.broker.partition import Partition
from millstream.errors import LogError
from millstream.log.compaction import Dirt
from millstream.log.compaction_child import Child
from millstream.log.compaction_pass import DamagedLog, Finished, Group, Job, compact
from millstream.log.failing import PASSING, fail
from millstream.log.partition import PartitionLog

if TYPE_CHECKING:
    from millstream.broker.server import Server

_log = logging.getLogger(__name__)

_BEAT = 0.1  # seconds
T = TypeVar("T")


class Cleaner:
    """One server's compaction; ``start`` and ``stop`` once each, on the loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "millstream-clean")
        self._child: Child | None = None
        self._stopping = False
        self.is_busy = False
        self._unfinished: set[Partition] = set()  # whose keys did not fit into one pass
        self.passes = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End it: what is being written is thrown away, what is being put in place is finished."""
        self._stopping = True
        if self._child is not None:
            self._child.kill()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        clock = self._server.clock
        looked = clock.monotonic()
        while not self._stopping:
            await asyncio.sleep(_BEAT)
            config = self._server.node.config
            if clock.monotonic() - looked < config.log_cleaner_backoff_ms / 1000:
                continue
            try:
                while config.log_cleaner_enable and not self._stopping and await self._clean_one():
                    pass
            except Exception:
                _log.exception("compaction failed in a way nobody expected; it goes on")
            looked = clock.monotonic()

    async def _clean_one(self) -> bool:
        """Clean the dirtiest log that is due; False if none is."""
        now_ms = self._server.clock.now_ms()
        due: list[tuple[float, Partition, Dirt]] = []
        for partition in self._server.node.partitions():
            log = partition.log
            if "compact" not in log.config.cleanup_policy or log.failed is not None:
                continue
            try:
                dirt = self._look(partition, now_ms)
            except (LogError, OSError) as error:
                self._failed(partition, f"can't be looked at: {error}", passing=True)
                continue
            if log.compaction.uncleanable:
                continue
            if log.compaction.is_due(dirt) or (partition in self._unfinished and dirt.dirty_bytes):
                due.append((dirt.ratio, partition, dirt))
            await asyncio.sleep(0)
        due = [entry for entry in due if entry[1].log.failed is None]
        self._unfinished &= {partition for _, partition, _ in due}
        for _, partition, dirt in sorted(due, key=lambda entry: entry[0], reverse=True):
            if await self._clean(partition, dirt):
                return True
        return False

    def _look(self, partition: Partition, now_ms: int) -> Dirt:
        log = partition.log
        log.roll_by_time(now_ms)
        if log.wants_sync:
            if partition.in_memory:
                log.sync()
            else:
                self._server.syncer.sync(partition)  # sealed segments are cleaned once they are synced
        return log.compaction.look(now_ms)

    async def _clean(self, partition: Partition, dirt: Dirt) -> bool:
        """Do a pass; whether it was one."""
        log, clock, config = partition.log, self._server.clock, self._server.node.config
        started = clock.monotonic()
        job = log.compaction.job(dirt, clock.now_ms(), config.log_cleaner_dedupe_buffer_size)
        if job is None:
            return False
        self.is_busy = True
        events: Generator[Group | Finished, None, None] | None = None
        try:
            events = self._events(partition, job)
            while (event := await self._in_thread(next, events, None)) is not None:
                if isinstance(event, Finished):
                    await self._finish(partition, event, clock.monotonic() - started)
                    return True
                if partition.log is not log:
                    break  # it was cut meanwhile, being a copy
                if event.is_changed and not await self._put_in_place(partition, event):
                    break
        except DamagedLog as problem:
            self._failed(partition, f"its records are damaged: {problem}")
        except OSError as error:
            if error.errno == errno.ENOENT and not log.compaction.is_current(job):
                _log.debug("%s: retention took segments while they were compacted; tried again", partition)
            else:
                passing = error.errno in (*PASSING, errno.EAGAIN)
                self._failed(partition, error.strerror or str(error), passing=passing)
        finally:
            self.is_busy = False
        # What it wrote is of no use: segments that were deleted meanwhile, or damage.
        with suppress(OSError):
            await self._in_thread(_end, events, log)
        return False

    def _events(self, partition: Partition, job: Job) -> Generator[Group | Finished, None, None]:
        if partition.in_memory:
            return compact(partition.log.pool.files, job)
        self._child = Child(job, self._server.node.config.log_cleaner_io_max_bytes_per_second)
        return self._child.events()

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._server.loop.run_in_executor(self._thread, function, *arguments)

    async def _put_in_place(self, partition: Partition, group: Group) -> bool:
        """Replace a group of segments; False if they are not there any more."""
        log = partition.log
        swap = log.compaction.begin(group)
        if swap is None:
            return False
        try:
            await self._in_thread(swap.prepare)
        except OSError:
            swap.cancel()
            raise
        if not self._is_hosted(partition):
            return False
        try:
            await self._in_thread(swap.commit)
            if not self._is_hosted(partition):
                return False
            swap.swap()
            await self._in_thread(log.pool.files.sync_directory, log.path)
            if not self._is_hosted(partition):
                return False
            swap.settle()
            await self._in_thread(log.pool.files.sync_directory, log.path)
        except OSError as error:
            if log.failed is None:
                fail(log, f"can't put a compacted segment in its place: {error.strerror or error}")
            raise
        return True

    def _is_hosted(self, partition: Partition) -> bool:
        """Its topic was not deleted meanwhile."""
        return partition.log.failed is None and partition in partition.topic.partitions

    async def _finish(self, partition: Partition, finished: Finished, seconds: float) -> None:
        log = partition.log
        log.compaction.finished(finished, self._server.clock.now_ms())
        await self._in_thread(log.compaction.save)
        if finished.clean_to < log.compaction.look(self._server.clock.now_ms()).dirty_to:
            self._unfinished.add(partition)
        self.passes += 1
        self.bytes_read += finished.bytes_before
        self.bytes_written += finished.bytes_after
        _log.info(
            "%s: compacted up to offset %d in %.2f s: %d keys, %d of %d records and %d of %d bytes are left",
            partition,
            finished.clean_to,
            seconds,
            finished.keys,
            finished.records_after,
            finished.records_before,
            finished.bytes_after,
            finished.bytes_before,
        )
        if finished.keyless:
            _log.warning("%s: %d records without a key were removed", partition, finished.keyless)
        if finished.unreadable:
            _log.warning("%s: %d batches can't be read; they stay", partition, finished.unreadable)

    def _failed(self, partition: Partition, reason: str, *, passing: bool = False) -> None:
        if self._stopping or partition.log.failed is not None:
            return
        self.failures += 1
        if passing:
            _log.error("%s is not compacted: %s; it is tried again", partition, reason)
            return
        partition.log.compaction.give_up(reason)
        _log.error(
            "%s is not compacted any more: %s. `millstream log check` tells more; it is tried again when the "
            "broker is started or the topic's settings are changed",
            partition,
            reason,
        )


def _end(events: Generator[Group | Finished, None, None] | None, log: PartitionLog) -> None:
    if events is not None:
        events.close()
    if log.failed is None:
        log.compaction.discard()
