"""Views as pages show them: rows by page, what changed on one, and values; on a real file, without HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.console.views.cells import cell, whole
from millstream.console.views.databases import Databases, ViewDatabase, places_of
from millstream.console.views.tables import (
    RowPage,
    RowQuery,
    Value,
    column_digits,
    differences,
    row_of,
    rows_of,
    run_sql,
    views_of,
)
from millstream.core.errors import ConfigError
from millstream.jobs.report import JobStatus
from millstream.views.opening import open_reader, open_store
from millstream.views.query import QueryLimits, QueryRefused
from millstream.views.views import Changes, View, ViewReader, ViewStore

CARDS = View("cards", (("card", "string"), ("n", "bigint"), ("raw", "binary")), ("card",))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewStore]:
    store = open_store(tmp_path_factory.mktemp("views") / "views.db")
    store.prepare(CARDS)
    rows = [(f"Card {n:02}", n if n % 5 else None, b"\x00\xff") for n in range(23)]
    store.apply("q", 0, [Changes(CARDS, [*rows, ("100%_", 7, None)], [False] * 24)])
    yield store
    store.close()


@pytest.fixture(scope="module")
def reader(store: ViewStore) -> Iterator[ViewReader]:
    reader = open_reader(store.where)
    yield reader
    reader.close()


def page(reader: ViewReader, **query: object) -> RowPage:
    found = rows_of(reader, "cards", RowQuery(**query), {"cards": "fraud"})  # type: ignore[arg-type]
    assert found is not None
    return found


def cards(shown: RowPage) -> list[Value]:
    return [row[0] for row in shown.rows]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 30), st.sampled_from(["", "card", "n"]), st.sampled_from(["asc", "desc"]))
def test_pages_show_every_row_once(reader: ViewReader, per_page: int, sort: str, order: str) -> None:
    shown: list[Value] = []
    number, more = 0, True
    while more:
        number += 1
        one = page(reader, page=number, per_page=per_page, sort=sort, order=order)
        assert one.found == 24
        shown += cards(one)
        more = one.more
    assert len(shown) == 24
    assert len(set(shown)) == 24
    assert page(reader, page=number + 5, per_page=per_page).query.page == number, "the last one"


def test_large_decimals_are_sorted_by_their_value(tmp_path: Path) -> None:
    owed = View("owed", (("k", "int"), ("eur", "decimal(22,2)")), ("k",))
    store = open_store(tmp_path / "views.db")
    store.prepare(owed)
    amounts = ["9.00", "-12345678901234567890.25", "10.00", "-5.00"]
    rows = [(k, Decimal(amount)) for k, amount in enumerate(amounts)]
    store.apply("q", 0, [Changes(owed, rows, [False] * 4)])
    store.close()
    reader = open_reader(tmp_path / "views.db")
    shown = rows_of(reader, "owed", RowQuery(sort="eur", order="desc"), {})
    reader.close()
    assert shown is not None
    assert [row[1] for row in shown.rows] == ["10.00", "9.00", "-5.00", amounts[1]]


def test_rows_without_a_value_come_last_whichever_way_they_are_sorted(reader: ViewReader) -> None:
    for order in ("asc", "desc"):
        assert page(reader, sort="n", order=order).rows[-1][1] is None


def test_every_word_of_a_search_must_be_in_some_column(reader: ViewReader) -> None:
    assert cards(page(reader, search="CARD 21")) == ["Card 21"]
    assert cards(page(reader, search="0%_")) == ["100%_"], "signs of patterns are text"
    assert cards(page(reader, search="it's")) == []
    assert page(reader, search="card", where="n > 20 -- and no more").found == 2


def test_a_null_character_can_not_be_searched_for(reader: ViewReader) -> None:
    with pytest.raises(QueryRefused, match="can't contain the null character"):
        rows_of(reader, "cards", RowQuery(search="a \0b"), {})


def test_a_condition_that_is_wrong_is_pointed_at_in_itself(reader: ViewReader) -> None:
    with pytest.raises(QueryRefused) as refused:
        page(reader, where="n > 1\nAND m > 2", search="x")
    assert (refused.value.line, refused.value.column) == (2, 5)


def test_a_column_or_a_view_that_is_not_there(reader: ViewReader) -> None:
    with pytest.raises(ConfigError, match="no column 'm' to sort by; it has card, n, raw"):
        page(reader, sort="m")
    assert rows_of(reader, "others", RowQuery(), {}) is None
    assert row_of(reader, "others", ["x"], {}) is None


def test_a_view_says_who_writes_it(reader: ViewReader) -> None:
    (view,) = views_of(reader, {"cards": "fraud"})
    assert (view.rows, view.key, view.batch, view.job) == (24, ["card"], 0, "fraud")
    assert views_of(reader, {}, counted=False)[0].rows is None


def test_only_what_is_another_on_a_page_has_changed(reader: ViewReader) -> None:
    before = page(reader, per_page=3)
    assert differences(None, before) == [frozenset()] * 3
    rows = [before.rows[1], [before.rows[0][0], 99, "x"], ["new", 1, None]]
    now = RowPage(before.view, rows, 24, True, before.query)
    assert differences(before, now) == [frozenset(), {1, 2}, {0, 1, 2}]


def test_sql_gives_bytes_as_base64(reader: ViewReader) -> None:
    assert run_sql(reader, "SELECT raw FROM cards WHERE n = 1", QueryLimits()).rows == [["AP8="]]


def test_numbers_of_a_column_have_the_same_digits() -> None:
    rows: list[list[Value]] = [
        [1, 1.5, "a", None, True],
        [2, 2.25, "b", None, False],
        [3, None, None, None, None],
    ]
    assert column_digits(rows, 5) == [0, 2, None, None, None]
    assert ">1,234.50<" in cell(1234.5, 2)
    assert cell(1234, 2) == "1234", "a whole number may be a name"


def test_values_are_seen_to_be_what_they_are() -> None:
    assert "NULL" in whole(None)
    assert cell("NULL") != cell(None)
    assert '<time datetime="2026-01-31T12:00:00.250Z">' in cell("2026-01-31T12:00:00.250000Z")
    assert "mono" in cell('{"a": 1}')
    assert "mono" not in cell("{not json")
    assert "{\n  &#34;a&#34;: [" in whole('{"a": [1]}')
    assert "&lt;b&gt;" in cell("<b>")
    assert cell("x" * 500).count("x") == 120
    assert whole("x" * 500).count("x") == 500


def test_databases_that_jobs_name_are_opened_with_the_users_own_credentials(tmp_path: Path) -> None:
    told = ("postgresql://me:secret@db/fraud", str(tmp_path / "views.db"))
    away = "start the console with --views to see it"
    by_jobs = (
        ViewDatabase("postgresql://me@db/fraud", "postgresql://me@db/fraud", away, {"blocked": "fraud"}),
        ViewDatabase("postgresql://me@db/other", "postgresql://me@db/other", away, {"spent": "sums"}),
        ViewDatabase(
            str(tmp_path / "." / "views.db"), str(tmp_path / "." / "views.db"), None, {"cards": "cards"}
        ),
    )
    databases = Databases(told, lambda: by_jobs)
    assert databases.places() == [
        ViewDatabase(told[0], "postgresql://me@db/fraud", None, {"blocked": "fraud"}),
        ViewDatabase(told[1], told[1], None, {"cards": "cards"}),
        by_jobs[1],
    ]


def job(name: str, **more: object) -> JobStatus:
    plain = JobStatus(1, name, "run", "elsewhere", 1, 0, 0, "running", 0, "exactly-once")
    return replace(plain, **more)  # type: ignore[arg-type]


def test_jobs_say_where_their_views_are(tmp_path: Path) -> None:
    here, gone = tmp_path / "views.db", tmp_path / "gone.db"
    here.touch()
    places = places_of(
        [
            job("sums", views_at=str(here), views=["spent"]),
            job("fraud", views_at=str(here), views=["blocked"], at_ms=1),
            job("other", views_at=str(gone), views=["x"], at_ms=2),
            job("ended", views_at=str(tmp_path / "tidied.db"), views=["x"], state="stopped"),
            job("cloud", views_at="postgresql://me@db/fraud", views=["x"], at_ms=3),
            job("none"),
        ]
    )
    assert [(place.name, place.jobs) for place in places] == [
        (str(here), {"spent": "sums", "blocked": "fraud"}),
        (str(gone), {"x": "other"}),
        ("postgresql://me@db/fraud", {"x": "cloud"}),
    ]
    assert places[0].reason is None
    assert "runs on elsewhere" in (places[1].reason or "")
    assert "--views postgresql://me@db/fraud" in (places[2].reason or "")
