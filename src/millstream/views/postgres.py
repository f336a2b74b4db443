"""Views in PostgreSQL: for readers on other machines, in the types that they expect.

A batch goes to a temporary table with one COPY and from there into the view with a few statements, so its
cost does not grow with round trips.

Rows and ledger are one transaction, committed with ``synchronous_commit``: what is reported to Spark as done
is on PostgreSQL's disk. If the connection breaks, the batch is written again over a new one. The ledger then
shows whether the earlier commit succeeded after all.

NOTIFY wakes the followers of a view. PostgreSQL sends it when the transaction commits. Followers also look at
regular intervals, because there are no notifications through a pooler or on a standby.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.core.errors import ConfigError, MillstreamError, TopologyError
from millstream.views.address import shown
from millstream.views.merge_sql import PART, VERSION
from millstream.views.naming import beside, is_ours, quoted_name, quoted_text
from millstream.views.query import (
    READS,
    QueryLimits,
    QueryRefused,
    QueryResult,
    RunQuery,
    collected,
    too_slow,
    weight,
)
from millstream.views.reading import SqlReader
from millstream.views.refusals import not_taken
from millstream.views.values import TEXTS, JsonText, base_of, key_bytes, local_time_text, time_text
from millstream.views.views import AppliedBatch, Changes, Rows, View
from millstream.views.writing import TABLES, SqlStore

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_CHANNEL = "millstream_views"
_LOOK_EVERY = 1.0  # seconds between looks where no notification comes
# Two jobs that start at once would both find no tables. The number is arbitrary, and the same for all jobs.
_LOCK = "SELECT pg_advisory_xact_lock(7011431178)"

# PostgreSQL's types for Spark's, as PostgreSQL itself writes them, to compare them with existing tables.
_TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    **dict.fromkeys(("array", "map", "struct", "variant"), "jsonb"),
}
_COPIED = re.compile(r"COPY [^,]+, line (\d+)(?:, column ([^:]+))?")
_UNTAKEN = re.compile("[\0\ud800-\udfff]")
_MAX_NAME = 63  # bytes; PostgreSQL silently truncates longer names


class PostgresStore(SqlStore):
    """The views of a database, for the one process that writes them."""

    _differ = "IS DISTINCT FROM"
    _for_update = " FOR UPDATE"
    _clock = "extract(epoch FROM clock_timestamp())"

    def __init__(self, url: str, *, patience: float = 30.0) -> None:
        """``patience``: how many seconds a batch waits for a server that went away."""
        super().__init__()
        self.where = shown(url)
        self._url = url
        self._patience = patience
        self._db = _connect(url)
        self._again(self._set_up)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _set_up(self) -> None:
        self._db.execute("SET synchronous_commit = on")
        self._db.execute("SET client_min_messages = warning")  # no notices that a table exists already
        with self._db.transaction():
            self._db.execute(_LOCK)
            self._db.execute(TABLES.encode())

    def _check(self, view: View, where: str | None) -> None:
        for name in (view.name, *(name for name, _ in view.columns)):
            if len(name.encode()) > _MAX_NAME:
                raise TopologyError(
                    f"{name!r} is too long a name for PostgreSQL, which takes {_MAX_NAME} bytes", where=where
                )
        super()._check(view, where)

    def _kind(self, kind: str) -> str:
        return _type(kind)

    def _create(self, name: str, columns: str, key: str) -> None:
        self._run(f"CREATE TABLE {quoted_name(name)} ({columns}, PRIMARY KEY ({key}))")
        if not is_ours(name):
            self._run(
                f"CREATE TABLE {quoted_name(beside('changes', name))} ({VERSION} bigint,"
                f" {PART} smallint, {columns})"
            )
            self._run(
                f"CREATE INDEX {quoted_name(beside('by_version', name))}"
                f" ON {quoted_name(beside('changes', name))} ({VERSION})"
            )

    def _columns(self, table: str) -> dict[str, str]:
        return _columns(self._db, table)

    def _form(self, kind: str) -> Callable[[Any], Any] | None:
        if (made := _type(kind)) == "jsonb":
            from millstream.views.nested import json_of  # here, because readers work without Arrow

            return json_of(kind)
        return str if made == "text" and base_of(kind) not in TEXTS else _FORMS.get(made)

    def _collation(self, kind: str) -> str:
        return ' COLLATE "C"' if _type(kind) == "text" else ""  # by bytes, not by a language's rules

    def _read(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(_read, row))

    def _temporary(self, name: str, select: str) -> None:
        self._run(f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ON COMMIT DELETE ROWS AS {select}")
        self._run(f"DELETE FROM pg_temp.{name}")

    def _fill(self, stage: str, rows: list[tuple[Any, ...]]) -> None:
        with self._db.cursor() as cursor, cursor.copy(f"COPY pg_temp.{stage} FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def _naming(self, view: View, rows: list[tuple[Any, ...]]) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.errors.ProgramLimitExceeded as error:  # a key that is too long for an index
            names = [name for name, _ in view.columns]
            at = [names.index(column) for column in view.key]
            row = max(rows, key=lambda row: sum(len(str(row[i])) for i in at))
            raise not_taken(view, row, None, _reason(error), self.where) from None
        except (psycopg.DataError, UnicodeError) as error:
            context = error.diag.context if isinstance(error, psycopg.Error) else None
            if told := _COPIED.search(context or ""):
                # The server's detail explains, for example, a NUL in JSON, which its text can't hold either.
                reason = error.diag.message_detail or _reason(error)  # type: ignore[union-attr]
                raise not_taken(view, rows[int(told[1]) - 1], told[2], reason, self.where) from None
            for row in rows:  # psycopg itself refused a value, and does not say which
                for (name, _), value in zip(view.columns, row, strict=False):
                    if isinstance(value, str) and _UNTAKEN.search(value):
                        raise not_taken(view, row, name, _reason(error), self.where) from None
            raise

    def _run(self, sql: str) -> int:
        return self._db.execute(sql.encode()).rowcount  # as bytes: names may contain any character, even %

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql.encode()).fetchall()

    def _tell(self, view: str) -> None:
        self._db.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, view))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Raises _Unreachable if the server goes away at any point: the transaction can be done again."""
        import psycopg

        try:
            with self._db.transaction():
                yield
        except psycopg.OperationalError as error:
            if self._db.broken or self._db.closed:
                raise _Unreachable(f"can't keep views in {self.where}: {_reason(error)}") from None
            raise

    def _again(self, action: Callable[[], T]) -> T:
        """The action's result. While the connection turns out to be broken, the action is repeated over a new
        one."""
        import psycopg

        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._reconnect()
                return action()
            except _Unreachable as error:
                if time.monotonic() > deadline:
                    raise MillstreamError(str(error)) from None
                time.sleep(0.2)
            except psycopg.Error as error:
                # If the server refuses something for good (disk full, ...), the connection stays intact.
                if (self._db.broken or self._db.closed) and time.monotonic() < deadline:
                    time.sleep(0.2)
                    continue
                raise MillstreamError(f"can't keep views in {self.where}: {_reason(error)}") from None

    def _reconnect(self) -> None:
        if self._db.broken or self._db.closed:
            self._db = _connect(self._url)
            self._set_up()

    @contextmanager
    def applying(
        self, query: str, batch: int, changes: Iterable[Changes], tell: Collection[str] = ()
    ) -> Iterator[AppliedBatch | None]:
        """As in ``SqlStore``; reconnects first if the connection is already broken."""
        with self._lock:
            self._again(lambda: None)
            with super().applying(query, batch, changes, tell) as applied:
                yield applied


