"""When each group has to be looked at next, by name. No I/O.

A group is looked at only when its earliest deadline has come, and a heartbeat only moves its member's
deadline. So neither costs more with more groups or members.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import inf


class Schedule:
    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # entries that are not in _at are stale

    def wake(self, name: str, at: float) -> None:
        """Look at this group at this time, or before."""
        if at < self._at.get(name, inf):
            self._at[name] = at
            heapq.heappush(self._heap, (at, name))

    def forget(self, name: str) -> None:
        self._at.pop(name, None)

    def due(self, now: float) -> Iterator[str]:
        """The groups whose time has come. Each may be scheduled again meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                yield name
