"""Memory for requests that arrive in pieces, bounded over all connections.

A request that arrives whole in one read never comes here: it is handled in the server's one receive buffer.
One that does not is given a buffer of its own, from a small stock of used ones, since fresh memory costs
more than the copy it is for.

The bound (``queued.max.request.bytes``) counts buffers that are handed out. A connection that needs one for
which there is no room waits its turn and is not read from; what it had read already it keeps, which is why
reads are short while there are such. So that a few clients that never finish a request can't stop all others
for good, now and then the one that waits longest is let past the bound.
"""

from __future__ import annotations

from collections.abc import Callable

SMALLEST = 4 * 1024
LARGEST_FIRST = 4 * 1024 * 1024  # of a request larger than this, no more than this is believed at first
_KEPT = 16 * 1024 * 1024  # bytes of used buffers kept for the next


def capacity_for(size: int) -> int:
    return max(SMALLEST, 1 << (size - 1).bit_length())


class RequestBuffers:
    """Hands out buffers, and turns to wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stock: dict[int, list[bytearray]] = {}
        self._kept = 0
        self._waiting: dict[Callable[[], None], int] = {}  # what to call, and the capacity it waits for
        self.used = 0
        self.is_scarce = False  # somebody waits

    def has_room_for(self, size: int) -> bool:
        return self.used == 0 or self.used + capacity_for(size) <= self._limit

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, a power of two of them; what is in it is undefined."""
        capacity = capacity_for(size)
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
        while self._waiting:
            wanted = next(iter(self._waiting.values()))
            if self.used and self.used + wanted > self._limit:
                break
            self.let_one_pass()

    def wait(self, size: int, resume: Callable[[], None]) -> None:
        """Have ``resume`` called when there is room for ``size`` bytes."""
        self._waiting[resume] = capacity_for(size)
        self.is_scarce = True

    def let_one_pass(self) -> None:
        """The one that waits longest goes on, room or not."""
        if self._waiting:
            resume = next(iter(self._waiting))
            self.forget(resume)
            resume()

    def forget(self, resume: Callable[[], None]) -> None:
        """``resume`` does not wait any more."""
        self._waiting.pop(resume, None)
        self.is_scarce = bool(self._waiting)
