"""Advances event time after the input has ended, until nothing waits for it any more.

Windows close, waiting rows are released and event-time timers fire, as if rows with later times had come.
Time advances no further than necessary: a bounded run may be followed by another, and its rows are late if
they are older than the time reached.
"""

from __future__ import annotations

from millstream.core.errors import MillstreamError
from millstream.pipeline.kernel.clock import NEVER

_MOST_STEPS = 1000
_STRIDE = 10_000_000  # how far a step goes beyond the waiting time at first, in microseconds of event time


class EndOfInput:
    """The steps to the end of one query. ``strides=False`` goes from one waiting time to the next. It is
    for a flow that reads what it writes: time must not pass records that are still to come back."""

    def __init__(self, *, strides: bool = True) -> None:
        self._reached, self._step, self._steps = NEVER, 1, 0
        self._stride = _STRIDE if strides else 0

    def next(self, waits: int | None) -> int | None:
        """The next event time, given the earliest one that something waits for; None at the end."""
        if waits is None:
            return None
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise MillstreamError(
                f"after {_MOST_STEPS} steps in time, something still waits: perhaps a timer keeps setting"
                " itself again. Let time pass instead: with advance(...) in a test, or by a run without"
                " --available-now"
            )
        # Something that waits behind another operator may need a little more than its own time.
        self._step = 1 if waits > self._reached else self._step * 2
        self._reached = max(waits + self._stride, self._reached + self._step)
        self._stride *= 2
        return self._reached
