"""A view does not depend on how its rows were cut into batches: deletions are remembered with their order."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from millstream.views.naming import beside
from millstream.views.opening import open_reader, open_store
from millstream.views.views import Changes, View
from millstream.views.writing import SqlStore

Entry = tuple[str, int | None, int, bool]  # key, order, value, and whether it deletes
COLUMNS = (("k", "string"), ("o", "int"), ("v", "int"))


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "SQLite":
        return str(tmp_path / "views.db")
    return str(request.getfixturevalue("database"))


@pytest.fixture
def store(where: str) -> Iterator[SqlStore]:
    store = open_store(where)
    assert isinstance(store, SqlStore)
    yield store
    store.close()


def view(order: str | None = "o", key: tuple[str, ...] = ("k",)) -> View:
    return View(f"v{uuid.uuid4().hex}", COLUMNS, key, order)


def apply(store: SqlStore, into: View, number: int, entries: list[Entry]) -> None:
    rows = [(k, o, v) for k, o, v, _ in entries]
    store.apply(f"q {into.name}", number, [Changes(into, rows, [gone for *_, gone in entries])])


def rows_of(where: str, name: str) -> dict[object, tuple[object, ...]]:
    reader = open_reader(where)
    try:
        return {row[0]: row for row in reader.all(name)[1]}
    finally:
        reader.close()


def model(entries: list[Entry]) -> dict[object, tuple[object, ...]]:
    """Row by row: what is not before that which is known of its key replaces it, a deletion too; one without
    an order takes away all that is known."""
    known: dict[str, Entry] = {}
    for entry in entries:
        key, order, _, gone = entry
        before = known.get(key)
        if gone and order is None:
            known.pop(key, None)
        elif before is None or before[1] is None or (order is not None and order >= before[1]):
            known[key] = entry
    return {k: (k, o, v) for k, o, v, gone in known.values() if not gone}


_entries = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 4), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_entries, st.lists(st.integers(1, 11), max_size=11))
@example([("a", 10, 1, False), ("a", 20, 0, True), ("a", 15, 2, False)], [1, 2])
@example([("a", None, 1, False), ("a", 2, 0, True), ("a", None, 2, False)], [1, 2])
def test_any_cut_into_batches_gives_the_same_view(
    store: SqlStore, where: str, entries: list[Entry], cuts: list[int]
) -> None:
    into = view()
    store.prepare(into)
    places = [0, *sorted({cut for cut in cuts if cut < len(entries)}), len(entries)]
    for number, (start, end) in enumerate(itertools.pairwise(places)):
        apply(store, into, number, entries[start:end])
    assert rows_of(where, into.name) == model(entries)
    kept = store._ask(f"SELECT count(*) FROM {beside('gone', into.name)} g JOIN {into.name} t ON g.k = t.k")
    assert kept == [(0,)], "a key has a row or a tombstone"


def test_tombstones_outlive_the_process(store: SqlStore, where: str) -> None:
    into = view()
    store.prepare(into)
    apply(store, into, 0, [("a", 20, 0, True)])
    again = open_store(where)
    again.prepare(into)
    again.apply(f"q {into.name}", 1, [Changes(into, [("a", 15, 1), ("b", 15, 1)], [False, False])])
    again.close()
    assert rows_of(where, into.name) == {"b": ("b", 15, 1)}


def test_tombstones_are_bounded_by_number_and_by_age(store: SqlStore) -> None:
    into = view()
    store.prepare(into)
    store.keep_gone = 5

    def kept() -> list[str]:
        return [k for (k,) in store._ask(f"SELECT k FROM {beside('gone', into.name)} ORDER BY k")]

    for number in range(9):
        apply(store, into, number, [(str(number), 1, 0, True)])
    assert kept() == ["4", "5", "6", "7", "8"]
    store.keep_gone_s = -1.0
    apply(store, into, 9, [("x", 1, 0, True)])
    assert kept() == []


def test_a_rebuilt_view_brings_its_own_tombstones(store: SqlStore, where: str) -> None:
    into = view()
    store.prepare(into)
    apply(store, into, 0, [("a", 20, 0, True), ("b", 20, 0, True)])
    built = View(beside("next", into.name), COLUMNS, ("k",), "o")
    store.prepare(built)
    apply(store, built, 0, [("a", 10, 0, True), ("c", 20, 0, True)])
    with store.swapping([into.name], [f"q {into.name}"]) as applied:
        assert applied is not None
    late = [("a", 15, 1), ("b", 15, 1), ("c", 15, 1)]
    store.apply("new query", 0, [Changes(into, late, [False] * 3)])
    assert rows_of(where, into.name).keys() == {"a", "b"}
    store.drop(into.name)
    store.prepare(into)
    store.apply("third query", 0, [Changes(into, late, [False] * 3)])
    assert len(rows_of(where, into.name)) == 3, "a view that was removed leaves nothing behind"


def test_another_order_leaves_no_key_with_a_tombstone_of_long_ago(store: SqlStore, where: str) -> None:
    into = view()
    store.prepare(into)
    apply(store, into, 0, [("a", 20, 0, True)])
    without = View(into.name, COLUMNS, ("k",), None)
    store.prepare(without)
    apply(store, without, 1, [("a", 5, 1, False)])
    store.prepare(into)
    apply(store, into, 2, [("a", 6, 2, False)])
    by_value = View(into.name, COLUMNS, ("k",), "v")
    store.prepare(by_value)
    apply(store, by_value, 3, [("a", 0, 3, True)])
    apply(store, by_value, 4, [("a", 9, 2, False)])
    assert rows_of(where, into.name) == {}
    apply(store, by_value, 5, [("a", 0, 4, False)])
    assert rows_of(where, into.name) == {"a": ("a", 0, 4)}
