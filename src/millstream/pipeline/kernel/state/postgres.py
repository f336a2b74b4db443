"""Keeps keyed state in PostgreSQL tables.

    millstream_state            one row per entry: operator, bucket, container, key, value, due
    millstream_state_versions   up to which version each bucket of an operator has folded changes

A fold is one transaction, which first locks the row with the bucket's version. If two tasks fold the same
bucket at once, one waits for the other and then finds nothing left to do.

A worker has one connection to each database, for all its buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.core.errors import StateConnectionError, StateError
from millstream.pipeline.kernel.state.table import TableEntry, TableId

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_TABLES = """
CREATE TABLE IF NOT EXISTS millstream_state (
    operator text, bucket integer, container text, key bytea, value bytea NOT NULL, due bigint,
    PRIMARY KEY (operator, bucket, container, key));
CREATE INDEX IF NOT EXISTS millstream_state_due
    ON millstream_state (operator, bucket, container, due, key) WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS millstream_state_versions (
    operator text, bucket integer, version bigint NOT NULL, PRIMARY KEY (operator, bucket));
"""
_MAKING = 7302651144  # the lock for creating tables: "if not exists" is not safe by itself
_BUCKET = "operator = %s AND bucket = %s"
_PAGE = 1000
_connections: dict[str, psycopg.Connection[Any]] = {}


def connection(url: str) -> psycopg.Connection[Any]:
    """This process's connection to a database, with the tables created."""
    try:
        import psycopg
    except ImportError:
        raise StateError(
            "state in PostgreSQL needs the PostgreSQL driver on every worker:"
            ' pip install "millstream[postgres]"'
        ) from None
    found = _connections.get(url)
    if found is not None and not found.closed and not found.broken:
        return found
    try:
        made = psycopg.connect(url, autocommit=True, connect_timeout=20)
        with made.transaction():
            made.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            made.execute(_TABLES)
    except psycopg.Error as error:
        away = isinstance(error, psycopg.OperationalError)
        problem = StateConnectionError if away else StateError
        raise problem(f"can't keep state in PostgreSQL: {str(error).strip()}") from error
    _connections[url] = made
    return made


class PostgresTable:
    """A ``Table`` in PostgreSQL."""

    lasting = True

    def __init__(self, url: str, space: TableId) -> None:
        self._url = url
        self._bucket_id = tuple(space)

    def folded(self) -> int:
        row = self._ask(
            lambda server: server.execute(
                f"SELECT version FROM millstream_state_versions WHERE {_BUCKET}", self._bucket_id
            ).fetchone()
        )
        return 0 if row is None else int(row[0])

    def get_many(self, container: str, keys: Sequence[bytes]) -> Mapping[bytes, TableEntry]:
        rows = self._rows(
            f"SELECT key, value, due FROM millstream_state WHERE {_BUCKET} AND container = %s"
            " AND key = ANY(%s)",
            (*self._bucket_id, container, list(keys)),
        )
        return {key: TableEntry(value, due) for key, value, due in rows}

    def fold(self, version: int, changes: Mapping[str, Mapping[bytes, TableEntry | None]]) -> None:
        def write(server: psycopg.Connection[Any]) -> None:
            with server.transaction():
                server.execute(
                    "INSERT INTO millstream_state_versions VALUES (%s, %s, 0) ON CONFLICT DO NOTHING",
                    self._bucket_id,
                )
                moved = server.execute(
                    f"UPDATE millstream_state_versions SET version = %s WHERE {_BUCKET} AND version < %s",
                    (version, *self._bucket_id, version),
                )
                if moved.rowcount:
                    for container, entries in changes.items():
                        self._write(server, container, entries)

        self._ask(write)

    def _write(
        self, server: psycopg.Connection[Any], container: str, entries: Mapping[bytes, TableEntry | None]
    ) -> None:
        put = [(key, one.value, one.due) for key, one in entries.items() if one is not None]
        if put:
            server.execute(
                "INSERT INTO millstream_state"
                " SELECT %s, %s, %s, * FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[])"
                " ON CONFLICT (operator, bucket, container, key)"
                " DO UPDATE SET value = excluded.value, due = excluded.due",
                (*self._bucket_id, container, *(list(column) for column in zip(*put, strict=True))),
            )
        gone = [key for key, one in entries.items() if one is None]
        if gone:
            server.execute(
                f"DELETE FROM millstream_state WHERE {_BUCKET} AND container = %s AND key = ANY(%s)",
                (*self._bucket_id, container, gone),
            )

    def due(
        self, container: str, until: int, after: tuple[int, bytes] | None
    ) -> list[tuple[bytes, TableEntry]]:
        rows = self._rows(
            f"SELECT key, value, due FROM millstream_state WHERE {_BUCKET} AND container = %s AND due <= %s"
            f" AND (due, key) > (%s, %s) ORDER BY due, key LIMIT {_PAGE}",
            (*self._bucket_id, container, until, *(after or (-(1 << 63), b""))),
        )
        return [(key, TableEntry(value, due)) for key, value, due in rows]

    def scan(self, container: str) -> Iterator[tuple[bytes, TableEntry]]:
        last = b""
        while rows := self._rows(
            f"SELECT key, value, due FROM millstream_state WHERE {_BUCKET} AND container = %s AND key > %s"
            f" ORDER BY key LIMIT {_PAGE}",
            (*self._bucket_id, container, last),
        ):
            yield from ((key, TableEntry(value, due)) for key, value, due in rows)
            last = rows[-1][0]

    def rebuild(
        self, version: int, entries: Iterable[tuple[str, Sequence[tuple[bytes, TableEntry]]]]
    ) -> None:
        raise NotImplementedError("durable state is never rebuilt")

    def drop(self) -> None:
        def remove(server: psycopg.Connection[Any]) -> None:
            with server.transaction():
                server.execute(f"DELETE FROM millstream_state WHERE {_BUCKET}", self._bucket_id)
                server.execute(f"DELETE FROM millstream_state_versions WHERE {_BUCKET}", self._bucket_id)

        self._ask(remove)

    def close(self) -> None:
        """Does nothing: the connection belongs to the process, and other buckets use it too."""

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._ask(lambda server: server.execute(sql, values, binary=True).fetchall())

    def _ask(self, question: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Run a query. Every query here may be run twice, so a broken connection is reopened once."""
        import psycopg

        for last in (False, True):
            server = connection(self._url)
            try:
                return question(server)
            except psycopg.OperationalError as error:
                if last or not server.broken:
                    raise StateConnectionError(
                        f"PostgreSQL, where state is kept, says: {str(error).strip()}"
                    ) from error
        raise AssertionError("not reached")
