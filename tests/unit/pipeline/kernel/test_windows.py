"""Tumbling and hopping windows against a reference that goes through events one by one."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.kernel.windows.calls import Call
from millstream.pipeline.kernel.windows.fixed import TimeWindows
from tests.support.kernel_feed import SECOND, Event, Feed, run
from tests.support.out_of_order import Stream, sorted_rows, streams

SCHEMA = pa.schema([("key", pa.string()), ("x", pa.float64()), ("n", pa.int32())])
COLUMNS = {
    "key": st.sampled_from(["a", "b", None]),
    "x": st.sampled_from([None, 0.1, 0.2, -0.3, 1e16, -1e16, 3.0]),
    "n": st.one_of(st.none(), st.integers(-3, 3)),
}
CALLS = (
    Call("rows", "count"),
    Call("total", "sum", ("x",)),
    Call("least", "min", ("n",)),
    Call("kinds", "count", ("n",), distinct=True),
    Call("opening", "first", ("n",)),
    Call("all", "collect_list", ("n",)),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def plan(size: int, slide: int, *, final: bool = True, retract: bool = False) -> TimeWindows:
    return TimeWindows(1, size * SECOND, slide * SECOND, CALLS, "event time (t)", final, retract, "w")


def windows_of(time: int, size: int, slide: int) -> list[int]:
    """The beginnings of all windows that hold a time, tried one by one."""
    first = (time // slide - size // slide - 1) * slide
    return [start for start in range(first, time + 1, slide) if start <= time < start + size]


def result(key: Any, start: int, size: int, rows: list[tuple[Any, Any, Any]]) -> dict[str, Any]:
    """The aggregates of rows (order, x, n), by the book."""
    in_order = [n for _, _, n in sorted(rows, key=lambda row: row[0])]
    xs = [x for _, x, _ in rows if x is not None]
    ns = [n for n in in_order if n is not None]
    return {
        "key": key,
        "window_start": at(start),
        "window_end": at(start + size),
        "rows": len(rows),
        "total": float(sum(map(Fraction, xs))) if xs else None,
        "least": min(ns, default=None),
        "kinds": len(set(ns)),
        "opening": in_order[0],
        "all": ns,
        "time_basis": "event time (t)",
    }


def reference(
    stream: Stream, size: int, slide: int, lateness: int
) -> tuple[dict[tuple[Any, int], list[Any]], list[tuple[Event, int]]]:
    """The rows of every window, and the late rows with how much too late they are."""
    windows: dict[tuple[Any, int], list[Any]] = {}
    late = []
    for event, watermark, place in stream.judged(lateness):
        starts = windows_of(event.time, size, slide)
        in_time = [start for start in starts if start + size > watermark]
        for start in in_time:
            row = ((event.time, *place), event.row["x"], event.row["n"])
            windows.setdefault((event.row["key"], start), []).append(row)
        if not in_time:
            late.append((event, watermark - max(starts) - size))
    return windows, late


SIZES = st.sampled_from([(5, 5), (10, 5), (10, 3), (7, 1)])


@settings(max_examples=80, deadline=None)
@given(streams(COLUMNS), SIZES, st.sampled_from([0, 4]))
def test_final_windows_are_those_of_the_reference_however_the_input_is_cut(
    stream: Stream, sizes: tuple[int, int], seconds: int
) -> None:
    size, slide, lateness = sizes[0] * SECOND, sizes[1] * SECOND, seconds * SECOND
    given = stream.run(plan(*sizes), SCHEMA, lateness=lateness)
    windows, late = reference(stream, size, slide, lateness)
    closed = [
        result(key, start, size, rows)
        for (key, start), rows in windows.items()
        if start + size <= stream.reached(lateness)
    ]
    assert sorted_rows(given.get("", [])) == sorted_rows(closed)
    assert sorted((row["key"] or "", row["n"] or 0, row["late_ms"]) for row in given.get("late.0", [])) == (
        sorted((event.row["key"] or "", event.row["n"] or 0, by // 1000) for event, by in late)
    )


@settings(max_examples=40, deadline=None)
@given(streams(COLUMNS), SIZES)
def test_the_last_update_of_a_window_is_its_result(stream: Stream, sizes: tuple[int, int]) -> None:
    size, slide = sizes[0] * SECOND, sizes[1] * SECOND
    given = stream.run(plan(*sizes, final=False), SCHEMA)
    last = {(row["key"], row["window_start"]): row for row in given[""]}
    windows, _ = reference(stream, size, slide, 0)
    assert sorted_rows(list(last.values())) == sorted_rows(
        [result(key, start, size, rows) for (key, start), rows in windows.items()]
    )


@settings(max_examples=40, deadline=None)
@given(streams(COLUMNS), SIZES)
def test_what_is_taken_back_is_what_was_given_and_the_result_is_left(
    stream: Stream, sizes: tuple[int, int]
) -> None:
    size, slide = sizes[0] * SECOND, sizes[1] * SECOND
    given = stream.run(plan(*sizes, final=False, retract=True), SCHEMA)
    standing: list[dict[str, Any]] = []
    for row in given[""]:
        change = row.pop("change")
        if change == -1:
            standing.remove(row)
        else:
            standing.append(row)
    windows, _ = reference(stream, size, slide, 0)
    assert sorted_rows(standing) == sorted_rows(
        [result(key, start, size, rows) for (key, start), rows in windows.items()]
    )


def test_a_window_closes_when_the_watermark_reaches_its_end_and_not_before() -> None:
    feed = Feed(plan(10, 10), [SCHEMA], rules=TimeRules(lateness=2 * SECOND))
    row = {"key": "a", "x": 1.0, "n": 1}
    assert feed.batch([Event(3 * SECOND, row)]) == {}
    assert {bucket.status().waits_for for bucket in feed.buckets} == {None, 10 * SECOND}
    assert feed.batch([Event(12 * SECOND - 1, row)]) == {}
    (closed,) = feed.batch([Event(12 * SECOND, row)])[""]
    assert (closed["window_end"], closed["rows"]) == (at(10 * SECOND), 1)


def test_a_row_counts_in_those_of_its_windows_that_are_open() -> None:
    row = {"key": "a", "x": None, "n": 1}
    found = run(
        plan(10, 5),
        [SCHEMA],
        [[Event(4 * SECOND, row), Event(12 * SECOND, row), Event(9 * SECOND, row), Event(40 * SECOND, row)]],
    )
    counts = {(row["window_start"] - EPOCH) / timedelta(seconds=1): row["rows"] for row in found[""]}
    assert counts == {-5: 1, 0: 1, 5: 2, 10: 1}  # the row at 9 no longer counts in 0 to 10


def test_a_late_row_says_by_how_much_and_by_which_watermark() -> None:
    row = {"key": "a", "x": None, "n": 7}
    found = run(plan(10, 10), [SCHEMA], [[Event(25 * SECOND, row), Event(3 * SECOND, row)]])
    assert found["late.0"] == [
        {"key": "a", "x": None, "n": 7, "late_ms": 15_000, "watermark": at(25 * SECOND)}
    ]


def test_an_update_that_changes_nothing_is_not_given_again_where_results_are_taken_back() -> None:
    calls = (Call("most", "max", ("n",)),)
    retracting = TimeWindows(1, 10 * SECOND, 10 * SECOND, calls, "event time (t)", False, True, "w")
    feed = Feed(retracting, [SCHEMA])
    assert len(feed.batch([Event(1, {"key": "a", "x": None, "n": 3})])[""]) == 1
    assert feed.batch([Event(2, {"key": "a", "x": None, "n": 2})]) == {}
    assert [row["change"] for row in feed.batch([Event(3, {"key": "a", "x": None, "n": 5})])[""]] == [-1, 1]


def test_state_of_closed_windows_is_gone() -> None:
    feed = Feed(plan(10, 5, final=False, retract=True), [SCHEMA], buckets=1)
    row = {"key": "a", "x": math.nan, "n": 1}
    for second in range(0, 200, 5):
        feed.batch([Event(second * SECOND, row)])
    assert feed.buckets[0].status().entries <= 4  # two windows, and what was shown of them


def test_a_key_that_is_a_list_is_refused() -> None:
    nested = pa.schema([("key", pa.list_(pa.string())), ("x", pa.float64()), ("n", pa.int32())])
    with pytest.raises(ValueError, match="the key 'key' is"):
        plan(5, 5).channels([nested])
