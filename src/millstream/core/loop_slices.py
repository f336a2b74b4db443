"""Run long work in slices, so that everything else on the event loop gets a turn in between.

``SlicedWork`` is a function with its own stack (a greenlet), which ``breathe`` can suspend at any depth once
its time is used up. Code that loops over many elements calls ``breathe`` for each, or loops over
``sliced``. The arrays of requests do so by themselves (``Items``), so handlers are plain functions. Outside
of a slice ``breathe`` does nothing; inside, while there is time left, it costs a look at the clock.

A function may find the world changed after each ``breathe``. So it must not loop over shared state that
way, only over its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from types import coroutine
from typing import Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

T = TypeVar("T")

SLICE = 0.002  # seconds of work before others get their turn
MANY = 64  # fewer elements than this are processed in one go

monotonic: Callable[[], float] = time.monotonic
_KEPT = 16


class _Thread(threading.local):
    """One per thread, because a process may have several brokers, each on its own thread."""

    running: SlicedWork | None = None

    def __init__(self) -> None:
        self.idle: list[greenlet] = []  # stacks for the next pieces of work


_thread = _Thread()


class SlicedWork:
    """A function that is run piece by piece."""

    __slots__ = ("_error", "_is_done", "_stack", "_work", "until")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._stack = _thread.idle.pop() if _thread.idle else greenlet(_run_forever)
        self._is_done = False
        self._error: BaseException | None = None
        self.until = 0.0

    def run(self, until: float) -> bool:
        """Work until that time. True if the work is done. Raises what the work raises."""
        around, _thread.running = _thread.running, self
        self.until = until
        self._stack.parent = getcurrent()
        try:
            self._stack.switch(self)
        finally:
            _thread.running = around
        if self._is_done:
            if len(_thread.idle) < _KEPT:
                _thread.idle.append(self._stack)
            if self._error is not None:
                raise self._error
        return self._is_done

    def pause(self) -> None:
        self._stack.parent.switch()

    def stop(self) -> None:
        """End work that is no longer wanted, wherever it is."""
        if not self._is_done:
            self._is_done = True
            self._stack.throw()


def _run_forever(piece: SlicedWork) -> None:
    """The loop of a stack: one piece of work after another. A new stack costs more than most requests."""
    while True:
        try:
            piece._work()
        except GreenletExit:
            raise
        except BaseException as error:
            piece._error = error
        piece._is_done = True
        parent = piece._stack.parent
        del piece
        piece = parent.switch()


def breathe() -> None:
    """Let others have their turn, if this slice has used up its time."""
    running = _thread.running
    if running is not None and monotonic() >= running.until:
        running.pause()


def sliced(items: Iterable[T]) -> Iterator[T]:
    """The items, with a call of ``breathe`` before each."""
    for item in items:
        breathe()
        yield item


class Items(tuple[T, ...]):
    """A long tuple that is iterated over in slices."""

    __slots__ = ()

    def __iter__(self) -> Iterator[T]:
        return sliced(super().__iter__())


@coroutine
def in_slices(steps: Coroutine[Any, Any, T], turn: Callable[[], Awaitable[None]]) -> Generator[Any, Any, T]:
    """Run a coroutine, with each stretch between two waits in slices. ``turn`` waits for the next slice."""
    resume: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731
    while True:
        outcome: list[Any] = []
        piece = SlicedWork(lambda: outcome.append(_step(resume)))  # noqa: B023
        try:
            while not piece.run(monotonic() + SLICE):
                yield from turn().__await__()
        finally:
            piece.stop()
        ended, value = outcome[0]
        if ended:
            return value  # type: ignore[no-any-return]
        try:
            given = yield value
        except BaseException as error:
            resume = _thrower(steps, error)
        else:
            resume = _sender(steps, given)


def _step(resume: Callable[[], Any]) -> tuple[bool, Any]:
    """One stretch: whether it was the last, and its result."""
    try:
        return False, resume()
    except StopIteration as stop:
        return True, stop.value


def _sender(steps: Coroutine[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: steps.send(value)


def _thrower(steps: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)
