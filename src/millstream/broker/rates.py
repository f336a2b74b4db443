"""How fast something that only grows is growing: sampled by the clock, at no cost to what grows."""

from __future__ import annotations

from math import exp

WINDOW = 300.0  # seconds; what is older counts for little


class Rate:
    """The rate of a counter: an average over about ``WINDOW`` seconds, recent ones counting more.

    A counter that starts anew (a topic was deleted and made again, an offset was set back) is followed from
    where it is then. Before the second sample nothing is known and the rate is 0.
    """

    __slots__ = ("_at", "_count", "_sum", "_weight")

    def __init__(self) -> None:
        self._count: float | None = None
        self._at = 0.0
        self._sum = 0.0
        self._weight = 0.0

    def sample(self, count: float, now: float) -> None:
        """The counter stands at ``count`` at ``now`` on a clock that never goes back."""
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
        # Divided by the weight there is, so that the first minutes are not averaged with a past before them.
        return self._sum / self._weight if self._weight else 0.0
