"""Views: the latest row of every key, each batch once; the same in SQLite and in PostgreSQL."""

from __future__ import annotations

import datetime
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core.errors import ConfigError, MillstreamError, TopologyError
from millstream.views.address import shown
from millstream.views.opening import open_reader, open_store
from millstream.views.values import time_text
from millstream.views.views import Changes, View, ViewStore
from tests.support.postgres import Postgres, postgres

CARDS = View("cards", (("card", "string"), ("n", "bigint"), ("at", "timestamp")), ("card",), order="at")


Read = Callable[..., list[tuple[object, ...]]]


def moment(second: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC)


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
    yield store
    store.close()


@pytest.fixture
def rows(where: str) -> Callable[..., list[tuple[object, ...]]]:
    """What a reader finds."""

    def read(sql: str = "SELECT card, n FROM cards ORDER BY card") -> list[tuple[object, ...]]:
        reader = open_reader(where)
        try:
            return reader.query(sql)[1]
        finally:
            reader.close()

    return read


def change(*entries: tuple[str | None, int, int], delete: bool = False) -> Changes:
    return Changes(CARDS, [(card, n, moment(at)) for card, n, at in entries], [delete] * len(entries))


def test_a_row_is_inserted_and_then_updated_by_its_key(store: ViewStore, rows: Read) -> None:
    store.apply("q", 0, [change(("a", 1, 1), ("b", 1, 1))])
    store.apply("q", 1, [change(("a", 2, 2))])
    assert rows() == [("a", 2), ("b", 1)]


def test_a_batch_that_is_run_again_changes_nothing(store: ViewStore, rows: Read) -> None:
    assert store.apply("q", 3, [change(("a", 1, 1))]) == 0
    assert store.apply("q", 3, [change(("a", 99, 9))]) is None
    assert store.apply("q", 2, [change(("a", 99, 9))]) is None
    assert rows() == [("a", 1)]


def test_another_query_counts_its_batches_for_itself(store: ViewStore, rows: Read) -> None:
    store.apply("old checkpoint", 7, [change(("a", 1, 1))])
    assert store.apply("new checkpoint", 0, [change(("a", 2, 2))]) == 0
    assert rows() == [("a", 2)]


def test_within_a_batch_and_across_batches_the_later_row_wins(store: ViewStore, rows: Read) -> None:
    store.apply("q", 0, [change(("a", 3, 3), ("a", 1, 1))])
    store.apply("q", 1, [change(("a", 2, 2))])
    assert rows() == [("a", 3)]


def test_a_deleted_key_goes_and_may_come_back(store: ViewStore, rows: Read) -> None:
    store.apply("q", 0, [change(("a", 1, 1), ("b", 1, 1))])
    store.apply("q", 1, [change(("a", 0, 2), delete=True)])
    assert rows() == [("b", 1)]
    mixed = Changes(
        CARDS, [("a", 5, moment(5)), ("b", 0, moment(4)), ("a", 4, moment(3))], [False, True, True]
    )
    store.apply("q", 2, [mixed])
    assert rows() == [("a", 5)]


def test_rows_without_a_key_are_counted_and_left_out(store: ViewStore, rows: Read) -> None:
    assert store.apply("q", 0, [change((None, 1, 1), ("a", 1, 1))]) == 1
    assert rows() == [("a", 1)]


def test_a_batch_that_fails_half_way_leaves_nothing(store: ViewStore, rows: Read) -> None:
    broken = Changes(CARDS, [("a", 1, moment(1)), ("b", 2)], [False, False])
    with pytest.raises((IndexError, ValueError)):
        store.apply("q", 0, [change(("z", 1, 1)), broken])
    assert rows() == []
    assert store.apply("q", 0, [change(("a", 1, 1))]) == 0


def test_new_columns_are_added_and_another_key_is_refused(store: ViewStore, rows: Read) -> None:
    store.apply("q", 0, [change(("a", 1, 1))])
    wider = View("cards", (*CARDS.columns, ("rule", "string")), ("card",), order="at")
    store.prepare(wider)
    store.apply("q", 1, [Changes(wider, [("b", 1, moment(1), "burst")], [False])])
    assert rows("SELECT card, rule FROM cards ORDER BY card") == [
        ("a", None),
        ("b", "burst"),
    ]
    with pytest.raises(TopologyError, match="has the key card, not n"):
        store.prepare(View("cards", CARDS.columns, ("n",)))


def test_a_view_belongs_to_one_job(store: ViewStore, where: str, rows: Read) -> None:
    def ours(job: str, *more: tuple[str, str]) -> View:
        return View("owned", (*CARDS.columns, *more), CARDS.key, "at", job=job)

    store.prepare(ours("fraud"))
    store.prepare(ours("fraud", ("rule", "string")))
    with pytest.raises(
        TopologyError,
        match=r"b.py:7: view 'owned' in .* belongs to job 'fraud', not to 'search'; .* view drop owned",
    ):
        store.prepare(ours("search", ("added", "string")), where="b.py:7")
    rows("SELECT rule FROM owned")
    with pytest.raises(MillstreamError, match="added"):
        rows("SELECT added FROM owned")
    store.drop("owned")
    store.prepare(ours("search"))


