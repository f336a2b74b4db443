"""Transactions and statements on a user's database connection, for sqlite3 and psycopg alike.

Statements are written once, in SQL that both databases understand, with ``?`` for values.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from millstream.core.errors import ConfigError


class Dialect(Protocol):
    """A connection, and how its transactions begin and end."""

    def transaction(self, *, alone: bool = False) -> contextlib.AbstractContextManager[None]:
        """Commits at the end of the block, rolls back on an exception. ``alone``: no other process is in such
        a block at the same time; for creating tables."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement returns, if any."""

    def each(self, texts: Sequence[str]) -> tuple[str, str]:
        """Texts as a table with a column ``value``: what to write after FROM, and the value for its ``?``."""


def dialect_of(connection: Any) -> Dialect:
    """The dialect of a connection, by its class name: the user's driver must not be imported here."""
    if isinstance(connection, sqlite3.Connection):
        if getattr(connection, "autocommit", None) is False:  # Python 3.12: a transaction is always open
            raise ConfigError("the inbox begins its transactions itself: connect without autocommit=False")
        return Sqlite(connection)
    family = type(connection).__mro__
    if any(kind.__module__.split(".")[0] == "psycopg" and kind.__name__ == "Connection" for kind in family):
        return Psycopg(connection)
    raise ConfigError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection of sqlite3's or"
        " psycopg's (version 3, not its asynchronous one)"
    )


_OPEN = "the connection has a transaction open: commit it or roll it back first, this one is to be its own"
_ENDED = (
    "the block has ended the database transaction by itself (commit, rollback, executescript), so what it did"
    " was not kept together with the note that its messages are processed; leave committing to the inbox"
)


class Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    @contextlib.contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[None]:
        if self._db.in_transaction:
            raise ConfigError(_OPEN)
        # Takes the write lock at once. If two transactions read first and then write, one may be refused.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._end("COMMIT")
        except BaseException:
            with contextlib.suppress(ConfigError):
                self._end("ROLLBACK")
            raise

    def _end(self, how: str) -> None:
        if not self._db.in_transaction:
            raise ConfigError(_ENDED)
        self._db.execute(how)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._db.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, values).fetchall()

    def each(self, texts: Sequence[str]) -> tuple[str, str]:
        return "json_each(?)", json.dumps(texts)


class Psycopg:
    def __init__(self, connection: Any) -> None:
        self._db = connection

    @contextlib.contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[None]:
        if self._db.info.transaction_status.name != "IDLE":
            raise ConfigError(_OPEN)
        # psycopg itself refuses commit() and rollback() within this block.
        with self._db.transaction():
            if alone:
                self.execute("SELECT pg_advisory_xact_lock(7011431179)")
                self.execute("SET LOCAL client_min_messages = warning")
            yield
            if self._db.info.transaction_status.name not in ("INTRANS", "INERROR"):
                raise ConfigError(_ENDED)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        from psycopg.rows import tuple_row

        with self._db.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(statement.replace("?", "%s"), values)
            return [] if cursor.description is None else list(cursor.fetchall())

    def each(self, texts: Sequence[str]) -> tuple[str, str]:
        return "json_array_elements_text(?::json)", json.dumps(texts)
