"""Questions to views by others: nothing is changed, none goes on forever, mistakes are pointed at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.core.errors import MillstreamError
from millstream.views import sqlite_child
from millstream.views.opening import open_reader, open_store
from millstream.views.query import QueryLimits, QueryRefused, QueryResult
from millstream.views.views import Changes, View, ViewReader, ViewStore

CARDS = View("cards", (("card", "string"), ("n", "bigint")), ("card",))
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "SQLite":
        return str(tmp_path / "views of 50% & more.db")
    return str(request.getfixturevalue("database"))


@pytest.fixture
def store(where: str) -> Iterator[ViewStore]:
    store = open_store(where)
    store.prepare(CARDS)
    store.apply("q", 0, [Changes(CARDS, [(f"c{n:03}", n) for n in range(200)], [False] * 200)])
    yield store
    store.close()


@pytest.fixture
def reader(store: ViewStore, where: str) -> Iterator[ViewReader]:
    reader = open_reader(where)
    yield reader
    reader.close()


def ask(reader: ViewReader, sql: str, limits: QueryLimits | None = None) -> QueryResult:
    with reader.asking(limits or QueryLimits()) as asked:
        return asked(sql)


def refusal(reader: ViewReader, sql: str, limits: QueryLimits | None = None) -> QueryRefused:
    with pytest.raises(QueryRefused) as refused:
        ask(reader, sql, limits)
    return refused.value


def test_a_query_is_answered(reader: ViewReader) -> None:
    assert ask(reader, "SELECT card, n * 2 AS twice FROM cards ORDER BY n DESC LIMIT 1;") == QueryResult(
        ["card", "twice"], [("c199", 398)]
    )
    assert ask(reader, "-- nothing\nVALUES (1, NULL)").rows == [(1, None)]
    assert ask(reader, "SELECT card FROM cards WHERE false").columns == ["card"]


def test_answers_are_cut_off_at_so_many_rows_and_bytes(reader: ViewReader) -> None:
    rows = ask(reader, "SELECT * FROM cards ORDER BY card", QueryLimits(rows=150))
    assert (len(rows.rows), rows.cut) == (150, "rows")
    assert ask(reader, "SELECT * FROM cards", QueryLimits(rows=200)).cut is None
    size = ask(reader, "SELECT card FROM cards", QueryLimits(bytes=80))
    assert (len(size.rows), size.cut) == (20, "bytes")


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM cards",
        "SELECT 1; DELETE FROM cards",
        "UPDATE cards SET n = 0 RETURNING n",
        "WITH gone AS (DELETE FROM cards RETURNING n) SELECT * FROM gone",
        "DROP TABLE cards",
        "CREATE TABLE mine (n int)",
        "COMMIT",
        "",
        "-- only a comment",
    ],
)
def test_nothing_is_changed_whatever_the_sql_says(reader: ViewReader, sql: str) -> None:
    refusal(reader, sql)
    assert ask(reader, "SELECT count(*), sum(n) FROM cards").rows == [(200, 19900)]


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH 'other.db' AS other",
        "PRAGMA query_only = OFF",
        "SELECT load_extension('x')",
        "VACUUM INTO 'x'",
    ],
)
def test_a_file_is_not_a_way_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("views.db").close()
    reader = open_reader("views.db")
    try:
        refusal(reader, sql)
    finally:
        reader.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"views.db", "views.db-wal", "views.db-shm"}


def test_what_takes_too_long_is_stopped_and_the_reader_goes_on(reader: ViewReader) -> None:
    assert "took longer than 0.2 s" in refusal(reader, ENDLESS, QueryLimits(seconds=0.2)).reason
    assert ask(reader, "SELECT 1").rows == [(1,)]


def test_the_time_is_for_all_that_is_asked_together(reader: ViewReader) -> None:
    with reader.asking(QueryLimits(seconds=0.2)) as asked:
        assert asked("SELECT 1").rows == [(1,)]
        with pytest.raises(QueryRefused, match="took longer"):
            asked(ENDLESS)


def test_what_is_asked_together_sees_one_moment_and_holds_no_writer_up(
    reader: ViewReader, store: ViewStore
) -> None:
    with reader.asking(QueryLimits()) as asked:
        assert asked("SELECT count(*) FROM cards").rows == [(200,)]
        store.apply("q", 1, [Changes(CARDS, [("new", 1)], [False])])
        assert asked("SELECT count(*) FROM cards").rows == [(200,)]
    assert ask(reader, "SELECT count(*) FROM cards").rows == [(201,)]


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("SELECT card\nFORM cards", 2, 6),  # an alias, and then a word too many
        ("SELECT card, nn FROM cards", 1, 14),
        ("SELECT *\n  FROM card", 2, 8),
        ("SELECT card FROM cards WHERE WHERE n > 1", 1, 30),
        ("SELECT nothing(card) FROM cards", 1, 8),
    ],
)
def test_a_mistake_is_pointed_at(reader: ViewReader, sql: str, line: int, column: int) -> None:
    refused = refusal(reader, sql)
    assert (refused.line, refused.column) == (line, column), refused
    assert str(refused).startswith(f"line {line}, column {column}: ")


def test_views_are_described_without_their_rows(reader: ViewReader, store: ViewStore) -> None:
    (cards,) = reader.described()
    assert (cards.name, cards.key, cards.version, cards.query, cards.batch) == ("cards", ("card",), 1, "q", 0)
    assert [name for name, _ in cards.columns] == ["card", "n"]
    assert cards.at_ms is not None
    assert reader.versions() == {"cards": 1}


def test_one_step_that_takes_long_is_stopped_too(tmp_path: Path) -> None:
    sql = "SELECT instr(hex(zeroblob(4000000)), hex(zeroblob(1000000)) || '1')"  # no look at a clock within
    open_store(str(tmp_path / "views.db")).close()
    reader = open_reader(str(tmp_path / "views.db"))
    try:
        began = time.monotonic()
        assert "took longer than 0.5 s" in refusal(reader, sql, QueryLimits(seconds=0.5)).reason
        assert time.monotonic() - began < 40  # by itself it takes minutes
        assert ask(reader, "SELECT 1").rows == [(1,)]
    finally:
        reader.close()


def test_temporary_files_are_bounded(tmp_path: Path) -> None:
    open_store(str(tmp_path / "views.db")).close()
    reader = open_reader(str(tmp_path / "views.db"))
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000)"
    try:
        refused = refusal(
            reader, f"{many} SELECT hex(i) || hex(zeroblob(100)) AS x FROM n ORDER BY x", QueryLimits(30)
        )
        assert "MB of temporary files" in refused.reason
    finally:
        reader.close()


@pytest.mark.parametrize(
    "function", ["fts3_tokenizer('simple')", "load_extension('x')", "randomblob(1000000)"]
)
def test_functions_that_reach_further_than_values_are_refused(tmp_path: Path, function: str) -> None:
    open_store(str(tmp_path / "views.db")).close()
    reader = open_reader(str(tmp_path / "views.db"))
    try:
        refusal(reader, f"SELECT {function}")
        assert ask(reader, "SELECT upper('a'), printf('%.2f', 1), json_extract('[1]', '$[0]')").rows == [
            ("A", "1.00", 1)
        ]
    finally:
        reader.close()


def test_a_process_that_can_not_start_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_child.sys, "executable", "/bin/false")
    with pytest.raises(MillstreamError, match=r"ended at its start \(exit code 1\)"):
        sqlite_child.Child(str(tmp_path / "views.db"), QueryLimits(5, 10, 1000))
