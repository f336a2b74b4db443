"""Views in PostgreSQL: for readers on other machines, in the types that they expect.

A batch goes to a temporary table with one COPY and from there into the view with one DELETE and one INSERT
... ON CONFLICT, so its cost does not grow with round trips. The order of the rows within a batch is settled
before that: of each key only the last row counts.

Rows and ledger are one transaction, committed with ``synchronous_commit``: what Spark is told to be done is
on PostgreSQL's disk. If the connection breaks, the batch is written again over a new one, and the ledger says
whether the commit before had come through after all.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.errors import ConfigError, MillstreamError, TopologyError
from millstream.pipeline.views import (
    Changes,
    Rows,
    View,
    check_key,
    json_text,
    key_columns,
    on_conflict,
    quoted_name,
    shown,
    time_text,
)

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_TABLES = """
CREATE TABLE IF NOT EXISTS millstream_views (
    name text PRIMARY KEY, key_columns text NOT NULL, order_column text);
CREATE TABLE IF NOT EXISTS millstream_ledger (query text PRIMARY KEY, batch bigint NOT NULL);
"""
# Two jobs that start at once would both find that there are no tables: any number that all of them take.
_LOCK = "SELECT pg_advisory_xact_lock(7011431178)"

# Spark's types as PostgreSQL itself writes them, so that they can be compared with what is there.
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
_MAX_NAME = 63  # bytes; PostgreSQL cuts longer names off without a word
_DELETED, _FORCED = "millstream deleted", "millstream forced"


class PostgresStore:
    """The views of a database, for the one process that writes them."""

    def __init__(self, url: str, *, patience: float = 30.0) -> None:
        """``patience``: how long a batch waits for a server that went away, in seconds."""
        self.where = shown(url)
        self._url = url
        self._patience = patience
        self._stages: dict[View, str] = {}
        self._db = _connect(url)
        self._again(self._set_up)

    def close(self) -> None:
        self._db.close()

    def _set_up(self) -> None:
        self._db.execute("SET synchronous_commit = on")
        self._db.execute("SET client_min_messages = warning")  # not that a table is there already
        with self._db.transaction():
            self._db.execute(_LOCK)
            self._db.execute(_TABLES)

    def prepare(self, view: View, *, where: str | None = None) -> None:
        """Make the table, or add the columns that are new. Another key or type than before is refused."""
        types = {name: _type(kind) for name, kind in view.columns}
        for name in (view.name, *types):
            if len(name.encode()) > _MAX_NAME:
                raise TopologyError(
                    f"{name!r} is too long a name for PostgreSQL, which takes {_MAX_NAME} bytes", where=where
                )

        def make() -> None:
            with self._db.transaction():
                self._db.execute(_LOCK)
                known = self._db.execute(
                    "SELECT key_columns FROM millstream_views WHERE name = %s", (view.name,)
                ).fetchone()
                if known is None:
                    self._create(view, types, where)
                else:
                    check_key(view, json.loads(known[0]), self.where, at=where)
                    self._widen(view, types, where)
                self._db.execute(
                    "INSERT INTO millstream_views VALUES (%s, %s, %s) ON CONFLICT (name)"
                    " DO UPDATE SET order_column = excluded.order_column",
                    (view.name, json.dumps(view.key), view.order),
                )

        self._again(make)

    def _create(self, view: View, types: dict[str, str], where: str | None) -> None:
        from psycopg import errors

        definitions = [f"{quoted_name(name)} {kind}" for name, kind in types.items()]
        key = ", ".join(map(quoted_name, view.key))
        try:
            self._run(
                f"CREATE TABLE {quoted_name(view.name)} ({', '.join(definitions)}, PRIMARY KEY ({key}))"
            )
        except errors.DuplicateTable:
            raise TopologyError(
                f"there is a table {view.name!r} in {self.where} that is not a view of a pipeline's; give the"
                " view another name",
                where=where,
            ) from None

    def _widen(self, view: View, types: dict[str, str], where: str | None) -> None:
        there: dict[str, str] = dict(
            self._db.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                (quoted_name(view.name),),
            ).fetchall()
        )
        for name, kind in types.items():
            if name not in there:
                self._run(f"ALTER TABLE {quoted_name(view.name)} ADD COLUMN {quoted_name(name)} {kind}")
            elif there[name] != kind:
                raise TopologyError(
                    f"column {name!r} of view {view.name!r} in {self.where} is {there[name]}, not {kind};"
                    " give the view another name, change the column there with ALTER TABLE, or remove the"
                    f" view with: millstream view drop {view.name} --views {self.where}",
                    where=where,
                )

    def apply(self, query: str, batch: int, changes: Iterable[Changes]) -> int | None:
        """Write a batch. Returns how many rows had no key and were left out; None: it was written before."""
        given = list(changes)

        def write() -> int | None:
            with self._db.transaction():
                last = self._db.execute(
                    "SELECT batch FROM millstream_ledger WHERE query = %s FOR UPDATE", (query,)
                ).fetchone()
                if last is not None and last[0] >= batch:
                    return None
                without_key = sum(self._write(change) for change in given)
                self._db.execute(
                    "INSERT INTO millstream_ledger VALUES (%s, %s) ON CONFLICT (query)"
                    " DO UPDATE SET batch = excluded.batch",
                    (query, batch),
                )
                return without_key

        return self._again(write)

    def drop(self, name: str) -> None:
        """Remove a view and its rows."""

        def remove() -> None:
            with self._db.transaction():
                if not self._db.execute("DELETE FROM millstream_views WHERE name = %s", (name,)).rowcount:
                    raise MillstreamError(f"there is no view {name!r} in {self.where}")
                self._run(f"DROP TABLE {quoted_name(name)}")

        self._again(remove)

    def _write(self, change: Changes) -> int:
        keyed = change.keyed()
        if keyed:
            view = change.view
            rows = _last_of_each(view, keyed)
            stage = self._stages.setdefault(view, f"millstream_batch_{len(self._stages)}")
            columns = ", ".join(quoted_name(name) for name, _ in view.columns)
            # One for the life of the connection: a new one every batch would wear out the catalogue.
            self._run(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS SELECT {columns},"
                f" true AS {quoted_name(_DELETED)}, true AS {quoted_name(_FORCED)}"
                f" FROM {quoted_name(view.name)} WITH NO DATA"
            )
            self._run(f"DELETE FROM {stage}")
            with self._db.cursor() as cursor, cursor.copy(f"COPY {stage} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
            if any(deletes or forced for *_, deletes, forced in rows):
                self._run(_delete(view, stage))
            self._run(_upsert(view, stage))
        return len(change.rows) - len(keyed)

    def _run(self, sql: str) -> None:
        self._db.execute(sql.encode())  # as bytes: names may have any character, % too

    def _again(self, action: Callable[[], T]) -> T:
        """The action's result; done again over a new connection while the old one turns out to be broken."""
        import psycopg

        deadline = time.monotonic() + self._patience
        while True:
            try:
                if self._db.broken or self._db.closed:
                    self._db = _connect(self._url)
                    self._set_up()
                return action()
            except (psycopg.OperationalError, _Unreachable) as error:
                # What a server that is there refuses for good (disk full, ...) leaves the connection whole.
                if not (self._db.broken or self._db.closed) or time.monotonic() > deadline:
                    raise MillstreamError(f"can't keep views in {self.where}: {_reason(error)}") from None
                time.sleep(0.2)
            except psycopg.Error as error:
                raise MillstreamError(f"can't keep views in {self.where}: {_reason(error)}") from None


