"""Time sharing for long requests: each round of the loop runs one slice, however many requests wait.

``millstream.core.loop_slices`` divides the requests into slices.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class SliceQueue:
    """A queue of callbacks. One is called in each round of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self.count = 0  # turns given

    def ask(self, work: Callable[[], None]) -> None:
        """Queue ``work`` to be called in its turn."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._give)

    def _give(self) -> None:
        work = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._give)
        self.count += 1
        work()

    async def next(self) -> None:
        """Wait for a turn."""
        come: asyncio.Future[None] = self._loop.create_future()
        self.ask(lambda: None if come.done() else come.set_result(None))
        await come
