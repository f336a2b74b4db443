"""Remove the logs of deleted topics in the background.

A deletion counts once it is in the catalogue, so clients need not wait for thousands of directories. The
catalogue remembers deleted topics until their directories are gone. If the process is killed before that,
the next one finishes the work, and no unknown directory is left. A topic of the same name is created only
after the old one's directories are out of its way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from millstream.broker.topics.pacing import yield_if_due
from millstream.broker.topics.partition import Partition
from millstream.broker.topics.threads import Threads
from millstream.core.errors import MillstreamError
from millstream.log.directory import LogDirectory
from millstream.log.memory_directory import MemoryDirectory

_log = logging.getLogger(__name__)

_GRACE = 5.0  # seconds to finish when the broker stops; the next start does what is left


class Removal:
    """The removals of one broker. Lives on the server's loop."""

    def __init__(
        self,
        directory_of: Callable[[Partition], LogDirectory | MemoryDirectory],
        disk: LogDirectory | None,
        removed: Callable[[list[str]], Awaitable[None]],
    ) -> None:
        """``removed`` is called with the topics whose logs are gone."""
        self._removed = removed
        self._directory_of = directory_of
        self._disk = disk
        self._waiting: dict[str, list[Partition]] = {}
        self._under_way: dict[str, list[Partition]] = {}
        self._task: asyncio.Task[None] | None = None
        self._thread = Threads(1, "millstream-remove")

    def begin(self, topic: str, partitions: list[Partition]) -> None:
        """Remove the logs of a topic that is no longer served."""
        self._waiting[topic] = self._waiting.get(topic, []) + partitions
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def done(self, topic: str) -> None:
        """Wait until nothing of a deleted topic with this name is in the way of a new one."""
        while (topic in self._waiting or topic in self._under_way) and self._task is not None:
            await asyncio.wait([self._task])

    async def finish(self) -> None:
        """Wait up to ``_GRACE`` for removals in progress: the broker is stopping."""
        if (task := self._task) is not None:
            await asyncio.wait([task], timeout=_GRACE)
            task.cancel()
        self._thread.close(0)

    async def _run(self) -> None:
        while self._waiting:
            self._under_way, self._waiting = self._waiting, {}
            try:
                await self._remove(self._under_way)
            except (OSError, MillstreamError) as error:
                _log.error(
                    "can't remove the logs of deleted topics: %s; the next start of the broker does it", error
                )
            self._under_way = {}
        self._task = None

    async def _remove(self, topics: dict[str, list[Partition]]) -> None:
        paths: list[str] = []
        for partition in _each(topics.values()):
            while partition.is_staged or partition.is_syncing:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        started = time.monotonic()
        for partition in _each(topics.values()):
            path = self._directory_of(partition).drop_log(partition.topic.name, partition.index)
            if path:
                paths.append(path)
            started = await yield_if_due(started)
        if paths and self._disk is not None:
            await asyncio.wrap_future(self._thread.submit(self._disk.remove, paths))
            self._disk.forget_offsets((p.topic.name, p.index) for p in _each(topics.values()))
        await self._removed(list(topics))


def _each(topics: Iterable[list[Partition]]) -> Iterable[Partition]:
    return (partition for partitions in topics for partition in partitions)
