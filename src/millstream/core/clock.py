"""Clocks that are passed in, so that time is a parameter.

State machines never ask the operating system what time it is. They are given a ``Clock``, so that a test
can hold time still, move it forward or make it jump back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is recorded, monotonic time for what is waited for."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC. May jump either way; only for timestamps and retention."""

    def monotonic(self) -> float:
        """Seconds that never go back; for time-outs."""


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = float(now_ms)
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        if seconds < 0:
            raise ValueError("time does not pass backwards; use jump() to set the wall clock back")
        self._wall_ms += seconds * 1000
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock, either way, as NTP or a careless administrator does."""
        self._wall_ms += seconds * 1000
