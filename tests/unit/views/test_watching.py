"""Following a view: every change once, in order, whatever the watcher and the writer do at the same time."""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core.errors import MillstreamError
from millstream.views.address import shown
from millstream.views.opening import open_reader, open_store
from millstream.views.views import Changes, View
from millstream.views.watching import ViewChange, Watcher, watch
from millstream.views.writing import SqlStore
from tests.support.postgres import Postgres, postgres
from tests.support.waiting import wait_for

CARDS = View("cards", (("card", "string"), ("n", "bigint")), ("card",))


def change(*entries: tuple[str, int], view: View = CARDS) -> Changes:
    """Cards and their numbers; a negative one deletes."""
    return Changes(view, list(entries), [n < 0 for _, n in entries])


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where views can be kept."""
    if request.param == "SQLite":
        return str(tmp_path / "views.db")
    return str(request.getfixturevalue("database"))


@pytest.fixture
def store(where: str) -> Iterator[SqlStore]:
    store = open_store(where)
    assert isinstance(store, SqlStore)
    store.prepare(CARDS)
    yield store
    store.close()


def told(changes: list[ViewChange]) -> list[tuple[Any, ...]]:
    return [
        (one.kind, one.key.get("card"), one.old and one.old["n"], one.new and one.new["n"]) for one in changes
    ]


def read(watcher: Watcher, count: int) -> list[ViewChange]:
    """The next so many changes."""
    found: list[ViewChange] = []

    def enough() -> bool:
        found.extend(watcher.read(0.5))
        return len(found) >= count

    wait_for(enough, timeout=90, what=f"{count} changes have come", every=0)
    return found


def test_first_the_rows_that_are_there_and_then_what_changes(store: SqlStore, where: str) -> None:
    store.apply("q", 0, [change(("a", 1), ("b", 1))])
    with Watcher(where, "cards") as watcher:
        assert told(watcher.read(0)) == [("row", "a", None, 1), ("row", "b", None, 1)]
        assert watcher.read(0) == []
        store.apply("q", 1, [change(("a", 2), ("b", -1), ("c", 1))])
        found = read(watcher, 3)
        assert told(found) == [("update", "a", 1, 2), ("delete", "b", 1, None), ("insert", "c", None, 1)]
        assert {(one.query, one.batch, one.version) for one in found} == {("q", 1, 2)}
        assert watcher.read(0) == []


def test_a_watcher_is_woken_by_a_commit(store: SqlStore, where: str) -> None:
    found: list[ViewChange] = []

    def follow() -> None:
        for one in watch(where, "cards"):
            found.append(one)
            if one.new and one.new["n"] == 3:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for batch in range(4):
        store.apply("q", batch, [change(("a", batch))])
    thread.join(90)
    assert not thread.is_alive()
    assert found[-1].new == {"card": "a", "n": 3}


def test_what_changes_nothing_is_no_change(store: SqlStore, where: str) -> None:
    store.apply("q", 0, [change(("a", 1))])
    with Watcher(where, "cards", start="now") as watcher:
        store.apply("q", 1, [change(("a", 1), ("nobody", -1))])
        store.apply("q", 1, [change(("a", 99))])  # run again
        store.apply("q", 2, [change(("a", 7), ("a", 1))])
        store.apply("q", 3, [change(("a", 2))])
        assert told(read(watcher, 1)) == [("update", "a", 1, 2)]


def test_changes_that_are_kept_can_be_read_from_the_start(store: SqlStore, where: str) -> None:
    for batch, n in enumerate((1, 2, -1, 3)):
        store.apply("q", batch, [change(("a", n))])
    with Watcher(where, "cards", start="changes") as watcher:
        assert told(read(watcher, 4)) == [
            ("insert", "a", None, 1),
            ("update", "a", 1, 2),
            ("delete", "a", 2, None),
            ("insert", "a", None, 3),
        ]


def test_a_key_or_a_condition_picks_what_is_followed(store: SqlStore, where: str) -> None:
    store.apply("q", 0, [change(("a", 1), ("b", 9))])
    with (
        Watcher(where, "cards", key=["a"]) as one,
        Watcher(where, "cards", condition="n > 5 OR n = -7") as large,
    ):
        assert told(one.read(0)) == [("row", "a", None, 1)]
        assert told(large.read(0)) == [("row", "b", None, 9)]
        store.apply("q", 1, [change(("a", 6), ("b", 3), ("c", 2))])
        store.apply("q", 2, [change(("a", 7))])
        assert told(read(one, 2)) == [("update", "a", 1, 6), ("update", "a", 6, 7)]
        assert told(read(large, 3)) == [
            ("insert", "a", None, 6),
            ("delete", "b", 9, None),
            ("update", "a", 6, 7),
        ]


def test_who_falls_behind_is_told_and_begins_anew(store: SqlStore, where: str) -> None:
    store.keep_rows = 4
    store.apply("q", 0, [change(("a", 0))])
    with Watcher(where, "cards") as behind, Watcher(where, "cards") as along:
        assert told(behind.read(0)) == told(along.read(0)) == [("row", "a", None, 0)]
        for batch in range(1, 6):
            store.apply("q", batch, [change(("a", batch))])
            assert told(read(along, 1)) == [("update", "a", batch - 1, batch)]
        assert told(behind.read(0)) == [("reset", None, None, None), ("row", "a", None, 5)]
        store.apply("q", 6, [change(("b", 1))])
        assert told(read(behind, 1)) == [("insert", "b", None, 1)]
    reader = open_reader(where)
    ((kept,),) = reader.query("SELECT count(*) FROM millstream_changes_cards")[1]
    assert kept <= 4 + 2
    reader.close()


def test_old_changes_go_even_if_there_are_few(store: SqlStore, where: str) -> None:
    store.apply("q", 0, [change(("a", 0))])
    store.keep_s = -1.0
    store.apply("q", 1, [change(("a", 1))])
    with Watcher(where, "cards", start="changes") as watcher:
        assert watcher.read(0) == []


def test_a_batch_larger_than_what_is_kept_makes_watchers_begin_anew(store: SqlStore, where: str) -> None:
    store.keep_rows = 10
    with Watcher(where, "cards") as watcher:
        store.apply("q", 0, [change(*((f"{number:02}", number) for number in range(11)))])
        found = read(watcher, 12)
        assert [one.kind for one in found] == ["reset", *["row"] * 11]
        store.apply("q", 1, [change(("00", 5))])
        assert told(read(watcher, 1)) == [("update", "00", 0, 5)]


def test_a_view_that_is_removed_or_was_never_there_is_an_error(store: SqlStore, where: str) -> None:
    with Watcher(where, "cards") as watcher:
        store.drop("cards")
        with pytest.raises(MillstreamError, match="there is no view 'cards'"):
            watcher.read(0)
    with pytest.raises(MillstreamError, match="there is no view 'cards'"):
        Watcher(where, "cards")


def test_a_wrong_condition_or_key_is_said_at_once(store: SqlStore, where: str) -> None:
    with pytest.raises(MillstreamError, match="colour"):
        Watcher(where, "cards", condition="colour = 1")
    with pytest.raises(MillstreamError, match=r"the condition 'n >': .*input") as unfinished:
        Watcher(where, "cards", condition="n >")
    assert ")" not in str(unfinished.value).partition(" (in ")[0], "nothing but what was written"
    with Watcher(where, "cards", condition="n > 5 -- large ones"):
        pass
    with pytest.raises(MillstreamError, match="give a value for each"):
        Watcher(where, "cards", key=["a", "b"])
    with pytest.raises(MillstreamError):
        Watcher(where, "cards", condition="true); DROP TABLE cards; --")


def test_columns_that_are_added_are_in_later_changes(store: SqlStore, where: str) -> None:
    store.apply("q", 0, [change(("a", 1))])
    with Watcher(where, "cards", start="now") as watcher:
        wider = View("cards", (*CARDS.columns, ("rule", "string")), ("card",))
        store.prepare(wider)
        store.apply("q", 1, [Changes(wider, [("a", 1, "burst")], [False])])
        (found,) = read(watcher, 1)
        assert found.old == {"card": "a", "n": 1, "rule": None}
        assert found.new == {"card": "a", "n": 1, "rule": "burst"}


def test_values_come_as_a_query_gives_them(store: SqlStore, where: str) -> None:
    kinds = (("k", "int"), ("t", "timestamp"), ("l", "array<int>"), ("b", "binary"), ("d", "decimal(9,2)"))
    view = View("kinds", kinds, ("k",))
    store.prepare(view)
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    with Watcher(where, "kinds") as watcher:
        store.apply("q", 0, [Changes(view, [(1, at, [1, 2], b"\x00", 1)], [False])])
        (found,) = read(watcher, 1)
    reader = open_reader(where)
    columns, (row,) = reader.all("kinds")
    reader.close()
    assert found.new == dict(zip(columns, row, strict=True))


def test_queries_of_one_job_that_write_at_once_wait_for_each_other(store: SqlStore, where: str) -> None:
    views = [View(f"v{number}", CARDS.columns, CARDS.key) for number in range(3)]
    for view in views:
        store.prepare(view)
    problems: list[BaseException] = []

    def write(view: View) -> None:
        try:
            for batch in range(20):
                store.apply(view.name, batch, [change(("a", batch), view=view)])
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(view,)) for view in views]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    for view in views:
        with Watcher(where, view.name) as watcher:
            assert told(watcher.read(0)) == [("row", "a", None, 19)]


_batches = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 3)), max_size=4), min_size=1, max_size=8
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_batches, st.sets(st.integers(0, 7)), st.integers(1, 12))
def test_rows_and_changes_put_together_are_always_the_view(
    store: SqlStore, where: str, batches: list[list[tuple[str, int]]], looks: set[int], keep: int
) -> None:
    """Watchers that begin at any batch, look at some moments only, and may fall off."""
    view = View(f"v_{uuid.uuid4().hex}", CARDS.columns, CARDS.key)
    store.prepare(view)
    store.keep_rows = keep
    copies: list[tuple[Watcher, dict[str, int]]] = []
    for number, batch in enumerate(batches):
        copies.append((Watcher(where, view.name), {}))
        store.apply(view.name, number, [change(*batch, view=view)])
        for watcher, copy in copies:
            if number in looks or number == len(batches) - 1:
                _follow(watcher, copy)
    reader = open_reader(where)
    rows = dict(reader.all(view.name)[1])
    reader.close()
    assert [copy for _, copy in copies] == [rows] * len(copies)
    for watcher, _ in copies:
        watcher.close()


def _follow(watcher: Watcher, copy: dict[str, int]) -> None:
    while changes := watcher.read(0):
        for one in changes:
            if one.kind == "reset":
                copy.clear()
            elif one.new is not None:
                before = None if one.old is None else one.old["n"]
                assert copy.get(one.key["card"]) == before, "what is said to be old is what was told before"
                copy[one.key["card"]] = one.new["n"]
            else:
                assert one.old is not None
                assert copy.pop(one.key["card"]) == one.old["n"]


def test_a_reader_of_postgresql_needs_no_more_than_select(database: str) -> None:
    store = open_store(database)
    store.prepare(CARDS)
    role = f"reader_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}".encode())
    with Watcher(database.replace("millstream@", f"{role}@"), "cards") as watcher:
        store.apply("q", 0, [change(("a", 1))])
        assert told(read(watcher, 1)) == [("insert", "a", None, 1)]
    store.close()


def test_a_server_that_restarts_is_waited_for_and_no_change_is_missed(postgres_server: Postgres) -> None:
    """The fixture says whether there is a PostgreSQL; this one is restarted."""
    with postgres() as server:
        url = server.create_database("views")
        store = open_store(url)
        store.prepare(CARDS)
        store.apply("q", 0, [change(("a", 1))])
        said: list[str] = []
        with Watcher(url, "cards", say=said.append) as watcher:
            assert told(read(watcher, 1)) == [("row", "a", None, 1)]
            server.kill()
            wait_for(lambda: watcher.read(0.1) == [] and said, timeout=60, what="it is noticed")
            server.start()
            store.apply("q", 1, [change(("a", 2))])
            assert told(read(watcher, 1)) == [("update", "a", 1, 2)]
            store.apply("q", 2, [change(("a", 3))])
            assert told(read(watcher, 1)) == [("update", "a", 2, 3)]
        store.close()
        assert "went away" in said[0]
        assert said[1:] == [f"{shown(url)} is back"]
