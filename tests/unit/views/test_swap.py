"""A rebuilt view takes the place of the old one: for every reader at one moment, and once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream.core.errors import MillstreamError, TopologyError
from millstream.views.naming import beside
from millstream.views.opening import open_reader, open_store
from millstream.views.views import Changes, View, ViewsRebuilt, ViewStore
from millstream.views.watching import Watcher
from tests.support.waiting import wait_for

CARDS = View("cards", (("card", "string"), ("n", "bigint"), ("code", "string")), ("card",))
NEXT = replace(CARDS, name=beside("next", "cards"))


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where views can be kept."""
    if request.param == "SQLite":
        return str(tmp_path / "views.db")
    return str(request.getfixturevalue("database"))


@pytest.fixture
def store(where: str) -> Iterator[ViewStore]:
    store = open_store(where)
    store.prepare(CARDS)
    store.prepare(NEXT)
    yield store
    store.close()


def rows(where: str, sql: str = "SELECT card, n FROM cards ORDER BY card") -> list[tuple[object, ...]]:
    reader = open_reader(where)
    try:
        return reader.query(sql)[1]
    finally:
        reader.close()


def fill(store: ViewStore, view: View, query: str, batch: int, entries: dict[str, int], code: str) -> None:
    given = [(card, n, code) for card, n in entries.items()]
    store.apply(query, batch, [Changes(view, given, [False] * len(given))])


def test_what_is_built_beside_a_view_is_not_seen_and_then_is_the_view(store: ViewStore, where: str) -> None:
    fill(store, CARDS, "old", 0, {"a": 1, "b": 1}, "v1")
    fill(store, NEXT, "new", 0, {"b": 2, "c": 2}, "v2")
    assert rows(where) == [("a", 1), ("b", 1)]
    reader = open_reader(where)
    assert [name for name, _, _ in reader.views()] == ["cards"]
    reader.close()
    with store.swapping(["cards"], ["old"], tell=["cards"]) as applied:
        assert rows(where) == [("a", 1), ("b", 1)], "not before it is committed"
    assert rows(where) == [("b", 2), ("c", 2)]
    assert applied is not None
    changed = {key: row and row[1] for key, row in applied.changed["cards"]}
    assert changed == {("a",): None, ("b",): 2, ("c",): 2}
    fill(store, CARDS, "new", 1, {"c": 3}, "v2")
    assert rows(where) == [("b", 2), ("c", 3)], "the new query goes on where it was"


def test_the_old_query_is_told_and_a_swap_is_done_once(store: ViewStore, where: str) -> None:
    fill(store, CARDS, "old", 0, {"a": 1}, "v1")
    fill(store, NEXT, "new", 0, {"a": 2}, "v2")
    with store.swapping(["cards"], ["old", "never written"]):
        pass
    with store.swapping(["cards"], ["old", "never written"]) as again:
        assert again is None
    for query in ("old", "never written"):
        with pytest.raises(ViewsRebuilt, match="Start the job again"):
            fill(store, CARDS, query, 1, {"a": 9}, "v1")
        with pytest.raises(ViewsRebuilt):
            store.written(query)
    assert rows(where) == [("a", 2)]


def test_a_swap_that_fails_changes_nothing(store: ViewStore, where: str) -> None:
    fill(store, CARDS, "old", 0, {"a": 1}, "v1")
    fill(store, NEXT, "new", 0, {"a": 2}, "v2")
    with pytest.raises(MillstreamError, match="the log"), store.swapping(["cards"], ["old"]):
        raise MillstreamError("the log is not there")
    assert rows(where) == [("a", 1)]
    fill(store, CARDS, "old", 1, {"a": 3}, "v1")
    store.forget_rebuilt(["cards"])
    with store.swapping(["cards"], []) as applied:
        assert applied is None
    assert rows(where) == [("a", 3)]


def columns(where: str) -> dict[str, list[str]]:
    """The columns of every view that a reader finds."""
    reader = open_reader(where)
    try:
        return {view.name: [name for name, _ in view.columns] for view in reader.described()}
    finally:
        reader.close()


def test_a_view_has_its_new_columns_and_order_from_the_swap_on(store: ViewStore, where: str) -> None:
    fill(store, CARDS, "old", 0, {"a": 1, "b": 1}, "v1")
    wider = replace(CARDS, columns=(*CARDS.columns, ("seq", "bigint")), order="seq")
    built = replace(wider, name=NEXT.name)
    store.check(wider)
    store.prepare(built)
    store.apply("new", 0, [Changes(built, [("a", 2, "v2", 5), ("b", 2, "v2", 5)], [False, True])])
    assert columns(where) == {"cards": ["card", "n", "code"]}, "what is there stays as it is"
    fill(store, CARDS, "old", 1, {"b": 3}, "v1")
    with store.swapping(["cards"], ["old"]):
        pass
    assert columns(where) == {"cards": ["card", "n", "code", "seq"]}
    assert rows(where, "SELECT * FROM cards") == [("a", 2, "v2", 5)]
    store.apply("new", 1, [Changes(wider, [("a", 3, "v2", 4), ("b", 3, "v2", 4)], [False, False])])
    assert rows(where, "SELECT * FROM cards") == [("a", 2, "v2", 5)], "both are older than what is known"


