"""Work in slices: suspended at any depth, one stack each, and never across threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from millstream.core.loop_slices import Items, SlicedWork, breathe, in_slices, sliced


def test_work_goes_on_where_it_was() -> None:
    seen: list[int] = []

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            for number in Items(range(3)):
                seen.append(number)  # noqa: PERF402  (one at a time is what this is about)

    piece = SlicedWork(lambda: deep(5))
    states = []
    while not piece.run(until=0):
        states.append(list(seen))
    assert states == [[], [0], [0, 1]]
    assert seen == [0, 1, 2]


def test_outside_of_a_slice_and_within_its_time_nothing_is_suspended() -> None:
    assert list(sliced(range(3))) == [0, 1, 2]
    assert SlicedWork(lambda: list(sliced(range(3)))).run(until=float("inf"))


def test_an_error_reaches_whoever_runs_the_work() -> None:
    def fails() -> None:
        breathe()
        raise ValueError("no")

    piece = SlicedWork(fails)
    assert not piece.run(until=0)
    with pytest.raises(ValueError, match="no"):
        piece.run(until=0)
    assert SlicedWork(lambda: None).run(until=0)  # its stack is good for the next


def test_work_that_is_stopped_ends_where_it_is_and_cleans_up() -> None:
    ended = []

    def work() -> None:
        try:
            breathe()
            ended.append("went on")
        finally:
            ended.append("cleaned up")

    piece = SlicedWork(work)
    assert not piece.run(until=0)
    piece.stop()
    assert ended == ["cleaned up"]


def test_a_coroutine_waits_and_gives_way_in_one() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        await asyncio.sleep(0)

    async def steps() -> list[int]:
        found = []
        for number in range(3):
            await asyncio.sleep(0)
            found.append(number)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        return found

    assert asyncio.run(_whole(steps, turn)) == [0, 1, 2]


async def _whole(steps, turn) -> list[int]:  # type: ignore[no-untyped-def]
    return await in_slices(steps(), turn)


def test_slices_of_two_threads_know_nothing_of_each_other() -> None:
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        leave.wait(20)

    other = threading.Thread(target=lambda: SlicedWork(work).run(until=0))
    other.start()
    inside.wait(20)
    breathe()  # while the other thread's slice is over its time
    assert SlicedWork(lambda: None).run(until=0)
    leave.set()
    other.join()
