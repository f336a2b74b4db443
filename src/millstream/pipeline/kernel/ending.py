"""How event time goes on once the input has ended: until nothing waits for it any more.

Windows close, waiting rows are let go and timers of event time fire, as if rows of later times had come.
Time is carried no further than it takes, because what comes afterwards (a bounded run may be followed by
another) is late if it is older than that.
"""

from __future__ import annotations

from millstream.errors import MillstreamError
from millstream.pipeline.kernel.clock import NEVER

_MOST_STEPS = 1000
_STRIDE = 10_000_000  # microseconds of event time that a step takes beyond what waits, at first


class Ending:
    """The steps to the end of one query. ``strides=False`` goes from one waiting thing to the next: where a
    flow reads what it writes, its time must not have passed what is still to come back."""

    def __init__(self, *, strides: bool = True) -> None:
        self._reached, self._step, self._steps = NEVER, 1, 0
        self._stride = _STRIDE if strides else 0

    def next(self, waits: int | None) -> int | None:
        """The event time to go on to, given the earliest that something waits for; None at the end."""
        if waits is None:
            return None
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise MillstreamError(
                f"after {_MOST_STEPS} steps in time something still waits: does a timer set itself again and"
                " again? Let time pass instead: with advance(...) in a test, by a run without --available-now"
            )
        # What waits behind another operator may need a little more than its own time.
        self._step = 1 if waits > self._reached else self._step * 2
        self._reached = max(waits + self._stride, self._reached + self._step)
        self._stride *= 2
        return self._reached
