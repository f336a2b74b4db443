"""Run compaction: choose which log is next, have a child process compact it, and put the result in place.

Every ``log.cleaner.backoff.ms`` the cleaner looks at the compacted logs and compacts them one after the
other, dirtiest first. A child process does the work; a log in memory is compacted by a thread. The loop's
own part is short: it decides what to compact, and puts the new segments in place of the old ones.

If compaction fails, the log is **uncleanable** until the broker is restarted or the topic's settings are
changed. This is logged and shown by a metric. After a passing error, such as a full disk, compaction is
tried again instead. A failing log never holds up the compaction of the others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from millstream.broker.topics.partition import Partition
from millstream.broker.topics.syncing import Syncer
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig
from millstream.core.errors import LogError
from millstream.log.compaction.child import Child
from millstream.log.compaction.compaction import Dirtiness
from millstream.log.compaction.single_pass import DamagedLog, PassInput, PassResult, SegmentGroup, compact
from millstream.log.disk_failures import PASSING, fail
from millstream.log.partition import PartitionLog

_log = logging.getLogger(__name__)

_BEAT = 0.1  # seconds
T = TypeVar("T")


class Cleaner:
    """Compaction of one broker. Call ``start`` and ``stop`` once each, on the loop."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        syncer: Syncer,
    ) -> None:
        """``config`` returns the settings in force, which may be changed at run time."""
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._syncer = syncer
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "millstream-clean")
        self._child: Child | None = None
        self._stopping = False
        self.is_busy = False
        self._unfinished: set[Partition] = set()  # partitions whose keys did not fit into one pass
        self.passes = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop: segments that are being written are thrown away, a swap in progress is finished."""
        self._stopping = True
        if self._child is not None:
            self._child.kill()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        clock = self._clock
        looked = clock.monotonic()
        while not self._stopping:
            await asyncio.sleep(_BEAT)
            config = self._config()
            if clock.monotonic() - looked < config.log_cleaner_backoff_ms / 1000:
                continue
            try:
                while config.log_cleaner_enable and not self._stopping and await self._clean_one():
                    pass
            except Exception:
                _log.exception("compaction failed unexpectedly; it continues")
            looked = clock.monotonic()

    async def _clean_one(self) -> bool:
        """Compact the dirtiest log that is due. False if none is."""
        now_ms = self._clock.now_ms()
        due: list[tuple[float, Partition, Dirtiness]] = []
        for partition in self._partitions():
            log = partition.log
            if "compact" not in log.config.cleanup_policy or log.failed is not None:
                continue
            try:
                dirt = self._look(partition, now_ms)
            except (LogError, OSError) as error:
                self._failed(partition, f"can't be examined: {error}", passing=True)
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

    def _look(self, partition: Partition, now_ms: int) -> Dirtiness:
        log = partition.log
        log.roll_by_time(now_ms)
        if log.wants_sync:
            if partition.in_memory:
                log.sync()
            else:
                self._syncer.sync(partition)  # sealed segments are compacted once they are synced
        return log.compaction.look(now_ms)

    async def _clean(self, partition: Partition, dirt: Dirtiness) -> bool:
        """Do one pass over a log. True if it finished."""
        log, clock, config = partition.log, self._clock, self._config()
        started = clock.monotonic()
        job = log.compaction.job(dirt, clock.now_ms(), config.log_cleaner_dedupe_buffer_size)
        if job is None:
            return False
        self.is_busy = True
        events: Generator[SegmentGroup | PassResult, None, None] | None = None
        try:
            events = self._events(partition, job)
            while (event := await self._in_thread(next, events, None)) is not None:
                if isinstance(event, PassResult):
                    await self._finish(partition, event, clock.monotonic() - started)
                    return True
                if partition.log is not log:
                    break  # it was truncated meanwhile: this broker is a standby
                if event.is_changed and not await self._put_in_place(partition, event):
                    break
        except DamagedLog as problem:
            self._failed(partition, f"its records are damaged: {problem}")
        except OSError as error:
            if error.errno == errno.ENOENT and not log.compaction.is_current(job):
                _log.debug(
                    "%s: retention deleted segments while they were compacted; trying again", partition
                )
            else:
                passing = error.errno in (*PASSING, errno.EAGAIN)
                self._failed(partition, error.strerror or str(error), passing=passing)
        finally:
            self.is_busy = False
        # The pass's output is of no use: segments were deleted meanwhile, or there is damage.
        with suppress(OSError):
            await self._in_thread(_end, events, log)
        return False

    def _events(
        self, partition: Partition, job: PassInput
    ) -> Generator[SegmentGroup | PassResult, None, None]:
        if partition.in_memory:
            return compact(partition.log.pool.files, job)
        self._child = Child(job, self._config().log_cleaner_io_max_bytes_per_second)
        return self._child.events()

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    async def _put_in_place(self, partition: Partition, group: SegmentGroup) -> bool:
        """Replace a group of segments. False if they are not there any more."""
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
        """True unless the topic was deleted meanwhile."""
        return partition.log.failed is None and partition in partition.topic.partitions

    async def _finish(self, partition: Partition, finished: PassResult, seconds: float) -> None:
        log = partition.log
        log.compaction.finished(finished, self._clock.now_ms())
        await self._in_thread(log.compaction.save)
        if finished.clean_to < log.compaction.look(self._clock.now_ms()).dirty_to:
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
            "%s is no longer compacted: %s. `millstream log check` tells more; it is tried again when the "
            "broker is started or the topic's settings are changed",
            partition,
            reason,
        )


def _end(events: Generator[SegmentGroup | PassResult, None, None] | None, log: PartitionLog) -> None:
    if events is not None:
        events.close()
    if log.failed is None:
        log.compaction.discard()