def test_a_rebuild_of_the_same_job_takes_its_view_over(store: ViewStore, rows: Read) -> None:
    old = View("cards", CARDS.columns, CARDS.key, "at", job="fraud")
    built = View("millstream_next_cards", CARDS.columns, CARDS.key, "at", job="fraud")
    for view in (old, built):  # as a rebuild does, beside the job that is running
        store.prepare(view)
    store.apply("new", 0, [Changes(built, [("a", 1, moment(1))], [False])])
    with store.swapping(["cards"], ["old"]):
        pass
    assert rows() == [("a", 1)]
    with pytest.raises(TopologyError, match="belongs to job 'fraud', not to 'other'"):
        store.prepare(View("cards", CARDS.columns, CARDS.key, "at", job="other"))


def test_values_are_kept_in_a_form_that_sorts_and_reads(store: ViewStore, rows: Read) -> None:
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
    assert rows("SELECT * FROM all_kinds") == [
        (1, 1.5, "[1, 2]", b"\x00", "2026-01-01T00:00:05.000000Z", "2026-01-02")
    ]
    assert time_text(moment(5).astimezone(datetime.timezone(datetime.timedelta(hours=3)))) == time_text(
        moment(5)
    )


def test_a_reader_asks_by_sql_and_by_key_and_can_change_nothing(store: ViewStore, where: str) -> None:
    store.apply("q", 0, [change(("a", 1, 1), ("b", 2, 2))])
    reader = open_reader(where)
    assert reader.views() == [("cards", ("card",), 2)]
    assert reader.query("SELECT sum(n) AS total FROM cards") == (["total"], [(3,)])
    assert reader.get("cards", ["b"])[1][0][:2] == ("b", 2)
    assert reader.get("cards", ["nobody"])[1] == []
    for sql in ("DELETE FROM cards", "DROP TABLE cards", "SELECT * FROM crads", "COMMIT; DROP TABLE cards"):
        with pytest.raises(MillstreamError):
            reader.query(sql)
    assert len(reader.all("cards")[1]) == 2
    with pytest.raises(MillstreamError, match="there is no view 'x'"):
        reader.get("x", ["a"])
    with pytest.raises(MillstreamError, match="a value for each"):
        reader.get("cards", ["a", "b"])
    reader.close()
    store.drop("cards")
    with pytest.raises(MillstreamError, match="there is no view"):
        store.drop("cards")


def test_a_binary_key_is_asked_for_in_base64_as_it_is_shown(where: str) -> None:
    hashes = View("hashes", (("hash", "binary"), ("n", "int")), ("hash",))
    store = open_store(where)
    store.prepare(hashes)
    store.apply("q", 0, [Changes(hashes, [(b"\x00\xff'", 1), (b"", 2)], [False, False])])
    store.close()
    reader = open_reader(where)
    assert reader.get("hashes", ["AP8n"])[1] == [(b"\x00\xff'", 1)]
    assert reader.get("hashes", [""])[1] == [(b"", 2)]
    with pytest.raises(MillstreamError, match="'hash' is binary: give its value in base64"):
        reader.get("hashes", ["\x00\xff'"])
    reader.close()


def test_readers_see_a_batch_whole_and_are_not_held_up(store: ViewStore, where: str) -> None:
    store.apply("q", 0, [change(("a", 1, 1), ("b", 1, 1))])
    reader = open_reader(where)
    for number in range(1, 4):
        store.apply("q", number, [change(("a", number, number), ("b", number, number))])
        assert reader.query("SELECT DISTINCT n FROM cards")[1] == [(number,)]
    reader.close()


def test_what_is_no_database_of_views_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MillstreamError, match="there are no views"):
        open_reader(tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("hello, this is not SQLite" * 100)
    with pytest.raises(MillstreamError, match="not a database of views"):
        open_reader(tmp_path / "text.db")
    sqlite3.connect(tmp_path / "other.db").close()
    with pytest.raises(MillstreamError, match="not a database of views"):
        open_reader(tmp_path / "other.db")
    with pytest.raises(MillstreamError, match="can't be kept in mysql"):
        open_store("mysql://localhost/views")


_entries = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 99), st.none() | st.integers(0, 59), st.booleans()),
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_entries, max_size=6), st.booleans(), st.randoms())
def test_batches_run_again_at_random_end_as_if_each_had_run_once_in_both_databases(
    tmp_path_factory: pytest.TempPathFactory,
    database: str,
    batches: list[list[tuple[str, int, int | None, bool]]],
    ordered: bool,
    chance: object,
) -> None:
    view = View(f"v_{uuid.uuid4().hex}", CARDS.columns, CARDS.key, order="at" if ordered else None)
    once, again = tmp_path_factory.mktemp("once") / "views.db", tmp_path_factory.mktemp("again") / "views.db"
    found = []
    for where, repeats in ((once, False), (again, True), (database, True)):
        store = open_store(where)
        store.prepare(view)
        for number, batch in enumerate(batches):
            entries = [(card, n, None if at is None else moment(at)) for card, n, at, _ in batch]
            for _ in range(1 + chance.randrange(3) * repeats):  # type: ignore[attr-defined]
                store.apply("q" + view.name, number, [Changes(view, entries, [gone for *_, gone in batch])])
        store.close()
        reader = open_reader(where)
        found.append(sorted(reader.all(view.name)[1]))
        reader.close()
    assert found[0] == found[1] == found[2]


