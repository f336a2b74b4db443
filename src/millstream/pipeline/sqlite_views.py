"""Views in a SQLite database: a file beside the job's checkpoint, where nothing else is wanted."""

from __future__ import annotations

import datetime
import decimal
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from millstream.errors import MillstreamError
from millstream.pipeline.views import (
    Changes,
    Rows,
    View,
    check_key,
    json_text,
    key_columns,
    on_conflict,
    quoted_name,
    time_text,
)

_TABLES = """
CREATE TABLE IF NOT EXISTS millstream_views (
    name TEXT PRIMARY KEY, key_columns TEXT NOT NULL, order_column TEXT);
CREATE TABLE IF NOT EXISTS millstream_ledger (query TEXT PRIMARY KEY, batch INTEGER NOT NULL);
"""
_AFFINITY = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint"), "INTEGER"),
    **dict.fromkeys(("float", "double"), "REAL"),
    "binary": "BLOB",
    "decimal": "NUMERIC",
}


class SqliteStore:
    """The views of a file, for the one process that writes it."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # foreachBatch calls from threads of Spark's, one batch at a time.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES)
        except sqlite3.Error as error:
            raise MillstreamError(f"can't keep views in {path}: {error}") from None

    def close(self) -> None:
        self._db.close()

    def prepare(self, view: View, *, where: str | None = None) -> None:
        """Make the table, or add the columns that are new. Another key than before is refused."""
        known = self._db.execute(
            "SELECT key_columns FROM millstream_views WHERE name = ?", (view.name,)
        ).fetchone()
        if known is not None:
            check_key(view, json.loads(known[0]), self.where, at=where)
        definitions = [f"{quoted_name(name)} {_affinity(kind)}" for name, kind in view.columns]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if known is None:
                key = ", ".join(map(quoted_name, view.key))
                body = f"{', '.join(definitions)}, PRIMARY KEY ({key})"
                self._db.execute(f"CREATE TABLE {quoted_name(view.name)} ({body}) WITHOUT ROWID")
            else:
                there = {
                    row[1].lower() for row in self._db.execute(f"PRAGMA table_info({quoted_name(view.name)})")
                }
                for (name, _), definition in zip(view.columns, definitions, strict=True):
                    if name.lower() not in there:
                        self._db.execute(f"ALTER TABLE {quoted_name(view.name)} ADD COLUMN {definition}")
            self._db.execute(
                "INSERT OR REPLACE INTO millstream_views VALUES (?, ?, ?)",
                (view.name, json.dumps(view.key), view.order),
            )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def apply(self, query: str, batch: int, changes: Iterable[Changes]) -> int | None:
        """Write a batch. Returns how many rows had no key and were left out; None: it was written before."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            last = self._db.execute(
                "SELECT batch FROM millstream_ledger WHERE query = ?", (query,)
            ).fetchone()
            if last is not None and last[0] >= batch:
                self._db.execute("ROLLBACK")
                return None
            without_key = sum(self._write(change) for change in changes)
            self._db.execute("INSERT OR REPLACE INTO millstream_ledger VALUES (?, ?)", (query, batch))
            self._db.execute("COMMIT")
            return without_key
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def drop(self, name: str) -> None:
        """Remove a view and its rows."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if not self._db.execute("DELETE FROM millstream_views WHERE name = ?", (name,)).rowcount:
                raise MillstreamError(f"there is no view {name!r} in {self.where}")
            self._db.execute(f"DROP TABLE {quoted_name(name)}")
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _write(self, change: Changes) -> int:
        view = change.view
        names = [name for name, _ in view.columns]
        at = [names.index(column) for column in view.key]
        order = None if view.order is None else names.index(view.order)
        keyed = change.keyed()
        upsert, delete = _upsert(view, names), _delete(view)
        run: list[tuple[Any, ...]] = []
        deleting = False
        for row, gone in keyed:
            if gone != deleting and run:
                self._db.executemany(delete if deleting else upsert, run)
                run = []
            deleting = gone
            values = tuple(map(_stored, row))
            if gone:
                run.append((*(values[i] for i in at), *([values[order]] * 2 if order is not None else ())))
            else:
                run.append(values)
        if run:
            self._db.executemany(delete if deleting else upsert, run)
        return len(change.rows) - len(keyed)


def _upsert(view: View, names: list[str]) -> str:
    columns, marks = ", ".join(map(quoted_name, names)), ", ".join("?" * len(names))
    return (
        f"INSERT INTO {quoted_name(view.name)} ({columns}) VALUES ({marks}) ON CONFLICT {on_conflict(view)}"
    )


def _delete(view: View) -> str:
    sql = f"DELETE FROM {quoted_name(view.name)} WHERE " + " AND ".join(
        f"{quoted_name(name)} = ?" for name in view.key
    )
    if view.order is not None:
        column = quoted_name(view.order)
        sql += f" AND ({column} IS NULL OR ? IS NULL OR ? >= {column})"
    return sql


def _affinity(kind: str) -> str:
    return _AFFINITY.get(kind.partition("(")[0].partition("<")[0], "TEXT")


def _stored(value: Any) -> Any:
    """A value of Spark's as SQLite keeps it: times as ISO text in UTC, nested values as JSON."""
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        return time_text(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return json_text(value)


# ---- reading -----------------------------------------------------------------------------------------


class SqliteReader:
    """The same database, read-only, beside the job that writes it."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        if not path.is_file():
            raise MillstreamError(f"there are no views in {path}; a pipeline with .to_view(...) makes them")
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
        try:
            self.views()
        except sqlite3.Error as error:
            raise MillstreamError(f"{path} is not a database of views: {error}") from None

    def close(self) -> None:
        self._db.close()

    def views(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Name, key columns and number of rows of every view."""
        found = self._db.execute("SELECT name, key_columns FROM millstream_views ORDER BY name").fetchall()
        return [
            (
                name,
                tuple(json.loads(key)),
                self._db.execute(f"SELECT count(*) FROM {quoted_name(name)}").fetchone()[0],
            )
            for name, key in found
        ]

    def query(self, sql: str) -> Rows:
        """Columns and rows of any SELECT. The database is open for reading only, whatever the SQL says."""
        try:
            with closing(self._db.execute(sql)) as cursor:
                if cursor.description is None:
                    raise MillstreamError("only queries that return rows, SELECT for example")
                return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.Error as error:
            names = ", ".join(name for name, _, _ in self.views()) or "none"
            raise MillstreamError(f"{error}; the views in {self.where} are: {names}") from None

    def all(self, name: str) -> Rows:
        """Every row of a view, by key."""
        return self.query(f"SELECT * FROM {quoted_name(name)}")

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key."""
        columns = key_columns(self, name, key)
        condition = " AND ".join(f"CAST({quoted_name(column)} AS TEXT) = ?" for column in columns)
        with closing(
            self._db.execute(f"SELECT * FROM {quoted_name(name)} WHERE {condition}", tuple(key))
        ) as cursor:
            return [column[0] for column in cursor.description], cursor.fetchall()
