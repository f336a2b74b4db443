"""Pages that follow a topic.

Each reads what came, again and again, as long as it is open: on threads of their own, so that no other page
waits however many follow; and no more than so many at once, the others are in line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
MOST = 16  # open at once
_THREADS = 4


class Seat:
    """One page's. It is in line until there is room, and keeps its place from then on."""

    def __init__(self, tails: Tails) -> None:
        self._tails = tails
        self.taken = False

    def take(self) -> bool:
        """Whether the page may follow."""
        if not self.taken and self._tails.following < MOST:
            self.taken = True
            self._tails.following += 1
        return self.taken

    def leave(self) -> None:
        if self.taken:
            self.taken = False
            self._tails.following -= 1


class Tails:
    """One console's; ``following`` is how many pages do. For the loop's thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tail")
        self.following = 0

    @contextmanager
    def seat(self) -> Iterator[Seat]:
        """For as long as a page is open."""
        seat = Seat(self)
        try:
            yield seat
        finally:
            seat.leave()

    async def run(self, work: Callable[[], T]) -> T:
        """Read what came, on another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
