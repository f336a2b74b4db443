"""Group commit: the disk syncs for ``acks=all`` and ``flush.messages``, on threads.

At most one sync of a partition is in progress. Everything written in the meantime shares the next one. A few
threads sync several partitions in parallel, because a sync is waiting rather than work.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from millstream.broker.topics.partition import Partition
from millstream.core.clock import Clock
from millstream.core.errors import LogError, LogFailed

_log = logging.getLogger(__name__)


class Syncer:
    """Syncs partitions. ``sync`` is called on the loop, and calls back ``partition.synced`` on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        threads: int,
        measured: Callable[[float, bool], None] = lambda seconds, failed: None,
    ) -> None:
        """``measured`` is called on the loop after each sync: how long it took, and whether it failed."""
        self._loop = loop
        self._clock = clock
        self._measured = measured
        self._limit = threads
        self._threads: list[threading.Thread] = []
        self._wanted: SimpleQueue[Partition | None] = SimpleQueue()
        self._done: deque[tuple[Partition, int, LogError | None, float]] = deque()
        self._told = False  # ``_collect`` is scheduled on the loop and has not run yet
        self._under_way = 0

    def sync(self, partition: Partition) -> None:
        """Sync what the partition has written. If a sync is in progress, another one follows it."""
        if partition.is_syncing:
            partition.sync_again = True
            return
        partition.is_syncing = True
        self._under_way += 1
        if self._under_way > len(self._threads) < self._limit:
            thread = threading.Thread(
                target=self._work, name=f"millstream-sync-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._wanted.put(partition)

    def _work(self) -> None:
        while (partition := self._wanted.get()) is not None:
            started = self._clock.monotonic()
            offset, failure = -1, None
            try:
                offset = partition.log.sync()
            except LogError as error:
                failure = error
            except Exception as error:
                _log.exception("sync of %s failed unexpectedly", partition)
                failure = LogFailed(f"{partition}: sync failed: {error}")
            self._done.append((partition, offset, failure, self._clock.monotonic() - started))
            if not self._told:
                self._told = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed, so nothing waits for this any more
                    return

    def _collect(self) -> None:
        self._told = False
        done = self._done
        while done:
            partition, offset, failure, seconds = done.popleft()
            self._under_way -= 1
            self._measured(seconds, failure is not None)
            partition.is_syncing = False
            again, partition.sync_again = partition.sync_again, False
            partition.synced(offset, failure)
            if failure is None and (again or partition.awaiting_sync):
                self.sync(partition)

    @property
    def is_idle(self) -> bool:
        return self._under_way == 0

    def close(self) -> None:
        """Finish all queued syncs, and end the threads."""
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
