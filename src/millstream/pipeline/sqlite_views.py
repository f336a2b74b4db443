"""Views in a SQLite database: a file beside the job's checkpoint, where nothing else is wanted."""

from __future__ import annotations

import datetime
import decimal
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.view_query import (
    LONGEST_VALUE,
    READS,
    Answer,
    Ask,
    Limits,
    QueryRefused,
    collected,
    place_of,
    too_slow,
)
from millstream.pipeline.view_sql import PART, VERSION
from millstream.pipeline.view_store import TABLES, Reader, Store
from millstream.pipeline.views import (
    Rows,
    View,
    beside,
    is_ours,
    json_text,
    quoted_name,
    quoted_text,
    time_text,
)

T = TypeVar("T")

_AFFINITY = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint"), "INTEGER"),
    **dict.fromkeys(("float", "double"), "REAL"),
    "binary": "BLOB",
    "decimal": "NUMERIC",
}
_AS_THEY_ARE = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string")
# Times are ISO text in UTC, so that their order is that of time.
_FORMS: dict[str, Callable[[Any], Any]] = {"timestamp": time_text, "binary": bytes, "decimal": str}
_LOOK_EVERY = 0.05  # seconds; one look is a read of shared memory


class SqliteStore(Store):
    """The views of a file, for the one process that writes it."""

    _differ = "IS NOT"
    _for_update = ""  # whoever writes has the database to itself

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.where = str(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # foreachBatch calls from threads of Spark's.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(TABLES)
        except sqlite3.Error as error:
            raise MillstreamError(f"can't keep views in {path}: {error}") from None

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @property
    def _clock(self) -> str:  # type: ignore[override]
        return f"{time.time():.6f}"

    def _run(self, sql: str) -> int:
        return self._db.execute(sql).rowcount

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _again(self, action: Callable[[], T]) -> T:
        return action()

    def _temporary(self, name: str, select: str) -> None:
        self._run(f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} AS {select}")
        self._run(f"DELETE FROM temp.{name}")

    def _fill(self, stage: str, rows: list[tuple[Any, ...]]) -> None:
        self._db.executemany(f"INSERT INTO temp.{stage} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def _columns(self, table: str) -> dict[str, str]:
        return {row[1]: row[2] for row in self._ask(f"PRAGMA table_info({quoted_name(table)})")}

    def _form(self, kind: str) -> Callable[[Any], Any] | None:
        base = kind.partition("(")[0].partition("<")[0]
        return None if base in _AS_THEY_ARE else _FORMS.get(base, _stored)

    def _read(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return row

    def _tell(self, view: str) -> None:
        """Whoever follows sees it by himself (``SqliteReader.wait``)."""

    def _create(self, view: View, where: str | None) -> None:
        if self._columns(view.name):
            raise TopologyError(
                f"there is a table {view.name!r} in {self.where} that is not a view of a pipeline's; give the"
                " view another name",
                where=where,
            )
        columns = ", ".join(f"{quoted_name(name)} {_affinity(kind)}" for name, kind in view.columns)
        key = ", ".join(map(quoted_name, view.key))
        self._run(f"CREATE TABLE {quoted_name(view.name)} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
        if not is_ours(view.name):
            self._run(
                f"CREATE TABLE {quoted_name(beside('changes', view.name))} ({VERSION} INTEGER,"
                f" {PART} INTEGER, {columns})"
            )
            self._run(
                f"CREATE INDEX {quoted_name(beside('by_version', view.name))}"
                f" ON {quoted_name(beside('changes', view.name))} ({VERSION})"
            )

    def _widen(self, view: View, there: dict[str, str], where: str | None) -> None:
        known = {name.lower() for name in there}
        for name, kind in view.columns:
            if name.lower() not in known:
                for table in (view.name, *([] if is_ours(view.name) else [beside("changes", view.name)])):
                    self._run(
                        f"ALTER TABLE {quoted_name(table)} ADD COLUMN {quoted_name(name)} {_affinity(kind)}"
                    )
        self._tables.pop(view, None)


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

_LOOK_AT_CLOCK = 10_000  # steps of SQLite's machine between two looks; less than a millisecond
_MAY = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def _may(action: int, first: str | None, second: str | None, *where: str | None) -> int:
    """What SQL of others may do. A database that is open for reading could still attach another file."""
    allowed = action in _MAY and not (action == sqlite3.SQLITE_FUNCTION and second == "load_extension")
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


class SqliteReader(Reader):
    """The same database, read-only, beside the job that writes it."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        if not path.is_file():
            raise MillstreamError(f"there are no views in {path}; a pipeline with .to_view(...) makes them")
        self._db = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10, isolation_level=None
        )
        try:
            self._db.execute("PRAGMA query_only = ON")
            self._found("SELECT version FROM millstream_views LIMIT 1")
            self._seen = self._data_version()
        except sqlite3.Error as error:
            raise MillstreamError(f"{path} is not a database of views: {error}") from None

    def close(self) -> None:
        self._db.close()

    def views(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Name, key columns and number of rows of every view."""
        with self._snapshot():
            found = self._db.execute(
                "SELECT name, key_columns FROM millstream_views ORDER BY name"
            ).fetchall()
            return [
                (
                    name,
                    tuple(json.loads(key)),
                    self._db.execute(f"SELECT count(*) FROM {quoted_name(name)}").fetchone()[0],
                )
                for name, key in found
                if not is_ours(name)
            ]

    def query(self, sql: str) -> Rows:
        """Columns and rows of any SELECT. The database is open for reading only, whatever the SQL says."""
        try:
            return self._found(sql)
        except sqlite3.Error as error:
            names = ", ".join(name for name, _, _ in self.views()) or "none"
            raise MillstreamError(f"{error}; the views in {self.where} are: {names}") from None

    @contextmanager
    def asking(self, limits: Limits) -> Iterator[Ask]:
        """Questions by others: about one moment, and within limits. They raise QueryRefused."""
        deadline = time.monotonic() + limits.seconds

        def ask(sql: str) -> Answer:
            try:
                with closing(self._db.execute(sql)) as cursor:
                    if cursor.description is None:
                        raise QueryRefused(READS, sql)
                    rows, cut = collected(cursor, limits)
                    return Answer([column[0] for column in cursor.description], rows, cut)
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
                if time.monotonic() > deadline:
                    raise too_slow(sql, limits) from None
                raise self._refused(sql, str(error)) from None

        with self._snapshot():
            longest = self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            self._db.set_progress_handler(lambda: time.monotonic() > deadline, _LOOK_AT_CLOCK)
            self._db.set_authorizer(_may)
            try:
                yield ask
            finally:
                self._db.set_authorizer(None)
                self._db.set_progress_handler(None, 0)
                self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)

    def _refused(self, sql: str, complaint: str) -> QueryRefused:
        if any(word in complaint for word in ("authoriz", "prohibited", "one statement")):
            return QueryRefused(READS, sql)
        return QueryRefused(complaint, sql, place_of(complaint, sql, self._complaint))

    def _complaint(self, sql: str) -> str | None:
        """What is wrong with SQL, which is not run."""
        try:
            self._db.execute(f"EXPLAIN {sql}").close()
        except (sqlite3.Error, sqlite3.Warning) as error:
            return str(error)
        return None

    def all(self, name: str) -> Rows:
        """Every row of a view, by key."""
        return self.query(f"SELECT * FROM {quoted_name(name)}")

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key."""
        return self.query(f"SELECT * FROM {quoted_name(name)} WHERE {self.key_condition(name, key)}")

    def key_condition(self, name: str, key: Sequence[str]) -> str:
        """The SQL condition that picks a key's row."""
        wanted = self._key(name, key)
        kinds = self._columns(name)
        # Compared as what the column holds: by its text, every row would have to be looked at.
        return " AND ".join(
            f"{quoted_name(column)} = CAST({quoted_text(value)} AS {kinds[column]})"
            for column, value in wanted
        )

    def _columns(self, table: str) -> dict[str, str]:
        return {row[1]: row[2] for row in self._db.execute(f"PRAGMA table_info({quoted_name(table)})")}

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
        except sqlite3.Error as error:
            raise MillstreamError(f"{error} (in {self.where})") from None
        finally:
            self._db.execute("ROLLBACK")

    def _found(self, sql: str) -> Rows:
        with closing(self._db.execute(sql)) as cursor:
            if cursor.description is None:
                raise MillstreamError("only queries that return rows, SELECT for example")
            return [column[0] for column in cursor.description], cursor.fetchall()

    def wait(self, timeout: float) -> None:
        """Until something was written: SQLite keeps a number that changes with every commit of others."""
        deadline = time.monotonic() + timeout
        while (seen := self._data_version()) == self._seen and time.monotonic() < deadline:
            time.sleep(min(_LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        self._seen = seen

    def _data_version(self) -> int:
        ((number,),) = self._db.execute("PRAGMA data_version").fetchall()
        return int(number)
