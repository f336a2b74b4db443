"""The growth rate of a counter, from samples taken by the clock, at no cost to the code that counts."""

from __future__ import annotations

from math import exp

WINDOW = 300.0  # seconds; older samples count for little


class Rate:
    """The rate of a counter: an average over about ``WINDOW`` seconds, in which recent seconds count more.

    A counter that goes back (a topic was deleted and created again, an offset was reset) is followed from its
    new value. Before the second sample the rate is 0.
    """

    __slots__ = ("_at", "_count", "_sum", "_weight")

    def __init__(self) -> None:
        self._count: float | None = None
        self._at = 0.0
        self._sum = 0.0
        self._weight = 0.0

    def sample(self, count: float, now: float) -> None:
        """Note that the counter is ``count`` at ``now``, on a monotonic clock."""
        before, passed = self._count, now - self._at
        if before is not None and passed <= 0:
            return
        self._count, self._at = count, now
        if before is None or count < before:
            return
        kept = exp(-passed / WINDOW)
        self._sum = self._sum * kept + (count - before) / passed * (1 - kept)
        self._weight = self._weight * kept + (1 - kept)

    @property
    def per_second(self) -> float:
        # Divided by the weight so far, so that the first minutes are not averaged with a time before them.
        return self._sum / self._weight if self._weight else 0.0
