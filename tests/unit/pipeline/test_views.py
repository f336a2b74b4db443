"""Views: the latest row of every key, each batch once."""

from __future__ import annotations

import datetime
import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.views import Changes, View, ViewReader, ViewStore, drop_view, time_text

CARDS = View("cards", (("card", "string"), ("n", "bigint"), ("at", "timestamp")), ("card",), order="at")


def moment(second: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC)


@pytest.fixture
def store(tmp_path: Path) -> ViewStore:
    store = ViewStore(tmp_path / "views.db")
    store.prepare(CARDS)
    return store


def rows(store: ViewStore) -> list[tuple[str, int]]:
    reader = ViewReader(store.path)
    try:
        return [(card, n) for card, n, _ in reader.all("cards")[1]]
    finally:
        reader.close()


def change(*entries: tuple[str | None, int, int], delete: bool = False) -> Changes:
    return Changes(CARDS, [(card, n, moment(at)) for card, n, at in entries], [delete] * len(entries))


def test_a_row_is_inserted_and_then_updated_by_its_key(store: ViewStore) -> None:
    store.apply("q", 0, [change(("a", 1, 1), ("b", 1, 1))])
    store.apply("q", 1, [change(("a", 2, 2))])
    assert rows(store) == [("a", 2), ("b", 1)]


def test_a_batch_that_is_run_again_changes_nothing(store: ViewStore) -> None:
    assert store.apply("q", 3, [change(("a", 1, 1))]) == 0
    assert store.apply("q", 3, [change(("a", 99, 9))]) is None
    assert store.apply("q", 2, [change(("a", 99, 9))]) is None
    assert rows(store) == [("a", 1)]


def test_another_query_counts_its_batches_for_itself(store: ViewStore) -> None:
    store.apply("old checkpoint", 7, [change(("a", 1, 1))])
    assert store.apply("new checkpoint", 0, [change(("a", 2, 2))]) == 0
    assert rows(store) == [("a", 2)]


def test_within_a_batch_and_across_batches_the_later_row_wins(store: ViewStore) -> None:
    store.apply("q", 0, [change(("a", 3, 3), ("a", 1, 1))])
    store.apply("q", 1, [change(("a", 2, 2))])
    assert rows(store) == [("a", 3)]


def test_a_deleted_key_goes_and_may_come_back(store: ViewStore) -> None:
    store.apply("q", 0, [change(("a", 1, 1), ("b", 1, 1))])
    store.apply("q", 1, [change(("a", 0, 2), delete=True)])
    assert rows(store) == [("b", 1)]
    mixed = Changes(
        CARDS, [("a", 5, moment(5)), ("b", 0, moment(4)), ("a", 4, moment(3))], [False, True, True]
    )
    store.apply("q", 2, [mixed])
    assert rows(store) == [("a", 5)]


def test_rows_without_a_key_are_counted_and_left_out(store: ViewStore) -> None:
    assert store.apply("q", 0, [change((None, 1, 1), ("a", 1, 1))]) == 1
    assert rows(store) == [("a", 1)]


def test_a_batch_that_fails_half_way_leaves_nothing(store: ViewStore) -> None:
    broken = Changes(CARDS, [("a", 1, moment(1)), ("b", 2)], [False, False])
    with pytest.raises(IndexError):
        store.apply("q", 0, [change(("z", 1, 1)), broken])
    assert rows(store) == []
    assert store.apply("q", 0, [change(("a", 1, 1))]) == 0


def test_new_columns_are_added_and_another_key_is_refused(store: ViewStore) -> None:
    store.apply("q", 0, [change(("a", 1, 1))])
    wider = View("cards", (*CARDS.columns, ("rule", "string")), ("card",), order="at")
    store.prepare(wider)
    store.apply("q", 1, [Changes(wider, [("b", 1, moment(1), "burst")], [False])])
    assert store._db.execute("SELECT card, rule FROM cards ORDER BY card").fetchall() == [
        ("a", None),
        ("b", "burst"),
    ]
    with pytest.raises(TopologyError, match="has the key card, not n"):
        store.prepare(View("cards", CARDS.columns, ("n",)))


def test_values_are_kept_in_a_form_that_sorts_and_reads(store: ViewStore) -> None:
    view = View(
        "all_kinds",
        (
            ("k", "int"),
            ("d", "decimal(9,2)"),
            ("l", "array<int>"),
            ("b", "binary"),
            ("t", "timestamp"),
            ("x", "date"),
        ),
        ("k",),
    )
    store.prepare(view)
    row = (1, Decimal("1.50"), [1, 2], bytearray(b"\x00"), moment(5), datetime.date(2026, 1, 2))
    store.apply("q", 0, [Changes(view, [row], [False])])
    assert store._db.execute("SELECT * FROM all_kinds").fetchone() == (
        1,
        1.5,
        "[1, 2]",
        b"\x00",
        "2026-01-01T00:00:05.000000Z",
        "2026-01-02",
    )
    assert time_text(moment(5).astimezone(datetime.timezone(datetime.timedelta(hours=3)))) == time_text(
        moment(5)
    )


def test_a_reader_asks_by_sql_and_by_key_and_can_change_nothing(store: ViewStore) -> None:
    store.apply("q", 0, [change(("a", 1, 1), ("b", 2, 2))])
    reader = ViewReader(store.path)
    assert reader.views() == [("cards", ("card",), 2)]
    assert reader.query("SELECT sum(n) AS total FROM cards") == (["total"], [(3,)])
    assert reader.get("cards", ["b"])[1][0][:2] == ("b", 2)
    assert reader.get("cards", ["nobody"])[1] == []
    for sql in ("DELETE FROM cards", "DROP TABLE cards", "SELECT * FROM crads"):
        with pytest.raises(MillstreamError, match="the views in"):
            reader.query(sql)
    with pytest.raises(MillstreamError, match="there is no view 'x'"):
        reader.get("x", ["a"])
    with pytest.raises(MillstreamError, match="a value for each"):
        reader.get("cards", ["a", "b"])
    reader.close()
    drop_view(store.path, "cards")
    with pytest.raises(MillstreamError, match="there is no view"):
        drop_view(store.path, "cards")


def test_what_is_no_database_of_views_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MillstreamError, match="there are no views"):
        ViewReader(tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("hello, this is not SQLite" * 100)
    with pytest.raises(MillstreamError, match="not a database of views"):
        ViewReader(tmp_path / "text.db")
    sqlite3.connect(tmp_path / "other.db").close()
    with pytest.raises(MillstreamError, match="not a database of views"):
        ViewReader(tmp_path / "other.db")


_entries = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 99), st.integers(0, 59), st.booleans()), max_size=8
)


@settings(max_examples=40, deadline=None)
@given(st.lists(_entries, max_size=6), st.randoms())
def test_batches_run_again_at_random_end_as_if_each_had_run_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int, int, bool]]], chance: object
) -> None:
    once = ViewStore(tmp_path_factory.mktemp("once") / "views.db")
    again = ViewStore(tmp_path_factory.mktemp("again") / "views.db")
    for store in (once, again):
        store.prepare(CARDS)
    for number, batch in enumerate(batches):
        made = Changes(
            CARDS, [(card, n, moment(at)) for card, n, at, _ in batch], [gone for *_, gone in batch]
        )
        once.apply("q", number, [made])
        for _ in range(1 + chance.randrange(3)):  # type: ignore[attr-defined]
            again.apply("q", number, [made])
    assert rows(once) == rows(again)
    once.close()
    again.close()
