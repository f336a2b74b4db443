"""Streams joined within a time: which pairs there are, what is given alone, when, and how much is kept."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import TopologyError
from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.kernel.joins.streams import JoinWithin, JoinWithinInOrder
from millstream.pipeline.kernel.program import MAIN
from tests.support.kernel_cases import Case, cases
from tests.support.kernel_feed import SECOND, Event, Feed

LEFT = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64())])
RIGHT = pa.schema([pa.field("key", pa.string()), pa.field("n", pa.int64()), pa.field("x", pa.int64())])
BASIS = "event time (at)"


def left(second: float, n: int, k: str | None = "a", **more: Any) -> Event:
    return Event(int(second * SECOND), {"k": k, "n": n}, **more)


def right(second: float, n: int, k: str | None = "a", **more: Any) -> Event:
    return Event(int(second * SECOND), {"key": k, "n": n, "x": n}, input=1, **more)


def within(lower: int, upper: int, how: str = "inner", kind: type[JoinWithin] = JoinWithin) -> JoinWithin:
    return kind(how, 1, lower * SECOND, upper * SECOND, BASIS)


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int | None, int | None]]:
    return [(row["left_n"], row["right_n"]) for row in rows]


def test_a_match_is_given_as_soon_as_both_are_there_with_the_later_time() -> None:
    feed = Feed(within(-5, 10), [LEFT, RIGHT], rules=TimeRules(lateness=60 * SECOND))
    assert feed.batch([left(100, 1), right(150, 2, "b")]) == {}
    (row,) = feed.batch([right(107, 3)])[MAIN]
    assert row.pop("join_time").timestamp() == 107
    assert row == {"k": "a", "left_n": 1, "right_n": 3, "x": 3, "time_basis": BASIS}
    assert pairs(feed.batch([left(112, 4), left(113, 5)])[MAIN]) == [(4, 3)]


def test_in_the_order_of_time_a_match_waits_for_the_watermark() -> None:
    feed = Feed(within(-5, 5, kind=JoinWithinInOrder), [LEFT, RIGHT], rules=TimeRules(lateness=10 * SECOND))
    assert feed.batch([left(100, 1), right(104, 2), right(101, 3)]) == {}
    assert pairs(feed.batch([left(120, 9, "z"), right(120, 9, "y")])[MAIN]) == [(1, 3), (1, 2)]


def test_what_found_no_match_is_given_alone_once_nothing_can_match_it() -> None:
    feed = Feed(within(-5, 10, "outer"), [LEFT, RIGHT], buckets=1)
    feed.batch([left(100, 1), right(100, 2, "b")])
    assert feed.batch([left(105, 3, "c"), right(105, 4, "d")]) == {}  # a left at 105 may match the right
    (alone,) = feed.batch([left(110, 5, "c"), right(110, 6, "d")])[MAIN]
    assert alone.pop("join_time").timestamp() == 100
    assert alone == {"k": "b", "left_n": None, "right_n": 2, "x": 2, "time_basis": BASIS}
    assert feed.buckets[0].status().waits_for == 110 * SECOND + 1
    assert pairs(feed.batch([left(111, 7, "c"), right(111, 8, "d")])[MAIN]) == [(1, None), (None, 4)]


@pytest.mark.parametrize("cuts", [(), (6,), (2, 6)])
@pytest.mark.parametrize("lower", [2, -3])
def test_what_is_given_alone_in_the_order_of_time_is_in_one_order_however_it_was_cut(
    cuts: tuple[int, ...], lower: int
) -> None:
    # If both bounds are on one side of zero, the rows of one side expire before their own time.
    late_to_expire, early_to_expire = (left, right) if lower > 0 else (right, left)
    fed = [late_to_expire(0, n) for n in range(4)]
    fed += [left(3.5, 5, "b"), right(3.5, 6, "b"), early_to_expire(4, 4), left(50, 7, "b"), right(50, 8, "b")]
    feed = Feed(within(lower, lower + 1, "outer", JoinWithinInOrder), [LEFT, RIGHT])
    for start, end in itertools.pairwise((0, *cuts, len(fed))):
        feed.batch(fed[start:end])
    given = [row for row in feed.given[MAIN] if row["k"] == "a"]
    assert [one if two is None else two for one, two in pairs(given)] == [0, 1, 2, 3, 4]


def test_a_key_that_is_null_matches_nothing() -> None:
    feed = Feed(within(-5, 5, "left"), [LEFT, RIGHT])
    feed.batch([left(1, 1, None), right(1, 2, None)])
    (row,) = feed.batch([left(50, 3), right(50, 4, "b")])[MAIN]
    assert (row["k"], row["left_n"], row["right_n"]) == (None, 1, None)


def test_rows_are_let_go_as_soon_as_nothing_can_match_them() -> None:
    feed = Feed(within(0, 10), [LEFT, RIGHT], buckets=1)
    for second in range(0, 1000, 5):
        feed.batch([left(second, second), right(second, second)])
        assert feed.buckets[0].status().entries <= 8
        assert feed.buckets[0].status().waits_for is None  # an inner join waits for nothing


def test_a_late_row_goes_its_own_way_and_matches_nothing() -> None:
    feed = Feed(within(-50, 50), [LEFT, RIGHT], rules=TimeRules(lateness=2 * SECOND))
    given = feed.batch([left(10, 1), right(10, 2), right(7, 3)])
    assert pairs(given[MAIN]) == [(1, 2)]
    assert [row["n"] for row in given["late.1"]] == [3]


def test_columns_that_both_sides_have_are_told_apart_and_what_is_left_clashing_is_refused() -> None:
    with pytest.raises(TopologyError, match="two columns 'left_n'"):
        JoinWithin("inner", 1, 0, 0, BASIS).channels(
            [pa.schema([*LEFT, pa.field("left_n", pa.int64())]), RIGHT]
        )
    chained = pa.schema([*LEFT, pa.field("join_time", pa.int64()), pa.field("time_basis", pa.string())])
    with pytest.raises(TopologyError, match="rename 'join_time'"):
        JoinWithin("inner", 1, 0, 0, BASIS).channels([chained, RIGHT])
    names = JoinWithin("inner", 1, 0, 0, BASIS, (True, False)).channels([chained, RIGHT])[MAIN].names
    assert names == ["k", "left_n", "right_n", "x", "join_time", "time_basis"]


def rows(number: int) -> st.SearchStrategy[Mapping[str, Any]]:
    keys = st.sampled_from(["a", "b", "c", None])
    return keys.map(lambda k: {"k": k} if number == 0 else {"key": k, "x": 0})


def expected(case: Case, lower: int, upper: int, how: str) -> Counter[tuple[Any, ...]]:
    """All pairs, by a loop in a loop."""
    lefts = [one for one in case.on_time if one.input == 0]
    rights = [one for one in case.on_time if one.input == 1]
    found: Counter[tuple[Any, ...]] = Counter()
    matched = set()
    for one in lefts:
        for other in rights:
            same = one.row["k"] is not None and one.row["k"] == other.row["key"]
            if same and lower <= other.second - one.second <= upper:
                found[one.row["k"], one.n, other.n, max(one.second, other.second)] += 1
                matched |= {one.n, other.n}
    if how in ("left", "outer"):
        found += Counter((one.row["k"], one.n, None, one.second) for one in lefts if one.n not in matched)
    if how in ("right", "outer"):
        found += Counter((one.row["key"], None, one.n, one.second) for one in rights if one.n not in matched)
    return found


@settings(max_examples=150, deadline=None)
@given(
    case=cases(rows),
    bounds=st.tuples(st.integers(-10, 10), st.integers(0, 10)),
    how=st.sampled_from(["inner", "left", "right", "outer"]),
    in_order=st.booleans(),
)
def test_the_result_is_that_of_a_loop_in_a_loop_however_the_input_was_cut(
    case: Case, bounds: tuple[int, int], how: str, in_order: bool
) -> None:
    lower, upper = bounds[0], bounds[0] + bounds[1]
    plan = within(lower, upper, how, JoinWithinInOrder if in_order else JoinWithin)

    def last(number: int) -> dict[str, Any]:
        return {"k": "end", "n": -1} if number == 0 else {"key": "other end", "n": -1, "x": 0}

    output = case.run(plan, [LEFT, RIGHT], last)
    given = [row for row in output.get(MAIN, []) if -1 not in (row["left_n"], row["right_n"])]
    assert Counter(
        (row["k"], row["left_n"], row["right_n"], row["join_time"].timestamp()) for row in given
    ) == expected(case, lower, upper, how)
    late = [row["n"] for channel in ("late.0", "late.1") for row in output.get(channel, [])]
    assert sorted(late) == [one.n for one in case.late]
    if in_order:
        whole = case.run(plan, [LEFT, RIGHT], last, cut=False)
        for key in ("a", "b", "c", None):
            assert [row for row in given if row["k"] == key] == [
                row for row in whole.get(MAIN, []) if row["k"] == key
            ]
