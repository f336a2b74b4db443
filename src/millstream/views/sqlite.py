"""Views in a SQLite database: a file next to the job's checkpoint, which needs no server."""

from __future__ import annotations

import datetime
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from decimal import MAX_PREC, Decimal, localcontext
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from millstream.core.errors import MillstreamError
from millstream.views.merge_sql import PART, VERSION
from millstream.views.naming import beside, is_ours, quoted_name, quoted_text
from millstream.views.query import (
    READS,
    QueryLimits,
    QueryRefused,
    QueryResult,
    RunQuery,
    collected,
    place_of,
    too_slow,
)
from millstream.views.reading import SqlReader
from millstream.views.refusals import not_taken
from millstream.views.sqlite_child import LOOK_AT_CLOCK, Child
from millstream.views.values import (
    COLLATION,
    EXACT,
    NESTED,
    TEXTS,
    JsonText,
    base_of,
    compare_decimals,
    decimal_text,
    digits_of,
    is_number,
    key_bytes,
    local_time_text,
    time_text,
)
from millstream.views.views import Rows, View
from millstream.views.writing import TABLES, SqlStore

T = TypeVar("T")

_AFFINITY = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint"), "INTEGER"),
    **dict.fromkeys(("float", "double"), "REAL"),
    "binary": "BLOB",
}


def _number(value: float) -> float | str:
    """SQLite takes NaN for NULL. As text it stays in a column of numbers, equals itself, and sorts after all
    numbers, as in Spark."""
    return value if value == value else "NaN"


# Times are ISO text, so that text order is time order.
_FORMS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("float", "double"), _number),
    "timestamp": time_text,
    "timestamp_ntz": local_time_text,
    "date": datetime.date.isoformat,
    "binary": bytes,
}
_AS_THEY_ARE = ("boolean", "tinyint", "smallint", "int", "bigint", *TEXTS)
_LOOK_EVERY = 0.05  # seconds; one look is a read of shared memory


