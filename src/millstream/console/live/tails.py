"""Limits the pages that follow a topic, and gives them their own threads.

Each such page reads new records again and again for as long as it is open. These reads have separate threads,
so that no other page waits for them. At most ``MOST`` pages follow at once; further pages wait in line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
MOST = 16  # pages that follow at once
_THREADS = 4


class TailSlot:
    """The seat of one page. The page waits until there is room, and then keeps the seat until it leaves."""

    def __init__(self, tails: Tails) -> None:
        self._tails = tails
        self.taken = False

    def take(self) -> bool:
        """Take the seat if there is room. True if the page may follow."""
        if not self.taken and self._tails.following < MOST:
            self.taken = True
            self._tails.following += 1
        return self.taken

    def leave(self) -> None:
        if self.taken:
            self.taken = False
            self._tails.following -= 1


class Tails:
    """The following pages of one console. ``following`` counts them. Use it only on the loop's thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tail")
        self.following = 0

    @contextmanager
    def seat(self) -> Iterator[TailSlot]:
        """A seat for as long as a page is open."""
        seat = TailSlot(self)
        try:
            yield seat
        finally:
            seat.leave()

    async def run(self, work: Callable[[], T]) -> T:
        """Read new records on another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
