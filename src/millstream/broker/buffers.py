"""Memory for requests that arrive in pieces, bounded over all connections.

A request that arrives whole in one read never comes here: it is handled in the server's one receive buffer.
One that does not is given a buffer of its own, from a small stock of used ones, since fresh memory costs
more than the copy it is for.

The bound (``queued.max.request.bytes``) counts bytes that have a buffer. Above it, a connection that needs
one waits and is not read from. So that a few that never finish can't stop everybody else for good, one
connection at a time may go past the bound, and that right moves on when it makes no progress.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SMALLEST = 4 * 1024
LARGEST_FIRST = 4 * 1024 * 1024  # of a request larger than this, no more than this is believed at first
_KEPT = 16 * 1024 * 1024  # bytes of used buffers kept for the next


class RequestBuffers:
    """Hands out buffers, and turns to wait."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._stock: dict[int, list[bytearray]] = {}
        self._kept = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, a power of two of them; what is in it is undefined."""
        capacity = max(SMALLEST, 1 << (size - 1).bit_length())
        self.used += capacity
        stock = self._stock.get(capacity)
        if stock:
            self._kept -= capacity
            return stock.pop()
        return bytearray(capacity)

    def give_back(self, buffer: bytearray) -> None:
        capacity = len(buffer)
        self.used -= capacity
        if self._kept + capacity <= _KEPT:
            self._kept += capacity
            self._stock.setdefault(capacity, []).append(buffer)
        if self._waiting and self.used <= self.limit:
            waiting, self._waiting = self._waiting, deque()
            for resume in waiting:
                resume()

    @property
    def is_full(self) -> bool:
        return self.used > self.limit

    def wait(self, resume: Callable[[], None]) -> None:
        """Have ``resume`` called when there is room again."""
        self._waiting.append(resume)

    def let_one_pass(self) -> None:
        """Called now and then: while the bound is reached, the one that waits longest goes on regardless."""
        if self._waiting:
            self._waiting.popleft()()

    def forget(self, resume: Callable[[], None]) -> None:
        """``resume`` no longer waits: its connection is gone."""
        if resume in self._waiting:
            self._waiting.remove(resume)
