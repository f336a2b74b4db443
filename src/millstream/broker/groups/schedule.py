"""When each group, or other thing with a key, has to be looked at next. No I/O.

A group is looked at only when its earliest deadline has come, and a heartbeat only moves its member's
deadline. So neither costs more with more groups or members.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import inf
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Any)  # keys have an order


class Schedule(Generic[K]):
    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []  # entries that are not in _at are stale

    def wake(self, key: K, at: float) -> None:
        """Look at this at this time, or before."""
        if at < self._at.get(key, inf):
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def forget(self, key: K) -> None:
        self._at.pop(key, None)

    def due(self, now: float) -> Iterator[K]:
        """The keys whose time has come. Each may be scheduled again meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                yield key
