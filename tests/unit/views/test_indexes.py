"""Secondary indexes of views: made, carried over and dropped as the view's declaration says."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from millstream.core.errors import MillstreamError, TopologyError
from millstream.views.naming import beside
from millstream.views.opening import open_reader, open_store
from millstream.views.views import Changes, View, ViewStore

PLACES = View(
    "places",
    (("id", "string"), ("country", "string"), ("city", "string"), ("tags", "array<string>")),
    ("id",),
)
INDEXED = replace(PLACES, indexes=(("country",), ("country", "city")))


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where views can be kept."""
    if request.param == "SQLite":
        return str(tmp_path / "views.db")
    return str(request.getfixturevalue("database"))


@pytest.fixture
def store(where: str) -> Iterator[ViewStore]:
    store = open_store(where)
    yield store
    store.close()


def described(where: str) -> tuple[tuple[str, ...], ...]:
    reader = open_reader(where)
    try:
        return {view.name: view.indexes for view in reader.described()}["places"]
    finally:
        reader.close()


def names(where: str) -> set[str]:
    """All indexes of the table, however they were made, but that of the key."""
    if where.startswith("postgresql"):
        with psycopg.connect(where) as db:
            sql = "SELECT indexname FROM pg_indexes WHERE tablename = 'places' AND indexname <> 'places_pkey'"
            return {name for (name,) in db.execute(sql)}
    db = sqlite3.connect(where)
    try:
        return {name for _, name, _, origin, _ in db.execute("PRAGMA index_list(places)") if origin == "c"}
    finally:
        db.close()


def run_sql(where: str, sql: str) -> None:
    if where.startswith("postgresql"):
        with psycopg.connect(where, autocommit=True) as db:
            db.execute(sql.encode())
        return
    db = sqlite3.connect(where)
    db.execute(sql)
    db.commit()
    db.close()


def fill(store: ViewStore, view: View, batch: int, *rows: tuple[str, str, str]) -> None:
    given = [(*row, ["x"]) for row in rows]
    store.apply("q", batch, [Changes(view, given, [False] * len(given))])


def test_indexes_are_made_at_the_first_start_and_described(store: ViewStore, where: str) -> None:
    store.prepare(INDEXED)
    assert described(where) == (("country",), ("country", "city"))
    fill(store, INDEXED, 0, ("a", "DE", "Bonn"), ("b", "IT", "Rome"))
    store.prepare(INDEXED)  # the next start
    assert described(where) == (("country",), ("country", "city"))
    assert len(names(where)) == 2


def test_a_query_uses_the_index(tmp_path: Path) -> None:
    store = open_store(tmp_path / "views.db")
    store.prepare(INDEXED)
    store.close()
    db = sqlite3.connect(tmp_path / "views.db")
    sql = "EXPLAIN QUERY PLAN SELECT * FROM places WHERE country = 'DE' AND city = 'Bonn'"
    ((*_, plan),) = db.execute(sql).fetchall()
    db.close()
    assert "USING INDEX millstream_index_" in plan
    assert "country=? AND city=?" in plan


def test_an_edit_makes_and_drops_indexes_and_keeps_the_rows(store: ViewStore, where: str) -> None:
    store.prepare(INDEXED)
    fill(store, INDEXED, 0, ("a", "DE", "Bonn"))
    before = names(where)
    edited = replace(INDEXED, indexes=(("country",), ("city",)))
    store.prepare(edited)
    assert described(where) == (("city",), ("country",))
    assert len(before & names(where)) == 1  # that of country is the same index, and not a new one
    fill(store, edited, 1, ("b", "IT", "Rome"))
    reader = open_reader(where)
    assert reader.query("SELECT id, city FROM places ORDER BY id")[1] == [("a", "Bonn"), ("b", "Rome")]
    reader.close()
    store.prepare(PLACES)
    assert described(where) == ()


def test_an_index_may_be_over_a_column_that_is_new(store: ViewStore, where: str) -> None:
    store.prepare(INDEXED)
    fill(store, INDEXED, 0, ("a", "DE", "Bonn"))
    wider = replace(INDEXED, columns=(*INDEXED.columns, ("zip", "string")), indexes=(("zip",),))
    store.prepare(wider)
    assert described(where) == (("zip",),)


def test_an_index_that_somebody_made_by_hand_is_left_alone(store: ViewStore, where: str) -> None:
    store.prepare(INDEXED)
    run_sql(where, "CREATE INDEX by_hand ON places (city)")
    store.prepare(PLACES)
    assert names(where) == {"by_hand"}


def test_a_rebuilt_view_keeps_its_indexes(store: ViewStore, where: str) -> None:
    store.prepare(INDEXED)
    fill(store, INDEXED, 0, ("a", "DE", "Bonn"))
    built = replace(INDEXED, name=beside("next", "places"))
    store.prepare(built)
    store.apply("new", 0, [Changes(built, [("b", "IT", "Rome", ["x"])], [False])])
    with store.swapping(["places"], ["q"]):
        pass
    assert described(where) == (("country",), ("country", "city"))
    reader = open_reader(where)
    assert reader.query("SELECT id FROM places")[1] == [("b",)]
    reader.close()
    store.drop("places")
    store.prepare(INDEXED)
    assert described(where) == (("country",), ("country", "city"))


def test_an_index_over_values_that_have_parts_is_refused_in_words(store: ViewStore) -> None:
    with pytest.raises(
        TopologyError, match=r"flow.py:3: view 'places': index='tags' is array<string>, and an"
    ):
        store.prepare(replace(PLACES, indexes=(("country", "tags"),)), where="flow.py:3")


@pytest.mark.parametrize("length", [1200, 4000])  # PostgreSQL says which index it is; it does not
def test_a_value_that_is_too_long_for_an_index_is_told_in_words(database: str, length: int) -> None:
    store = open_store(database)
    store.prepare(INDEXED)
    text = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(length))
    with pytest.raises(MillstreamError, match=r"row with id='b': country(, city)? is too long for index="):
        fill(store, INDEXED, 0, ("a", "DE", "Bonn"), ("b", text, "Rome"))
    store.close()