def _last_of_each(view: View, keyed: list[tuple[tuple[Any, ...], bool]]) -> list[tuple[Any, ...]]:
    """The last row of each key, as it is copied: with whether it deletes, and whatever is there.

    A deletion without an order takes away whatever was there, so what follows it in the batch is not compared
    with that any more.
    """
    names = [name for name, _ in view.columns]
    at = [names.index(column) for column in view.key]
    order = None if view.order is None else names.index(view.order)
    forms = [
        (i, _FORMS[kind]) for i, (_, spark) in enumerate(view.columns) if (kind := _type(spark)) in _FORMS
    ]
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row, gone in keyed:
        values = list(row)
        for i, form in forms:
            if values[i] is not None:
                values[i] = form(values[i])
        key = tuple([values[i] for i in at])
        before = last.get(key)
        forced = (before is not None and before[-1]) or (gone and order is not None and row[order] is None)
        last[key] = (*values, gone, forced)
    return list(last.values())


def _delete(view: View, stage: str) -> str:
    table = quoted_name(view.name)
    same = " AND ".join(f"{table}.{quoted_name(name)} = {stage}.{quoted_name(name)}" for name in view.key)
    late = ""
    if view.order is not None:
        there, given = f"{table}.{quoted_name(view.order)}", f"{stage}.{quoted_name(view.order)}"
        late = f" AND ({there} IS NULL OR {given} >= {there})"
    forced, deleted = quoted_name(_FORCED), quoted_name(_DELETED)
    return f"DELETE FROM {table} USING {stage} WHERE {same} AND ({forced} OR ({deleted}{late}))"