def test_a_view_that_is_new_is_there_from_the_swap_on_and_is_the_jobs(store: ViewStore, where: str) -> None:
    new = replace(CARDS, name="more", order="n", job="spending")
    store.check(new)
    built = replace(new, name=beside("next", "more"))
    store.prepare(built)
    store.apply("new", 0, [Changes(built, [("a", 1, "v2")], [False])])
    assert list(columns(where)) == ["cards"]
    with store.swapping(["cards", "more"], []):
        pass
    assert rows(where, "SELECT * FROM more") == [("a", 1, "v2")]
    store.apply("new", 1, [Changes(new, [("a", 0, "v2")], [False])])
    assert rows(where, "SELECT * FROM more") == [("a", 1, "v2")]
    with pytest.raises(TopologyError, match="belongs to job 'spending'"):
        store.check(replace(new, job="another"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": ("code",)}, "has the key card, not code"),
        ({"columns": (("card", "string"), ("n", "string"), ("code", "string"))}, "column 'n' of view"),
        ({"name": "millstream_owners"}, "is not a view of a pipeline"),
    ],
)
def test_what_could_not_be_swapped_is_refused_before_it_is_built(
    store: ViewStore, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(TopologyError, match=says):
        store.check(replace(CARDS, **change))


def test_a_held_query_waits_before_it_writes_and_goes_on_when_the_time_is_over(
    store: ViewStore, where: str
) -> None:
    fill(store, CARDS, "old", 0, {"a": 1}, "v1")
    holder = open_store(where)
    holder.hold(["old"], 60)
    assert store.held("old")
    assert not store.held("new")
    writing = threading.Thread(target=fill, args=(store, CARDS, "old", 1, {"a": 2}, "v1"))
    writing.start()
    fill(holder, NEXT, "new", 0, {"a": 7}, "v2")  # others go on
    assert rows(where) == [("a", 1)]
    holder.hold(["old"], 0)
    writing.join(90)
    assert not writing.is_alive()
    assert rows(where) == [("a", 2)]
    holder.hold(["old"], 0.2)
    fill(store, CARDS, "old", 2, {"a": 3}, "v1")  # nobody lets it go on: it runs out
    assert rows(where) == [("a", 3)]
    holder.close()


def test_watchers_see_what_is_different_and_nothing_else(store: ViewStore, where: str) -> None:
    fill(store, CARDS, "old", 0, {"a": 1, "b": 1, "c": 1}, "v1")
    fill(store, NEXT, "new", 0, {"a": 1, "c": 5, "d": 1}, "v1")
    with Watcher(where, "cards", start="now") as watcher:
        with store.swapping(["cards"], ["old"]):
            pass
        found = [(one.kind, one.key["card"], one.new and one.new["n"], one.query) for one in watcher.read(5)]
    assert found == [
        ("delete", "b", None, "rebuilt"),
        ("update", "c", 5, "rebuilt"),
        ("insert", "d", 1, "rebuilt"),
    ]


def test_columns_come_and_go_with_the_code(store: ViewStore, where: str) -> None:
    fill(store, CARDS, "old", 0, {"a": 1, "b": 1}, "v1")
    other = View("cards", (("card", "string"), ("code", "string"), ("rule", "string")), ("card",))
    store.forget_rebuilt(["cards"])
    store.prepare(other)
    store.prepare(replace(other, name=NEXT.name))
    store.apply("new", 0, [Changes(replace(other, name=NEXT.name), [("a", "v2", "burst")], [False])])
    with store.swapping(["cards"], ["old"]):
        pass
    assert rows(where, "SELECT card, n, code, rule FROM cards") == [("a", None, "v2", "burst")]


def test_another_key_is_refused_before_anything_is_built(store: ViewStore) -> None:
    with pytest.raises(TopologyError, match="has the key card, not code"):
        store.prepare(replace(CARDS, key=("code",)))


def test_readers_never_fail_and_never_see_a_mixture(store: ViewStore, where: str) -> None:
    cards = {f"{number:04}": number for number in range(300)}
    fill(store, CARDS, "v0", 0, cards, "v0")
    reader = open_reader(where)
    seen: list[tuple[object, ...]] = []
    problems: list[BaseException] = []
    ended = threading.Event()

    def look(read: Callable[[], tuple[object, ...]]) -> None:
        try:
            while not ended.is_set():
                seen.append(read())
        except BaseException as problem:
            problems.append(problem)

    def distinct() -> tuple[object, ...]:
        return rows(where, "SELECT count(*), min(code), max(code) FROM cards")[0]

    def keyed() -> tuple[object, ...]:
        (row,) = rows(where, "SELECT 300, code, code FROM cards WHERE card = '0007'")
        return row

    threads = [threading.Thread(target=look, args=(read,)) for read in (distinct, keyed)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 6):
            store.prepare(NEXT)
            fill(store, NEXT, f"v{number}", 0, cards, f"v{number}")
            with store.swapping(["cards"], [f"v{number - 1}"]):
                pass
            wait_for(lambda: (300, f"v{number}", f"v{number}") in seen or problems, what="it was read")  # noqa: B023
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        reader.close()
    assert problems == []
    assert {number for number, _, _ in seen} == {300}
    assert all(first == last for _, first, last in seen), "one version, and not two"


def test_a_transaction_of_a_reader_in_postgresql_goes_on_seeing_the_old_rows(database: str) -> None:
    store = open_store(database)
    store.prepare(CARDS)
    store.prepare(NEXT)
    fill(store, CARDS, "old", 0, {"a": 1}, "v1")
    fill(store, NEXT, "new", 0, {"a": 2}, "v2")
    with psycopg.connect(database) as reading:
        reading.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reading.execute("SELECT 1 FROM millstream_views").fetchall()
        with store.swapping(["cards"], ["old"]):
            pass
        assert reading.execute("SELECT n FROM cards").fetchall() == [(1,)], "not a table without rows"
        reading.rollback()
        assert reading.execute("SELECT n FROM cards").fetchall() == [(2,)]
    store.close()
