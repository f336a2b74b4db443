"""Deduplication: the first event of a key in time is passed on, however the input was cut and kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core.errors import TopologyError
from millstream.pipeline.kernel.bucket import KeyedOperator
from millstream.pipeline.kernel.channels import DUPLICATES, MAIN
from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.kernel.deduplication import Deduplicate
from millstream.pipeline.kernel.state.disk import DiskTable
from millstream.pipeline.kernel.state.postgres import PostgresTable
from millstream.pipeline.kernel.state.table import StateTable, TableId
from tests.support.kernel_cases import END, Case, cases
from tests.support.kernel_feed import SECOND, Event, Feed

KEYS = [pa.field("millstream_key_0", pa.string()), pa.field("millstream_key_1", pa.int64())]
SCHEMA = pa.schema([*KEYS, pa.field("n", pa.int64())])
ONE_KEY = pa.schema([KEYS[0], pa.field("n", pa.int64())])


def plan(seconds: int = 10, by: tuple[str, ...] = ("id",), arrival: bool = False) -> Deduplicate:
    return Deduplicate(by, seconds * SECOND, arrival)


def event(second: int, key: str | None, n: int, partition: int = 0) -> Event:
    return Event(second * SECOND, {"millstream_key_0": key, "n": n}, partition)


def clock(second: int, partition: int = 0) -> Event:
    return Event(second * SECOND, {"millstream_key_0": None, "n": -1}, partition, clock=True)


def numbers(output: Mapping[str, list[dict[str, Any]]], channel: str = MAIN) -> list[int]:
    return [row["n"] for row in output.get(channel, [])]


def test_the_first_event_of_a_key_is_passed_on_and_later_ones_are_duplicates() -> None:
    feed = Feed(plan(), [ONE_KEY])
    feed.batch([event(1, "a", 1), event(2, "b", 2), event(3, "a", 3), event(10, "a", 4), clock(11)])
    assert sorted(numbers(feed.given)) == [1, 2]
    assert numbers(feed.given, DUPLICATES) == [3, 4]
    assert feed.given[MAIN][0].keys() == {"n"}  # and not the hidden key


def test_the_earlier_event_wins_whichever_came_first() -> None:
    feed = Feed(plan(), [ONE_KEY], rules=TimeRules(lateness=60 * SECOND))
    assert feed.batch([event(20, "a", 1)]) == {}
    feed.batch([event(15, "a", 2, partition=1)])
    feed.batch([clock(200), clock(200, partition=1)])
    assert (numbers(feed.given), numbers(feed.given, DUPLICATES)) == ([2], [1])


def test_at_the_end_of_the_time_an_event_is_a_first_one_again_and_duplicates_do_not_extend_it() -> None:
    feed = Feed(plan(), [ONE_KEY])
    feed.batch([event(0, "a", 1), event(9, "a", 2), event(10, "a", 3)])
    feed.batch([event(19, "a", 4), event(35, "a", 5), event(44, "a", 6), event(45, "a", 7), clock(99)])
    assert (numbers(feed.given), numbers(feed.given, DUPLICATES)) == ([1, 3, 5, 7], [2, 4, 6])


def test_nulls_are_equal_to_each_other() -> None:
    feed = Feed(plan(), [ONE_KEY])
    feed.batch([event(1, None, 1), event(2, None, 2), event(3, "a", 3), clock(9)])
    assert (sorted(numbers(feed.given)), numbers(feed.given, DUPLICATES)) == ([1, 3], [2])


def test_a_key_is_forgotten_when_its_time_is_over_and_nothing_waits_for_that() -> None:
    feed = Feed(plan(), [ONE_KEY], buckets=1)
    feed.batch([*(event(1, f"key {n}", n) for n in range(100)), clock(5)])
    assert feed.buckets[0].status().entries == 100
    assert feed.buckets[0].status().waits_for is None
    feed.batch([clock(12)])
    assert feed.buckets[0].status().entries == 0


def test_by_arrival_no_event_is_late() -> None:
    feed = Feed(plan(arrival=True), [ONE_KEY], rules=TimeRules(idle_after=SECOND))
    feed.batch([event(50, "b", 1), event(20, "a", 2), event(30, "a", 3), event(40, "b", 4), clock(60)])
    assert (sorted(numbers(feed.given)), sorted(numbers(feed.given, DUPLICATES))) == ([1, 2], [3, 4])
    assert "late.0" not in feed.given


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.float64(), "the key 'amount' is double. Floating-point numbers can't be keys"),
        (pa.list_(pa.string()), "the key 'amount' is list<item: string>; a key must be a plain value"),
    ],
)
def test_a_key_that_can_not_be_compared_is_refused(kind: pa.DataType, said: str) -> None:
    schema = pa.schema([pa.field("millstream_key_0", kind), pa.field("amount", kind)])
    with pytest.raises(TopologyError, match=said):
        KeyedOperator("first", plan(by=("amount",)), (schema,), {}).channels()


def rows(number: int) -> st.SearchStrategy[Mapping[str, Any]]:
    return st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 1)).map(
        lambda key: {"millstream_key_0": key[0], "millstream_key_1": key[1]}
    )


def expected(case: Case, within: int) -> tuple[list[int], list[int]]:
    """One event after the other, as the rules say."""
    first: dict[Any, int] = {}
    passed, dropped = [], []
    for one in case.on_time:
        key = one.row["millstream_key_0"], one.row["millstream_key_1"]
        if key in first and one.second < first[key] + within:
            dropped.append(one.n)
        else:
            first[key] = one.second
            passed.append(one.n)
    return passed, dropped


def ended(number: int) -> dict[str, Any]:
    return {"millstream_key_0": "end", "millstream_key_1": 0, "n": -1}


@settings(max_examples=150, deadline=None)
@given(case=cases(rows, inputs=1), within=st.integers(1, 15))
def test_it_does_what_the_rules_say_however_the_input_was_cut(case: Case, within: int) -> None:
    output = case.run(plan(within, ("id", "part")), [SCHEMA], ended)
    passed, dropped = expected(case, within)
    assert sorted(numbers(output)) == sorted(passed)
    assert sorted(numbers(output, DUPLICATES)) == sorted(dropped)
    assert sorted(numbers(output, "late.0")) == sorted(one.n for one in case.late)


@pytest.fixture(params=["disk", "PostgreSQL"])
def new_table(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StateTable]:
    """Makes empty tables outside of memory."""
    numbers = itertools.count()
    if request.param == "disk":
        return lambda: DiskTable(tmp_path, TableId(f"first {next(numbers)}", 0))
    url = request.getfixturevalue("database")
    return lambda: PostgresTable(url, TableId(f"first {next(numbers)}", 0))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(rows, inputs=1, most=20), within=st.integers(1, 15))
def test_it_does_the_same_with_state_outside_of_memory(
    new_table: Callable[[], StateTable], case: Case, within: int
) -> None:
    table = new_table()
    feed = Feed(
        plan(within, ("id", "part")),
        [SCHEMA],
        buckets=1,
        partitions=2,
        rules=TimeRules(lateness=case.lateness[0] * SECOND),
        table=table,
    )
    for one in case.events:
        feed.batch([Event(one.second * SECOND, one.row, one.partition)])
    feed.batch([Event(END * SECOND, ended(0), partition, clock=True) for partition in range(2)])
    passed, dropped = expected(case, within)
    assert (numbers(feed.given), numbers(feed.given, DUPLICATES)) == (passed, dropped)
    table.close()


def test_one_key_with_many_first_events_in_a_batch_is_no_quadratic_work() -> None:
    """A time of one second, and events that are two seconds apart: each is a first event."""
    feed = Feed(plan(1), [ONE_KEY], buckets=1)
    feed.batch([*(event(2 * n, "a", n) for n in range(20_000)), clock(90_000)])
    assert numbers(feed.given) == list(range(20_000))
