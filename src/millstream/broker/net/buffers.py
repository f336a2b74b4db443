"""Memory for requests that arrive in pieces, bounded over all connections.

A request that arrives whole in one read never comes here: it is handled in the server's one receive
buffer. Any other request gets its own buffer. Buffers are reused from a small stock, because allocating
fresh memory costs more than the copy that it is for. The buffer grows with the bytes that arrive, so a
client that announces a large request and sends nothing holds next to nothing.

The bound (``queued.max.request.bytes``) counts the buffers that are handed out. A connection that needs a
buffer when there is no room waits its turn, and is not read from. It keeps the bytes that it had already
read, which is why reads are short while any connection waits. Once a second ``relieve`` checks whether
any connection waits:

1. Connections that hold a buffer and send next to nothing are closed, slowest first, until there is room.
2. If none can be closed, and every buffer belongs to a connection that waits for a larger one, no request
   would ever finish. Then one connection may exceed the bound until its request has arrived; only one at
   a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

SMALLEST = 4 * 1024
FIRST = 128 * 1024  # the first buffer of a larger request, whatever size the client announced
GROWTH = 4  # a buffer is at most this many times as large as the bytes that have arrived
SLOW = 64 * 1024  # bytes a second; less counts as next to nothing while others wait
_KEPT = 16 * 1024 * 1024  # bytes of used buffers kept for reuse


def capacity_for(size: int) -> int:
    return max(SMALLEST, 1 << (size - 1).bit_length())


class Holder(Protocol):
    """A connection whose request has arrived only in part."""

    @property
    def held(self) -> int:
        """The size of its buffer; 0 if it has none."""

    @property
    def missing(self) -> int:
        """The bytes of the request that have not arrived."""

    def arrived(self) -> int | None:
        """The bytes of the request that came since the last call; None if the request is newer than that."""

    def memory_returned(self) -> None:
        """Continue: there is room for the buffer that it waits for, or it may now exceed the bound."""

    def drop(self) -> None:
        """Close the connection and give its buffer back."""


class RequestBuffers:
    """Hands out buffers, and queues the connections that wait for one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stock: dict[int, list[bytearray]] = {}
        self._kept = 0
        self._waiting: dict[Holder, int] = {}  # the capacity that each waits for
        self._passing: Holder | None = None  # may exceed the bound
        self.used = 0
        self.is_scarce = False  # at least one connection waits

    def has_room_for(self, size: int, holder: Holder | None = None) -> bool:
        return (
            self.used + capacity_for(size) <= self._limit
            or self.used == (0 if holder is None else holder.held)  # no other connection holds a buffer
            or (holder is not None and holder is self._passing)
        )

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, rounded up to a power of two. Its content is undefined."""
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
        while self._waiting and self._first_has_room():
            self._admit(next(iter(self._waiting)))

    def _first_has_room(self) -> bool:
        return self.used == 0 or self.used + next(iter(self._waiting.values())) <= self._limit

    def wait(self, size: int, holder: Holder) -> None:
        """Notify ``holder`` when there is room for ``size`` bytes."""
        self._waiting[holder] = capacity_for(size)
        self.is_scarce = True

    def _admit(self, holder: Holder) -> None:
        self._waiting.pop(holder, None)
        self.is_scarce = bool(self._waiting)
        holder.memory_returned()

    def forget(self, holder: Holder) -> None:
        """Stop tracking a connection whose request has arrived or never will."""
        self._waiting.pop(holder, None)
        self.is_scarce = bool(self._waiting)
        if self._passing is holder:
            self._passing = None

    def relieve(self, connections: Iterable[Holder]) -> None:
        """Free memory if connections wait for it. Called once a second; see the module's description."""
        if not self.is_scarce and self.used * 2 < self._limit:
            return
        slow: list[tuple[int, int, int, Holder]] = []
        is_moving = False
        for number, holder in enumerate(connections):
            if not holder.held or holder in self._waiting:
                continue
            arrived = holder.arrived()
            if arrived is None or arrived >= SLOW:
                is_moving = True
            else:
                slow.append((arrived, -holder.held, number, holder))
        for *_, holder in sorted(slow):
            if not self.is_scarce:
                return
            holder.drop()
        if self.is_scarce and not is_moving and self._passing is None:
            # Connections with a buffer come first: only they free memory when they are done.
            self._passing = min(self._waiting, key=lambda holder: (not holder.held, holder.missing))
            self._admit(self._passing)