# ---- PostgreSQL's own --------------------------------------------------------------------------------


def test_columns_have_the_types_that_a_reader_of_postgresql_expects(database: str) -> None:
    kinds = {
        "boolean": "boolean",
        "tinyint": "smallint",
        "int": "integer",
        "bigint": "bigint",
        "float": "real",
        "double": "double precision",
        "string": "text",
        "varchar(10)": "text",
        "binary": "bytea",
        "decimal(38,18)": "numeric(38,18)",
        "date": "date",
        "timestamp": "timestamp with time zone",
        "timestamp_ntz": "timestamp without time zone",
        "array<int>": "jsonb",
        "map<string,int>": "jsonb",
        "struct<a:int>": "jsonb",
    }
    view = View(
        'all "kinds" 100%', tuple((f"c{at} %", kind) for at, kind in enumerate(kinds)), ("c1 %", "c13 %")
    )
    naive = datetime.datetime(2026, 1, 1, 12)  # noqa: DTZ001
    row = (True, 1, 2, 3, 0.5, float("nan"), "text \t\n\\N", "v", b"\xff\x00", Decimal("1.5"))
    row += (naive.date(), moment(7), naive, [1], {"a": 1}, {"a": None})
    for _ in range(2):
        store = open_store(database)
        store.prepare(view)
        assert store.apply(f"{_}", 0, [Changes(view, [row, row], [False, False])]) == 0
        store.close()
    with psycopg.connect(database) as connection:
        types = connection.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
            ('"all ""kinds"" 100%"',),
        ).fetchall()
        assert [kind for (kind,) in types] == list(kinds.values())
        (kept,) = connection.execute('SELECT * FROM "all ""kinds"" 100%"').fetchall()
        assert kept[:5] == row[:5]
        assert kept[6:] == row[6:]
    reader = open_reader(database)
    assert reader.get(view.name, ["1", "[1]"])[1][0][6] == row[6]
    assert reader.query("SELECT 100 % 7 AS rest") == (["rest"], [(2,)])
    reader.close()


def test_a_column_of_another_type_and_a_table_of_somebody_else_are_refused(database: str) -> None:
    store = open_store(database)
    store.prepare(CARDS)
    other = View("cards", (("card", "string"), ("n", "double"), ("at", "timestamp")), ("card",))
    with pytest.raises(TopologyError, match=r"here.py:3: column 'n' .* is bigint, not double precision"):
        store.prepare(other, where="here.py:3")
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE theirs (a int)")
    with pytest.raises(TopologyError, match="not a view of a pipeline"):
        store.prepare(View("theirs", CARDS.columns, CARDS.key))
    with pytest.raises(TopologyError, match="too long a name"):
        store.prepare(View("x" * 64, CARDS.columns, CARDS.key))
    with pytest.raises(MillstreamError, match="NUL"):
        store.apply("q", 0, [change(("a\0b", 1, 1))])
    assert store.apply("q", 0, [change(("a", 1, 1))]) == 0, "a refused batch leaves nothing behind"
    store.close()


def test_a_server_that_is_killed_and_comes_back_has_every_batch_once(postgres_server: Postgres) -> None:
    with postgres() as server:
        url = server.create_database("views")
        store = open_store(url)
        store.prepare(CARDS)
        for number in range(6):
            store.apply("q", number, [change(*((f"{number}-{card}", number, 1) for card in range(50)))])
            server.kill()
            server.start()
        store.close()
        reader = open_reader(url)
        assert reader.query("SELECT n, count(*) FROM cards GROUP BY n ORDER BY n")[1] == [
            (number, 50) for number in range(6)
        ]
        reader.close()


def test_a_database_that_can_t_be_reached_is_said_without_its_password(postgres_server: Postgres) -> None:
    with pytest.raises(MillstreamError, match=r"can't reach postgresql://me@127\.0\.0\.1:1/db: ") as raised:
        open_store("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=2")
    assert "secret" not in str(raised.value)
    with pytest.raises(MillstreamError, match='database "nowhere" does not exist'):
        open_reader(postgres_server.database("nowhere"))
    with pytest.raises(MillstreamError, match="there are no views in postgresql://"):
        open_reader(postgres_server.url)
    with pytest.raises(ConfigError, match="--views"):
        open_store("postgresql://[broken/db?x=y")
    assert shown("postgresql://me:secret@host:5432/db?password=x") == "postgresql://me@host:5432/db"
