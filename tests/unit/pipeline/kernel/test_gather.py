"""Gathering the parts of an event: what is complete, what stays incomplete, and what is there twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.joins.gather import DUPLICATES, INCOMPLETE, Gather
from millstream.pipeline.kernel.program import MAIN, TIMESTAMP
from tests.support.kernel_cases import Case, Fed, cases
from tests.support.kernel_feed import SECOND, Event, Feed

PARTS = ("price", "risk", "stock")
SCHEMAS = [
    pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64()), pa.field("at", TIMESTAMP)]),
    pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64())]),
    pa.schema([pa.field("key", pa.string()), pa.field("n", pa.int64())]),
]


def gather(seconds: int = 30) -> Gather:
    return Gather(PARTS, 1, seconds * SECOND, "event time (at)")


def part(number: int, second: int, n: int, key: str | None = "a") -> Event:
    names = SCHEMAS[number].names
    row = {names[0]: key, "n": n, **({"at": second * SECOND} if "at" in names else {})}
    return Event(second * SECOND, row, input=number)


def clock(second: int) -> list[Event]:
    """The time, told by all inputs."""
    return [Event(second * SECOND, dict.fromkeys(SCHEMAS[n].names), input=n, clock=True) for n in range(3)]


def test_an_event_is_complete_with_one_row_of_every_part_and_has_the_time_of_the_last() -> None:
    feed = Feed(gather(), SCHEMAS)
    feed.batch([part(0, 10, 1), part(2, 11, 2)])
    (row,) = feed.batch([part(1, 12, 3), *clock(20)])[MAIN]
    assert row["id"] == "a"
    assert (row["price"]["n"], row["risk"], row["stock"]) == (1, {"n": 3}, {"n": 2})
    assert row["price"]["at"].timestamp() == 10
    assert row["gather_time"].timestamp() == 12
    assert row["time_basis"] == "event time (at)"


def test_what_is_not_complete_in_time_is_given_with_what_is_missing() -> None:
    feed = Feed(gather(), SCHEMAS)
    assert feed.batch([part(0, 10, 1), part(2, 11, 2), *clock(39)]) == {}
    (row,) = feed.batch(clock(40))[INCOMPLETE]
    assert (row["missing"], row["risk"], row["stock"]) == (["risk"], None, {"n": 2})
    assert row["gather_time"].timestamp() == 40
    assert feed.buckets[0].status().waits_for is None


def test_a_part_that_comes_when_the_time_is_over_begins_anew() -> None:
    feed = Feed(gather(), SCHEMAS)
    given = feed.batch([part(0, 10, 1), part(1, 40, 2), *clock(60)])
    assert [row["missing"] for row in given[INCOMPLETE]] == [["risk", "stock"]]
    given = feed.batch(clock(70))
    assert [row["missing"] for row in given[INCOMPLETE]] == [["price", "stock"]]


def test_of_a_part_that_comes_twice_the_first_counts_and_the_other_is_not_lost() -> None:
    feed = Feed(gather(), SCHEMAS)
    parts = [part(0, 11, 1), part(0, 10, 2), part(1, 12, 3), part(2, 13, 4), part(1, 14, 5)]
    given = feed.batch([*parts[1:2], parts[0], *parts[2:], *clock(30)])
    assert [row["price"]["n"] for row in given[MAIN]] == [2]
    twice = [(row["part"], row["gather_time"].timestamp()) for row in given[DUPLICATES]]
    assert twice == [("price", 11), ("risk", 14)]
    assert given[DUPLICATES][1]["risk"] == {"n": 5}
    assert feed.batch(clock(90)) == {}


def test_a_part_without_a_key_belongs_to_nothing() -> None:
    feed = Feed(gather(), SCHEMAS)
    (row,) = feed.batch([part(1, 10, 1, None), *clock(11)])[INCOMPLETE]
    assert (row["id"], row["risk"], row["missing"]) == (None, {"n": 1}, ["price", "stock"])


def test_a_part_may_have_nothing_but_its_key() -> None:
    bare = [pa.schema([pa.field("id", pa.string())])] * 2
    feed = Feed(Gather(("one", "two"), 1, SECOND, ""), bare)
    feed.batch([Event(1, {"id": "a"}), Event(2, {"id": "a"}, input=1)])
    given = feed.batch([Event(9, {"id": "y"}), Event(9, {"id": "z"}, input=1)])
    assert [(row["one"], row["two"]) for row in given[MAIN]] == [({"there": True}, {"there": True})]


def rows(number: int) -> st.SearchStrategy[Mapping[str, Any]]:
    key = SCHEMAS[number].names[0]
    more = {"at": 0} if number == 0 else {}
    return st.sampled_from(["a", "b"]).map(lambda k: {key: k, **more})


def expected(case: Case, key: str, timeout: int) -> list[tuple[Any, ...]]:
    """One key's events one after the other, as the rules say."""
    said: list[tuple[Any, ...]] = []
    there: dict[int, Fed] = {}
    deadline, complete = None, False

    def over() -> None:
        if not complete:
            missing = tuple(name for number, name in enumerate(PARTS) if number not in there)
            said.append((INCOMPLETE, deadline, missing, *sorted(one.n for one in there.values())))

    for event in case.on_time:
        if event.row[SCHEMAS[event.input].names[0]] != key:
            continue
        if deadline is not None and event.second >= deadline:
            over()
            there, deadline, complete = {}, None, False
        if event.input in there:
            said.append((DUPLICATES, event.second, PARTS[event.input], event.n))
            continue
        if deadline is None:
            deadline = event.second + timeout
        there[event.input] = event
        if len(there) == 3:
            complete = True
            said.append((MAIN, event.second, *(there[number].n for number in range(3))))
    if deadline is not None:
        over()
    return said


def told(output: Mapping[str, list[dict[str, Any]]], key: str) -> list[tuple[Any, ...]]:
    said: list[tuple[Any, ...]] = []
    for channel in (MAIN, INCOMPLETE, DUPLICATES):
        for row in output.get(channel, []):
            if row["id"] == key:
                at, found = row["gather_time"].timestamp(), [row[name] for name in PARTS]
                numbers = [one["n"] for one in found if one is not None]
                about = {
                    MAIN: numbers,
                    INCOMPLETE: [tuple(row.get("missing", ())), *sorted(numbers)],
                    DUPLICATES: [row.get("part"), *numbers],
                }
                said.append((channel, at, *about[channel]))
    return said


@settings(max_examples=150, deadline=None)
@given(case=cases(rows, inputs=3), timeout=st.integers(1, 20))
def test_it_does_what_the_rules_say_however_the_input_was_cut(case: Case, timeout: int) -> None:
    output = case.run(gather(timeout), SCHEMAS, lambda n: {SCHEMAS[n].names[0]: "end", "n": -1, "at": 0})
    for key in "ab":
        wanted = expected(case, key, timeout)
        given = told(output, key)
        for channel in (MAIN, INCOMPLETE, DUPLICATES):
            assert [one for one in given if one[0] == channel] == [one for one in wanted if one[0] == channel]
    late = [row["n"] for number in range(3) for row in output.get(f"late.{number}", [])]
    assert sorted(late) == [one.n for one in case.late]