class SqliteStore(SqlStore):
    """The views of a file, for the one process that writes it."""

    _differ = "IS NOT"
    _for_update = ""  # a writer has the database to itself

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.where = str(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # foreachBatch calls this on Spark's threads.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            self._db.create_collation(COLLATION, compare_decimals)
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

    @contextmanager
    def _naming(self, view: View, rows: list[tuple[Any, ...]]) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DataError, sqlite3.InterfaceError, OverflowError, UnicodeError):
            for row in rows:
                for (name, _), value in zip(view.columns, row, strict=False):
                    try:
                        self._db.execute("SELECT ?", (value,))
                    except (sqlite3.Error, OverflowError, UnicodeError) as error:
                        raise not_taken(view, row, name, str(error), self.where) from None
            raise

    def _columns(self, table: str) -> dict[str, str]:
        return {row[1]: row[2] for row in self._ask(f"PRAGMA table_info({quoted_name(table)})")}

    def _form(self, kind: str) -> Callable[[Any], Any] | None:
        base = base_of(kind)
        if base == "decimal":
            return decimal_text(kind)
        if base in NESTED:
            from millstream.views.nested import json_of  # here, because readers work without Arrow

            return json_of(kind)
        return None if base in _AS_THEY_ARE else _FORMS.get(base, str)

    def _collation(self, kind: str) -> str:
        return f" COLLATE {COLLATION}" if _affinity(kind).startswith(EXACT) else ""

    def _read(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return row

    def _tell(self, view: str) -> None:
        """Nothing to do: followers look by themselves (``SqliteReader.wait``)."""

    def _kind(self, kind: str) -> str:
        return _affinity(kind)

    @staticmethod
    def _folded(column: str) -> str:
        return column.lower()

    def _create(self, name: str, columns: str, key: str) -> None:
        self._run(f"CREATE TABLE {quoted_name(name)} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
        if not is_ours(name):
            self._run(
                f"CREATE TABLE {quoted_name(beside('changes', name))} ({VERSION} INTEGER,"
                f" {PART} INTEGER, {columns})"
            )
            self._run(
                f"CREATE INDEX {quoted_name(beside('by_version', name))}"
                f" ON {quoted_name(beside('changes', name))} ({VERSION})"
            )


def _affinity(kind: str) -> str:
    base = base_of(kind)
    if base == "decimal":
        precision, scale = digits_of(kind)
        return "NUMERIC" if is_number(kind) else f"{EXACT}({precision},{scale})"
    return "JSON TEXT" if base in NESTED else _AFFINITY.get(base, "TEXT")


sqlite3.register_converter("JSON", lambda data: JsonText(data.decode()))  # for types that begin with JSON


class _DecimalSum:
    """``decimal_sum(column)``, as in SQLite's shell: SQLite's own sum is a double."""

    def __init__(self) -> None:
        self._sum: Decimal | None = None

    def step(self, value: Any) -> None:
        if value is not None:
            with localcontext(prec=MAX_PREC):
                self._sum = (self._sum or Decimal(0)) + Decimal(str(value))

    def finalize(self) -> Any:
        return None if self._sum is None else f"{self._sum:f}"


# ---- reading -----------------------------------------------------------------------------------------


class SqliteReader(SqlReader):
    """The same database, read-only, next to the job that writes it."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        if not path.is_file():
            raise MillstreamError(f"there are no views in {path}; a pipeline with .to_view(...) makes them")
        self._db = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro",
            uri=True,
            timeout=10,
            isolation_level=None,
            detect_types=sqlite3.PARSE_DECLTYPES,  # for JSON only; no other type here has a converter
        )
        self._db.create_collation(COLLATION, compare_decimals)
        self._db.create_aggregate("decimal_sum", 1, _DecimalSum)
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
        """Columns and rows of any SELECT. The database is open read-only, whatever the SQL says."""
        try:
            return self._found(sql)
        except sqlite3.Error as error:
            names = ", ".join(name for name, _, _ in self.views()) or "none"
            raise MillstreamError(f"{error}; the views in {self.where} are: {names}") from None

    @contextmanager
    def asking(self, limits: QueryLimits, *, ours: bool = False) -> Iterator[RunQuery]:
        """Run queries written by others, on one snapshot and within limits. A query may raise QueryRefused.
        The queries run in a process that can be killed. With ``ours``, the SQL contains nothing that others
        wrote, and runs in this process."""
        if ours:
            with self._snapshot(), self._until(time.monotonic() + limits.seconds):
                yield lambda sql: self._answer(sql, limits)
            return
        with Child(self.where, limits) as child:

            def ask(sql: str) -> QueryResult:
                kind, *rest = child.call("ask", sql)
                if kind == "rows":
                    return QueryResult(*rest)
                if kind == "late":
                    raise too_slow(sql, limits)
                complaint = str(rest[0])
                if any(word in complaint for word in ("authoriz", "prohibited", "one statement", READS)):
                    raise QueryRefused(READS, sql)
                raise QueryRefused(complaint, sql, place_of(complaint, sql, tried))

            def tried(sql: str) -> str | None:
                kind, *rest = child.call("try", sql)
                return str(rest[0]) if kind == "wrong" else None

            yield ask

    @contextmanager
    def _until(self, deadline: float) -> Iterator[None]:
        self._db.set_progress_handler(lambda: time.monotonic() > deadline, LOOK_AT_CLOCK)
        try:
            yield
        finally:
            self._db.set_progress_handler(None, 0)

    def _answer(self, sql: str, limits: QueryLimits) -> QueryResult:
        try:
            with closing(self._db.execute(sql)) as cursor:
                rows, cut = collected(cursor, limits)
                return QueryResult([column[0] for column in cursor.description], rows, cut)
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise too_slow(sql, limits) from None
            raise

    def all(self, name: str) -> Rows:
        """Every row of a view, by key."""
        return self.query(f"SELECT * FROM {quoted_name(name)}")

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key."""
        return self.query(f"SELECT * FROM {quoted_name(name)} WHERE {self.key_condition(name, key)}")

    def key_condition(self, name: str, key: Sequence[str]) -> str:
        """The SQL condition that selects a key's row."""
        wanted = self._key(name, key)
        kinds = self._columns(name)
        return " AND ".join(
            f"{quoted_name(column)} = {_literal(value, column, kinds[column])}" for column, value in wanted
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
        """Wait until something was written. SQLite keeps a number that changes with every commit of
        others."""
        deadline = time.monotonic() + timeout
        while (seen := self._data_version()) == self._seen and time.monotonic() < deadline:
            time.sleep(min(_LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        self._seen = seen

    def _data_version(self) -> int:
        ((number,),) = self._db.execute("PRAGMA data_version").fetchall()
        return int(number)


def _literal(value: str, column: str, declared: str) -> str:
    """A key's value as SQL. Where the column has numbers, SQLite itself reads the text as a number, and finds
    it with the index."""
    if declared == "BLOB":
        return f"x'{key_bytes(value, column).hex()}'"
    if "\0" in value:  # SQL ends at a NUL
        return f"CAST(x'{value.encode().hex()}' AS {declared})"
    if declared == "REAL" and value.lower() in _NOT_FINITE:
        return _NOT_FINITE[value.lower()]
    if declared.startswith(EXACT):
        with suppress(ArithmeticError):
            value = decimal_text(declared)(value)
    return quoted_text(value)


_NOT_FINITE = {
    "nan": "'NaN'",
    **dict.fromkeys(("infinity", "inf"), "9e999"),
    **dict.fromkeys(("-infinity", "-inf"), "-9e999"),
}