def _columns(db: psycopg.Connection, table: str) -> dict[str, str]:
    """The columns of a table and their types, in order; none if the table does not exist."""
    return dict(
        db.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (quoted_name(table),),
        ).fetchall()
    )


def _type(kind: str) -> str:
    """PostgreSQL's type for one of Spark's: ``decimal(9,2)`` is ``numeric(9,2)``. Types that it lacks are
    text."""
    base = base_of(kind)
    return f"numeric{kind.removeprefix('decimal')}" if base == "decimal" else _TYPES.get(base, "text")


_NAN = float("nan")


def _same_nan(value: float) -> float:
    return _NAN if math.isnan(value) else value


def _zoned(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone() if value.tzinfo is None else value  # Spark's times are in the machine's zone


# Conversions for values that Python holds in another form. Values that PostgreSQL finds equal must be equal
# here.
_FORMS: dict[str, Callable[[Any], Any]] = {
    "bytea": bytes,
    "real": _same_nan,
    "double precision": _same_nan,
    "timestamp with time zone": _zoned,
}


# ---- reading -----------------------------------------------------------------------------------------


class PostgresReader(SqlReader):
    """The same database, read-only, next to the job that writes it."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.where = shown(url)
        self._db = _connect(url)
        self._db.read_only = True
        self._db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._listening = False
        try:
            self._db.execute("SELECT version FROM millstream_views LIMIT 1")
        except psycopg.errors.UndefinedTable:
            self._db.close()
            raise MillstreamError(
                f"there are no views in {self.where}; a pipeline with .to_view(...) makes them"
            ) from None

    @property
    def lost(self) -> bool:
        return self._db.broken or self._db.closed

    def close(self) -> None:
        self._db.close()

    def views(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Name, key columns and number of rows of every view."""
        with self._db.transaction():
            found = self._db.execute(
                "SELECT name, key_columns FROM millstream_views ORDER BY name"
            ).fetchall()
            return [
                (
                    name,
                    tuple(json.loads(key)),
                    self._db.execute(f"SELECT count(*) FROM {quoted_name(name)}".encode()).fetchall()[0][0],
                )
                for name, key in found
                if not is_ours(name)
            ]

    def query(self, sql: str) -> Rows:
        """Columns and rows of any SELECT. The transaction is read-only, whatever the SQL says."""
        import psycopg

        try:
            with self._db.transaction():
                return self._found(sql)
        except psycopg.Error as error:
            raise self._refused(error) from None

    @contextmanager
    def asking(self, limits: QueryLimits, *, ours: bool = False) -> Iterator[RunQuery]:
        """Run queries written by others, on one snapshot and within limits. A query may raise QueryRefused.
        None can follow it then, because the transaction is over."""
        import psycopg

        deadline = time.monotonic() + limits.seconds

        def ask(sql: str) -> QueryResult:
            if not _QUERY.match(sql):
                raise QueryRefused(READS, sql)
            try:
                self._until(deadline)
                # A cursor, so that the server produces no more rows than are fetched; prepared: see _found.
                self._db.execute((_DECLARE + sql).encode(), prepare=True)
                with self._db.cursor() as cursor:
                    rows, cut = collected(self._fetched(cursor, deadline, limits), limits)
                    names = [column.name for column in cursor.description or ()]
                self._db.execute("CLOSE asked")
                return QueryResult(names, rows, cut)
            except psycopg.errors.QueryCanceled:
                raise too_slow(sql, limits) from None
            except psycopg.Error as error:
                if self._db.broken or self._db.closed:
                    raise MillstreamError(f"{self.where} went away: {_reason(error)}") from None
                raise _refused(sql, error) from None
            except ValueError as error:  # a lone surrogate, a null character
                raise QueryRefused(str(error), sql) from None

        with self._db.transaction():
            yield ask

    def _until(self, deadline: float) -> None:
        """Stop the next statement at the deadline. Set before every statement, because SQL could change
        it."""
        left = max(1, round(1000 * (deadline - time.monotonic())))
        self._db.execute(f"SET LOCAL statement_timeout = {left}".encode())

    def _fetched(
        self, cursor: psycopg.Cursor[Any], deadline: float, limits: QueryLimits
    ) -> Iterator[tuple[Any, ...]]:
        """The cursor's rows, fetched in portions that are small enough for memory."""
        count = 10
        while True:
            self._until(deadline)
            cursor.execute(f"FETCH {count} FROM asked".encode())
            rows = [tuple(map(_read, row)) for row in cursor]
            yield from rows
            if len(rows) < count:
                return
            size = sum(weight(value) for row in rows for value in row) // len(rows) + 1
            count = max(1, min(1000, limits.bytes // size))

    def all(self, name: str) -> Rows:
        """Every row of a view."""
        return self.query(f"SELECT * FROM {quoted_name(name)}")

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key. The key's values are in the notation of their types."""
        return self.query(f"SELECT * FROM {quoted_name(name)} WHERE {self.key_condition(name, key)}")

    def key_condition(self, name: str, key: Sequence[str]) -> str:
        """The SQL condition that selects a key's row."""
        wanted = self._key(name, key)
        kinds = self._columns(name)
        return " AND ".join(
            f"{quoted_name(column)} = {_literal(value, column, kinds[column])}" for column, value in wanted
        )

    def _columns(self, table: str) -> dict[str, str]:
        return _columns(self._db, table)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        import psycopg

        try:
            with self._db.transaction():
                yield
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _found(self, sql: str) -> Rows:
        # Prepared, because only a single statement can be: none before it can end the transaction.
        cursor = self._db.execute(sql.encode(), prepare=True)
        if cursor.description is None:
            raise MillstreamError("only queries that return rows, SELECT for example")
        names = [column.name for column in cursor.description]
        return names, [tuple(map(_read, row)) for row in cursor]

    def _refused(self, error: Exception) -> MillstreamError:
        if self._db.broken or self._db.closed:
            return MillstreamError(f"{self.where} went away: {_reason(error)}")
        names = [name for name, _, _ in self.views()]
        return MillstreamError(
            f"{_reason(error)}; the views in {self.where} are: {', '.join(names) or 'none'}"
        )

    def wait(self, timeout: float) -> None:
        """Wait until something was written. The first call only begins to listen."""
        import psycopg

        try:
            if not self._listening:
                self._listening = True
                self._db.execute(f"LISTEN {_CHANNEL}".encode())
                return
            for _ in self._db.notifies(timeout=min(timeout, _LOOK_EVERY), stop_after=1):
                pass
        except psycopg.errors.FeatureNotSupported:
            time.sleep(min(timeout, _LOOK_EVERY))  # a standby, which sends no notifications
        except psycopg.Error as error:
            raise self._refused(error) from None


_DECLARE = "DECLARE asked NO SCROLL CURSOR FOR "
_QUERY = re.compile(r"(\s|--[^\n]*\n|/\*.*?\*/|\()*(select|with|values|table)\b", re.IGNORECASE | re.DOTALL)


def _refused(sql: str, error: psycopg.Error) -> QueryRefused:
    """The server's complaint, with its position in the SQL if the server gives one."""
    from psycopg import errors

    if isinstance(error, errors.ReadOnlySqlTransaction):
        return QueryRefused(READS, sql)
    said = error.diag.message_primary or _reason(error)
    if error.diag.message_hint:
        said = f"{said} ({error.diag.message_hint})"
    position = int(error.diag.statement_position or 0) - len(_DECLARE) - 1
    return QueryRefused(said, sql, position if position >= 0 else None)


def _read(value: Any) -> Any:
    """A value as SQLite's reader returns it: times as text, those with a zone in UTC."""
    if isinstance(value, float):
        return _same_nan(value)  # two rows of one key must compare equal in it
    if value is None or isinstance(value, str | int | bytes):
        return value
    if isinstance(value, datetime.datetime):
        return local_time_text(value) if value.tzinfo is None else time_text(value)
    if isinstance(value, decimal.Decimal):
        number = float(value)
        return number if decimal.Decimal(repr(number)) == value else str(value)
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


# ---- connecting --------------------------------------------------------------------------------------


class _Unreachable(MillstreamError, ConnectionError):
    """No server answers at the URL, or it refuses the connection. A batch that hits this is run again."""


def _connect(url: str) -> psycopg.Connection:
    try:
        import psycopg
        from psycopg.types.string import TextLoader
    except ImportError:
        raise ConfigError("views in PostgreSQL need psycopg: pip install 'millstream[postgres]'") from None
    try:
        # The name is what an administrator sees in pg_stat_activity.
        db = psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="millstream")

        class JsonLoader(TextLoader):
            """JSON as the server writes it: Python would turn its numbers into doubles."""

            def load(self, data: Any) -> str:
                return JsonText(super().load(data))

        for kind in ("json", "jsonb"):
            db.adapters.register_loader(kind, JsonLoader)
        return db
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"--views {shown(url)}: {_reason(error)}") from None
    except psycopg.OperationalError as error:
        raise _Unreachable(f"can't reach {shown(url)}: {_reason(error)}") from None


def _literal(value: str, column: str, declared: str) -> str:
    """A key's value as SQL, in the notation of its type. The same text selects the same row in SQLite."""
    return quoted_text(rf"\x{key_bytes(value, column).hex()}" if declared == "bytea" else value)


def _reason(error: Exception) -> str:
    """What the server says, on one line."""
    return " ".join(str(error).split())
