"""Search on streams: every line meets the queries as they were at its time, however many there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.examples.catalogue import find
from millstream.examples.search.generate import Line, Query, meets
from millstream.testing import Driver, Record

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LAST = 9  # seconds: less than the lateness, so that nothing is late, whatever the order


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def stored(id: str, second: float, query: Query | None) -> Record:
    """A change of a query; None ends it."""
    value = None if query is None else json.dumps({**asdict(query), "id": id}).encode()
    return Record(value, id.encode(), timestamp=at(second))


def logged(second: float, line: Line) -> dict[str, object]:
    return {**asdict(line), "logged_at": at(second)}


def saying(id: str, text: str) -> Line:
    return Line(id, "checkout", 100, text)


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver(find("search").pipeline) as driver:
        yield driver


def told(driver: Driver) -> set[tuple[str, str]]:
    return {(match["query"], match["line"]) for match in driver.topic("matches")}


def test_a_query_is_told_of_lines_from_when_it_is_stored_until_it_ends(driver: Driver) -> None:
    driver.feed("queries", [stored("q", 10, Query("q", "ada", ("timeout",))), stored("q", 20, None)])
    lines = [(5, "before"), (10, "with"), (15, "meanwhile"), (25, "after")]
    driver.feed("lines", [logged(second, saying(id, "a timeout")) for second, id in lines])
    driver.finish()
    (match,) = driver.topic("matches")
    assert (match["query"], match["who"], match["line"]) == ("q", "ada", "meanwhile")
    assert driver.view("latest_matches")["q"]["text"] == "a timeout"


def test_a_query_that_has_changed_is_no_longer_found_under_its_old_word(driver: Driver) -> None:
    changes = [(10, ("timeout", "retry")), (20, ("retry",)), (20, ("refused", "retry"))]
    driver.feed("queries", [stored("q", second, Query("q", "ada", must)) for second, must in changes])
    lines = [(15, "old", "Retry: timeout!"), (25, "gone", "retry: timeout"), (26, "new", "REFUSED retry")]
    driver.feed("lines", [logged(second, saying(id, text)) for second, id, text in lines])
    driver.finish()
    assert told(driver) == {("q", "old"), ("q", "new")}


def test_a_query_without_a_word_that_must_occur_is_refused_and_changes_nothing(driver: Driver) -> None:
    driver.feed(
        "queries", [stored("q", 1, Query("q", "ada", ("slow",))), stored("q", 2, Query("q", "ada", ()))]
    )
    driver.feed("lines", logged(5, saying("l", "slow")))
    driver.finish()
    assert [row["id"] for row in driver.topic("queries.refused")] == ["q"]
    assert told(driver) == {("q", "l")}


WORDS = st.sampled_from(["disk", "full", "retry", "user", "ok"])
IDS = st.sampled_from(["q1", "q2", "q3"])
SERVICES = st.sampled_from(["mail", "login"])
MOMENTS = st.integers(0, LAST)
CHANGES = st.lists(
    st.tuples(
        MOMENTS,
        IDS,
        st.none()
        | st.builds(
            Query,
            id=st.just(""),
            who=st.just("ada"),
            must=st.lists(WORDS, min_size=1, max_size=3).map(tuple),
            must_not=st.lists(WORDS, max_size=1).map(tuple),
            service=st.none() | SERVICES,
            slower_than=st.none() | st.integers(0, 3),
        ),
    ),
    max_size=15,
)
LINES = st.lists(
    st.tuples(MOMENTS, SERVICES, st.integers(0, 3), st.lists(WORDS, max_size=5).map(" ".join)), max_size=15
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CHANGES, LINES)
def test_it_finds_what_every_line_against_every_query_would(
    changes: list[tuple[int, str, Query | None]], lines: list[tuple[int, str, int, str]]
) -> None:
    changes.sort(key=lambda change: change[0])
    expected = set()
    for number, (second, service, ms, text) in enumerate(lines):
        known = {id: query for when, id, query in changes if when < second}  # the last one counts
        line = Line(str(number), service, ms, text)
        expected |= {(id, line.id) for id, query in known.items() if query is not None and meets(line, query)}
    with Driver(find("search").pipeline) as driver:
        driver.feed("queries", [stored(id, second, query) for second, id, query in changes])
        driver.feed("lines", [logged(second, Line(str(n), *rest)) for n, (second, *rest) in enumerate(lines)])
        driver.finish()
        assert driver.topic("lines.late") == []
        assert told(driver) == expected
