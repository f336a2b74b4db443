"""Time-outs by a coarse tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.broker.net.deadlines import TICK, Deadlines
from millstream.core.clock import ManualClock


class Loop:
    """The one timer that is asked for."""

    def __init__(self) -> None:
        self.call: Callable[[], None] | None = None

    def call_later(self, seconds: float, call: Callable[[], None]) -> Loop:
        assert self.call is None, "one timer at a time"
        self.call = call
        return self

    def cancel(self) -> None:
        self.call = None

    def fire(self) -> None:
        call, self.call = self.call, None
        assert call is not None
        call()


class Waiting:
    ended = 0

    def timed_out(self) -> None:
        self.ended += 1


def deadlines() -> tuple[Any, Loop, ManualClock]:
    loop, clock = Loop(), ManualClock()
    return Deadlines(loop, clock), loop, clock  # type: ignore[arg-type]


def test_time_is_up_after_the_time_and_not_before() -> None:
    found, loop, clock = deadlines()
    waiting = Waiting()
    found.add(waiting, 0.5)
    clock.advance(0.49)
    loop.fire()
    assert waiting.ended == 0
    clock.advance(0.01 + TICK)
    loop.fire()
    assert waiting.ended == 1
    assert len(found) == 0


def test_nothing_ticks_while_nobody_waits() -> None:
    found, loop, clock = deadlines()
    assert loop.call is None
    tick = found.add(Waiting(), 0.1)
    found.remove(next(iter(found._buckets[tick])), tick)
    clock.advance(1)
    loop.fire()
    assert loop.call is None


def test_what_was_answered_in_time_does_not_time_out() -> None:
    found, loop, clock = deadlines()
    early, late = Waiting(), Waiting()
    tick = found.add(early, 0.1)
    found.add(late, 0.1)
    found.remove(early, tick)
    clock.advance(5)
    loop.fire()
    assert (early.ended, late.ended) == (0, 1)


def test_a_loop_that_was_late_misses_nobody() -> None:
    found, loop, clock = deadlines()
    waiting = [Waiting() for _ in range(100)]
    for number, one in enumerate(waiting):
        found.add(one, number * 0.037)
    clock.advance(2)
    loop.fire()
    assert [one.ended for one in waiting] == [
        1 if n * 0.037 < 2 - 2 * TICK else one.ended for n, one in enumerate(waiting)
    ]
    clock.advance(60)
    loop.fire()
    assert all(one.ended == 1 for one in waiting)


def test_at_the_end_everybody_is_answered() -> None:
    found, _, _ = deadlines()
    waiting = [Waiting() for _ in range(3)]
    for one in waiting:
        found.add(one, 100)
    found.expire_all()
    assert [one.ended for one in waiting] == [1, 1, 1]
