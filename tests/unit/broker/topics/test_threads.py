"""Threads that are not waited for at the end."""

from __future__ import annotations

import threading

import pytest

from millstream.broker.topics.threads import Threads


def test_calls_return_or_raise_through_their_futures() -> None:
    threads = Threads(2, "test")
    assert [threads.submit(pow, 2, n).result(60) for n in range(20)] == [2**n for n in range(20)]
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(60)
    assert threads.close(10)


def test_no_more_threads_than_allowed_and_no_more_than_needed() -> None:
    threads = Threads(3, "test")
    for _ in range(5):
        threads.submit(int).result(60)
    assert len(threads._threads) <= 2, "one that is done takes the next"
    go_on, running = threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        running.release()
        go_on.wait(60)

    held = [threads.submit(hold) for _ in range(10)]
    for _ in range(3):
        assert running.acquire(timeout=60)
    assert not running.acquire(blocking=False)
    assert len(threads._threads) == 3
    go_on.set()
    for future in held:
        future.result(60)
    assert threads.close(10)


def test_at_the_end_what_has_not_begun_is_cancelled_and_what_hangs_is_left() -> None:
    threads = Threads(1, "test")
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(60)

    hanging = threads.submit(hang)
    waiting = threads.submit(int)
    assert begun.wait(60)
    assert not threads.close(0.01)
    assert waiting.cancelled()
    assert not hanging.done()
    with pytest.raises(RuntimeError):
        threads.submit(int)
    go_on.set()
    hanging.result(60)
