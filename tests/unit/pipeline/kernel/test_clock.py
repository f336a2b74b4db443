"""How far time has come: watermarks by partition, idle sources, and judgement that no cut can change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.clock import (
    ALWAYS,
    MADE,
    NEVER,
    ObservedTime,
    OperatorClock,
    SourcePartition,
    TimeRules,
)

S = 1_000_000  # a second
A, B = SourcePartition(0, 0, 0), SourcePartition(0, 0, 1)


def clock(*, inputs: int = 1, lateness: int = 0, idle: int | None = None) -> OperatorClock:
    rules = TimeRules(lateness * S, None if idle is None else idle * S)
    return OperatorClock({(number, number): rules for number in range(inputs)}, inputs)


def test_the_watermark_is_the_slowest_partitions_less_the_lateness() -> None:
    one = clock(lateness=5)
    one.observe([ObservedTime(A, 0, 100 * S), ObservedTime(B, 0, 60 * S)], now=0)
    assert one.watermark == 55 * S


def test_the_watermark_never_goes_back() -> None:
    one = clock()
    one.observe([ObservedTime(A, 0, 100 * S)], now=0)
    one.observe([ObservedTime(B, 0, 60 * S)], now=0)  # a partition that was not there before
    assert one.watermark == 100 * S


def test_an_input_that_has_shown_nothing_holds_time() -> None:
    one = clock(inputs=2)
    one.observe([ObservedTime(A, 0, 100 * S)], now=0)
    assert one.watermark == NEVER
    one.observe([ObservedTime(SourcePartition(1, 1, 0), 0, 30 * S)], now=0)
    assert one.watermark == 30 * S


def test_a_source_that_has_shown_nothing_holds_time_where_several_are_one_input() -> None:
    one = OperatorClock({(0, 0): TimeRules(), (0, 1): TimeRules()}, 1)
    one.observe([ObservedTime(A, 0, 100 * S)], now=0)
    assert one.watermark == NEVER
    one.observe([ObservedTime(SourcePartition(0, 1, 0), 0, 30 * S)], now=0)
    assert one.watermark == 30 * S


def test_rows_without_places_are_judged_by_the_watermark_before_the_batch_and_hold_time_back() -> None:
    made = SourcePartition(0, MADE, MADE)
    one = OperatorClock({(0, 0): TimeRules(5 * S), (0, MADE): TimeRules(5 * S)}, 1)
    one.observe([ObservedTime(A, 0, 100 * S), ObservedTime(B, 0, 60 * S)], now=0)
    assert one.watermark == NEVER  # the function has shown nothing yet
    one.observe([ObservedTime(made, -1, 100 * S)], now=0)
    assert one.watermark == 55 * S  # that of the slowest partition, not of the rows
    one.observe(
        [ObservedTime(A, 9, 200 * S), ObservedTime(B, 9, 200 * S), ObservedTime(made, -1, 120 * S)], now=0
    )
    assert one.watermark == 115 * S  # the function gives older times than it takes
    assert one.watermarks(made, np.array([-1, -1]), np.array([NEVER, NEVER])).tolist() == [55 * S, 55 * S]


def test_an_idle_partition_does_not_hold_the_others() -> None:
    one = clock(idle=30)
    one.observe([ObservedTime(A, 0, 100 * S), ObservedTime(B, 0, 60 * S)], now=1000 * S)
    one.observe([ObservedTime(A, 9, 150 * S)], now=1029 * S)
    assert one.watermark == 60 * S
    one.observe([ObservedTime(A, 19, 160 * S)], now=1030 * S)
    assert one.watermark == 160 * S


def test_an_input_that_never_comes_is_waited_for_as_long_as_an_idle_one() -> None:
    one = clock(inputs=2, idle=30)
    one.observe([ObservedTime(A, 0, 100 * S)], now=1000 * S)
    assert one.watermark == NEVER
    one.observe([ObservedTime(A, 1, 120 * S)], now=1030 * S)
    assert one.watermark == 120 * S


def test_where_all_is_quiet_time_goes_on_as_on_the_wall() -> None:
    one = clock(lateness=5, idle=30)
    one.observe([ObservedTime(A, 0, 100 * S)], now=1000 * S)
    one.observe([], now=1020 * S)
    assert one.watermark == 95 * S
    one.observe([], now=1040 * S)
    assert one.watermark == 135 * S


def test_without_idle_after_nothing_moves_without_rows() -> None:
    one = clock()
    one.observe([ObservedTime(A, 0, 100 * S)], now=1000 * S)
    one.observe([], now=9000 * S)
    assert one.watermark == 100 * S
    assert one.may_move(200 * S) == ALWAYS


def test_it_says_when_to_look_again() -> None:
    one = clock(lateness=5, idle=30)
    one.observe([ObservedTime(A, 0, 100 * S)], now=1000 * S)
    assert one.may_move(120 * S) == 1030 * S  # when A falls idle
    one.observe([], now=1030 * S)
    assert one.watermark == 125 * S
    assert one.may_move(140 * S) == 1045 * S  # when the time on the wall has brought it there
    one.observe([], now=1045 * S)
    assert one.watermark == 140 * S


def test_a_wall_clock_that_goes_back_does_not_take_time_back() -> None:
    one = clock(idle=30)
    one.observe([ObservedTime(A, 0, 100 * S)], now=1000 * S)
    one.observe([], now=1040 * S)
    one.observe([], now=500 * S)
    assert (one.now, one.watermark) == (1040 * S, 140 * S)


def test_what_comes_after_time_moved_on_without_it_is_judged_by_all() -> None:
    one = clock(idle=30)
    one.observe([ObservedTime(A, 0, 100 * S)], now=1000 * S)
    one.observe([], now=1040 * S)
    one.observe([ObservedTime(A, 1, 101 * S)], now=1041 * S)
    judged = one.watermarks(A, np.array([1]), np.array([NEVER]))
    assert judged.tolist() == [140 * S]


def test_a_saved_clock_goes_on() -> None:
    one = clock(lateness=5, idle=30)
    one.observe([ObservedTime(A, 0, 100 * S), ObservedTime(B, 0, 90 * S)], now=1000 * S)
    other = clock(lateness=5, idle=30)
    other.load(one.save())
    for each in (one, other):
        each.observe([ObservedTime(A, 7, 110 * S)], now=1031 * S)
    assert other.save() == one.save()
    assert other.watermark == 105 * S


def test_rows_without_an_offset_are_judged_by_what_was_known_before_the_batch() -> None:
    one = OperatorClock({}, 1)  # results of another operator have no source
    place = SourcePartition(0, -1, -1)
    one.observe([ObservedTime(place, -1, 50 * S)], now=0)
    one.observe([ObservedTime(place, -1, 80 * S), ObservedTime(place, -1, 80 * S)], now=0)
    assert one.watermarks(place, np.array([-1]), np.array([NEVER])).tolist() == [50 * S]
    assert one.watermark == 80 * S


@pytest.mark.parametrize("order", [1, -1])
def test_a_partition_read_by_two_tasks_is_judged_in_the_order_of_its_offsets(order: int) -> None:
    one = clock()
    one.observe([ObservedTime(A, 0, 10 * S), ObservedTime(A, 100, 5 * S)][::order], now=0)
    # The second span saw nothing before its first row, but the first span had come to 10 s.
    assert one.watermarks(A, np.array([0, 100]), np.array([NEVER, NEVER])).tolist() == [NEVER, 10 * S]


@settings(max_examples=200, deadline=None)
@given(
    times=st.lists(st.integers(0, 100), min_size=1, max_size=30),
    cuts=st.sets(st.integers(1, 29)),
    lateness=st.integers(0, 20),
)
def test_how_late_a_row_is_does_not_depend_on_the_cuts(
    times: list[int], cuts: set[int], lateness: int
) -> None:
    before = [max(times[:at], default=None) for at in range(len(times))]
    one = clock(lateness=lateness)
    judged: list[int] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(times)), len(times)]
    for start, end in itertools.pairwise(bounds):
        part = times[start:end]
        one.observe([ObservedTime(A, start, max(part) * S)], now=0)
        seen = np.array([max((t * S for t in part[:at]), default=NEVER) for at in range(len(part))])
        judged += one.watermarks(A, np.arange(start, end), seen).tolist()
    assert judged == [NEVER if latest is None else (latest - lateness) * S for latest in before]
