"""Sessions against references that go through a key's events one by one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.windows.calls import Call
from millstream.pipeline.kernel.windows.sessions import Sessions
from tests.support.kernel_feed import SECOND, Event, Feed, run
from tests.support.out_of_order import Stream, sorted_rows, streams

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("n", pa.int32()),
        ("millstream_0", pa.bool_()),
        ("millstream_1", pa.bool_()),
    ]
)
COLUMNS = {
    "key": st.sampled_from(["a", "b"]),
    "n": st.one_of(st.none(), st.integers(-3, 3)),
    "millstream_0": st.sampled_from([True, False, None]),
    "millstream_1": st.sampled_from([True, False, False, False, None]),
}
CALLS = (
    Call("rows", "count"),
    Call("total", "sum", ("n",)),
    Call("all", "collect_list", ("n",)),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plan(*, final: bool = True, retract: bool = False, **how: Any) -> Sessions:
    return Sessions(1, CALLS, "event time (t)", final, retract, "sessions", **how)


def result(key: str, start: int, end: int, events: list[Event]) -> dict[str, Any]:
    ns = [event.row["n"] for event in events if event.row["n"] is not None]
    return {
        "key": key,
        "window_start": EPOCH + timedelta(microseconds=start),
        "window_end": EPOCH + timedelta(microseconds=end),
        "rows": len(events),
        "total": sum(ns) if ns else None,
        "all": ns,
        "time_basis": "event time (t)",
    }


def in_order(stream: Stream, key: str, lateness: int) -> list[Event]:
    """A key's events that are not late and no longer wait, by time and place in the log."""
    until = stream.reached(lateness)
    kept = [
        (event.time, place, event)
        for event, watermark, place in stream.judged(lateness)
        if watermark <= event.time < until and event.row["key"] == key
    ]
    return [event for _, _, event in sorted(kept, key=lambda one: one[:2])]


Found = tuple[int, int, list[Event], bool]  # start, end, events, whether it is over


def by_gap(events: list[Event], gap: int, until: int) -> Iterator[Found]:
    while events:
        size = 1
        while size < len(events) and events[size].time - events[size - 1].time <= gap:
            size += 1
        end = events[size - 1].time + gap
        yield events[0].time, end, events[:size], end < until
        events = events[size:]


def by_condition(
    events: list[Event], timeout: int, from_first: bool, until: int, outside: list[Event]
) -> Iterator[Found]:
    session: list[Event] = []

    def end() -> int:
        return (session[0] if from_first else session[-1]).time + timeout

    for event in events:
        if session and end() <= event.time:
            yield session[0].time, end(), session, True
            session = []
        if not session and not event.row["millstream_0"]:
            outside.append(event)
            continue
        session = [*session, event]
        if event.row["millstream_1"]:
            yield session[0].time, event.time, session, True
            session = []
    if session:
        yield session[0].time, end(), session, end() <= until


KINDS = st.one_of(
    st.builds(lambda gap: {"gap": gap * SECOND}, st.sampled_from([1, 3, 8])),
    st.builds(
        lambda timeout, first, closes: {
            "opens": "millstream_0",
            "closes": "millstream_1" if closes else None,
            "timeout": timeout * SECOND,
            "from_first": first,
            "outside": True,
        },
        st.sampled_from([2, 6, 15]),
        st.booleans(),
        st.booleans(),
    ),
)


def reference(stream: Stream, how: dict[str, Any], lateness: int) -> tuple[list[Any], list[Event]]:
    """Every session with its key, over or not, and the events outside."""
    until, outside = stream.reached(lateness), []
    sessions: list[Any] = []
    for key in ("a", "b"):
        events = in_order(stream, key, lateness)
        if "gap" in how:
            found = by_gap(events, how["gap"], until)
        else:
            if how["closes"] is None:
                events = [Event(e.time, {**e.row, "millstream_1": False}, e.partition) for e in events]
            found = by_condition(events, how["timeout"], how["from_first"], until, outside)
        sessions += [(key, *one) for one in found]
    return sessions, outside