def _upsert(view: View, stage: str) -> str:
    columns = ", ".join(quoted_name(name) for name, _ in view.columns)
    key = ", ".join(map(quoted_name, view.key))
    return (
        f"INSERT INTO {quoted_name(view.name)} ({columns}) SELECT {columns} FROM {stage}"
        f" WHERE NOT {quoted_name(_DELETED)} ON CONFLICT ({key}) {on_conflict(view)}"
    )


def _type(kind: str) -> str:
    """PostgreSQL's type for one of Spark's: ``decimal(9,2)`` is ``numeric(9,2)``, what it lacks is text."""
    base = kind.partition("(")[0].partition("<")[0]
    return f"numeric{kind.removeprefix('decimal')}" if base == "decimal" else _TYPES.get(base, "text")


_NAN = float("nan")


def _same_nan(value: float) -> float:
    return _NAN if math.isnan(value) else value


def _zoned(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone() if value.tzinfo is None else value  # Spark's are in the machine's own zone


# How values are copied that Python has in another form. Those that PostgreSQL finds equal must be equal here.
_FORMS: dict[str, Callable[[Any], Any]] = {
    "jsonb": json_text,
    "bytea": bytes,
    "real": _same_nan,
    "double precision": _same_nan,
    "timestamp with time zone": _zoned,
}


# ---- reading -----------------------------------------------------------------------------------------


class PostgresReader:
    """The same database, read-only, beside the job that writes it."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.where = shown(url)
        self._db = _connect(url)
        self._db.read_only = True
        try:
            self.views()
        except psycopg.errors.UndefinedTable:
            self._db.close()
            raise MillstreamError(
                f"there are no views in {self.where}; a pipeline with .to_view(...) makes them"
            ) from None

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
            ]

    def query(self, sql: str) -> Rows:
        """Columns and rows of any SELECT. The transaction is for reading only, whatever the SQL says."""
        # Prepared, because that takes one statement only: none that ends the transaction can come first.
        return self._rows(sql, None, prepare=True)

    def all(self, name: str) -> Rows:
        """Every row of a view."""
        return self._rows(f"SELECT * FROM {quoted_name(name)}", None)

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key, whose values are in the notation of their types."""
        columns = key_columns(self, name, key)
        condition = " AND ".join(f"{quoted_name(column).replace('%', '%%')} = %s" for column in columns)
        table = quoted_name(name).replace("%", "%%")
        return self._rows(f"SELECT * FROM {table} WHERE {condition}", tuple(key))

    def _rows(self, sql: str, values: tuple[str, ...] | None, *, prepare: bool = False) -> Rows:
        import psycopg

        try:
            with self._db.transaction():
                cursor = self._db.execute(sql.encode(), values, prepare=prepare)
                if cursor.description is None:
                    raise MillstreamError("only queries that return rows, SELECT for example")
                names = [column.name for column in cursor.description]
                return names, [tuple(map(_read, row)) for row in cursor]
        except psycopg.Error as error:
            if self._db.broken:
                raise MillstreamError(f"{self.where} went away: {_reason(error)}") from None
            names = [name for name, _, _ in self.views()]
            raise MillstreamError(
                f"{_reason(error)}; the views in {self.where} are: {', '.join(names) or 'none'}"
            ) from None


def _read(value: Any) -> Any:
    """A value as the other kind of database gives it: times as text in UTC, nested values as JSON."""
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, datetime.datetime):
        return value.isoformat() if value.tzinfo is None else time_text(value)
    if isinstance(value, decimal.Decimal):
        number = float(value)
        return number if decimal.Decimal(repr(number)) == value else str(value)
    if isinstance(value, dict | list):
        return json_text(value)
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


# ---- connecting --------------------------------------------------------------------------------------


class _Unreachable(MillstreamError):
    """Nobody answers at the URL, or it does not let us in."""


def _connect(url: str) -> psycopg.Connection:
    try:
        import psycopg
    except ImportError:
        raise ConfigError("views in PostgreSQL need psycopg: pip install 'millstream[postgres]'") from None
    try:
        # The name is what an administrator sees in pg_stat_activity.
        return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="millstream")
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"--views {shown(url)}: {_reason(error)}") from None
    except psycopg.OperationalError as error:
        raise _Unreachable(f"can't reach {shown(url)}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """What the server says, in one line."""
    return " ".join(str(error).split())
