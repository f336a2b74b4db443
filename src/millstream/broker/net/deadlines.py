"""Time-outs of waiting requests, checked by one coarse tick over buckets.

A timer per request would cost more than the request itself.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from millstream.core.clock import Clock

TICK = 0.010  # seconds


class HasDeadline(Protocol):
    def timed_out(self) -> None: ...


class Deadlines:
    """Calls ``timed_out`` on what is not removed in time, up to one tick late. Ticks only while in use."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._buckets: dict[int, dict[HasDeadline, None]] = {}
        self._next = 0  # the first tick not processed yet
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, timed: HasDeadline, seconds: float) -> int:
        """Start a time-out. The returned number is for ``remove``."""
        now = int(self._clock.monotonic() / TICK)
        tick = now + max(1, int(seconds / TICK + 0.999))
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            if self._timer is None:
                self._next = now
                self._timer = self._loop.call_later(TICK, self._tick)
        bucket[timed] = None
        return tick

    def remove(self, timed: HasDeadline, tick: int) -> None:
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(timed, None)

    def expire_all(self) -> None:
        """Time out everything: the broker is shutting down."""
        buckets, self._buckets = self._buckets, {}
        for bucket in buckets.values():
            for timed in list(bucket):
                timed.timed_out()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = int(self._clock.monotonic() / TICK)
        due: list[HasDeadline] = []
        if now - self._next > len(self._buckets):
            for tick in sorted(tick for tick in self._buckets if tick <= now):
                due += self._buckets.pop(tick)
        else:
            for tick in range(self._next, now + 1):
                due += self._buckets.pop(tick, ())
        self._next = now + 1
        self._timer = self._loop.call_later(TICK, self._tick) if self._buckets else None
        for timed in due:
            timed.timed_out()