@settings(max_examples=80, deadline=None)
@given(streams(COLUMNS), KINDS, st.sampled_from([0, 4]))
def test_sessions_are_those_of_the_reference_however_the_input_is_cut(
    stream: Stream, how: dict[str, Any], late_seconds: int
) -> None:
    lateness = late_seconds * SECOND
    found = stream.run(plan(**how), SCHEMA, lateness=lateness)
    sessions, outside = reference(stream, how, lateness)
    over = [result(key, start, end, events) for key, start, end, events, done in sessions if done]
    assert sorted_rows(found.get("", [])) == sorted_rows(over)
    assert sorted((row["key"], str(row["n"])) for row in found.get("outside", [])) == sorted(
        (event.row["key"], str(event.row["n"])) for event in outside
    )
    assert all(list(row) == ["key", "n"] for row in found.get("outside", []))


@settings(max_examples=40, deadline=None)
@given(streams(COLUMNS), KINDS)
def test_early_results_are_taken_back_until_the_session_is_left(stream: Stream, how: dict[str, Any]) -> None:
    found = stream.run(plan(final=False, retract=True, **how), SCHEMA)
    standing: list[dict[str, Any]] = []
    for row in found.get("", []):
        change = row.pop("change")
        if change == -1:
            standing.remove(row)
        else:
            standing.append(row)
    sessions, _ = reference(stream, how, 0)
    assert sorted_rows(standing) == sorted_rows([result(*session[:-1]) for session in sessions])


def event(second: float, n: int = 0, *, opens: bool = False, closes: bool = False, key: str = "a") -> Event:
    row = {"key": key, "n": n, "millstream_0": opens, "millstream_1": closes}
    return Event(int(second * SECOND), row)


def bounds(rows: list[dict[str, Any]]) -> list[tuple[float, float, int]]:
    return [
        (*((row[name] - EPOCH).total_seconds() for name in ("window_start", "window_end")), row["rows"])
        for row in rows
    ]


CONDITION = {"opens": "millstream_0", "closes": "millstream_1", "timeout": 10 * SECOND}


@pytest.mark.parametrize(("first", "ends"), [(True, [(1, 11, 3)]), (False, [(1, 19, 4)])])
def test_a_timeout_counts_from_the_first_or_from_the_last_event(first: bool, ends: list[Any]) -> None:
    given = [event(1, opens=True), event(5), event(9), event(12 if first else 9), event(100)]
    found = run(plan(**CONDITION, from_first=first), [SCHEMA], [given])
    assert bounds(found[""]) == ends


def test_a_session_closes_with_its_event_and_the_next_needs_another_opening() -> None:
    given = [event(1, opens=True), event(2, opens=True), event(3, closes=True), event(4), event(90)]
    found = run(plan(**CONDITION, outside=True), [SCHEMA], [given[:2], given[2:]])
    assert bounds(found[""]) == [(1, 3, 3)]
    assert [row["n"] for row in found["outside"]] == [0]


def test_an_event_at_the_end_of_a_gap_still_belongs_to_the_session() -> None:
    feed = Feed(plan(gap=5 * SECOND), [SCHEMA], buckets=1)
    assert feed.batch([event(1), event(6), event(11), event(11.5, key="b")]) == {}
    assert bounds(feed.batch([event(16), event(17, key="b")])[""]) == [(11.5, 16.5, 1)]
    assert bounds(feed.batch([event(90)])[""]) == [(1, 21, 4), (17, 22, 1)]


def test_of_a_key_one_open_session_is_kept_and_none_when_it_is_over() -> None:
    feed = Feed(plan(gap=5 * SECOND), [SCHEMA], buckets=1)
    for second in range(0, 500, 10):
        feed.batch([event(second, key=f"key {second}")])
    assert feed.buckets[0].status().entries <= 3
