"""Orders that are both a row in PostgreSQL and a record in the log, or neither, whatever crashes and when.

The steps of one order, and what recovery does after a crash behind each step:

    write the record and prepare it in the log       rolls back: nothing was decided
    write the row and prepare it in PostgreSQL       rolls back
    record the decision                              commits: from here on the order is decided
    commit in PostgreSQL                             commits
    commit in the log                                commits
    record that it is done                           nothing

The decision is one durable row in the coordinator's own log, here a SQLite file. A prepared transaction
without a decision there is rolled back ("presumed abort"), so nothing has to be recorded earlier. The name
of the PostgreSQL transaction contains the token of the log's transaction, so each can be found from the
other.

Only one worker at a time may use a transactional id. It recovers before it places orders.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import LiteralString, Self

import psycopg
from psycopg import sql

from millstream import client
from millstream.client.two_phase import Token

STEPS = (
    "prepared in the log",
    "prepared in PostgreSQL",
    "decided",
    "committed in PostgreSQL",
    "committed in the log",
    "done",
)


class Decisions:
    """The coordinator's log, synced to disk: transactions that must be committed but perhaps are not yet."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS decided (token TEXT PRIMARY KEY)")

    def close(self) -> None:
        self._db.close()

    def commit(self, token: Token) -> None:
        self._db.execute("INSERT INTO decided VALUES (?)", (str(token),))

    def done(self, token: Token) -> None:
        self._db.execute("DELETE FROM decided WHERE token = ?", (str(token),))

    def undone(self) -> list[Token]:
        return [Token.parse(text) for (text,) in self._db.execute("SELECT token FROM decided").fetchall()]


class Orders:
    """A worker that places orders. Use it in a with statement, and ``recover`` first."""

    def __init__(self, broker: str, database: str, decisions: Path, *, worker: str = "orders-1") -> None:
        self._broker = broker
        self._database = psycopg.connect(database, autocommit=True)
        self._decisions = Decisions(decisions)
        self._worker = worker
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS orders (number text PRIMARY KEY, amount numeric NOT NULL)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._decisions.close()

    def place(self, number: str, amount: str, *, on_step: Callable[[str], None] = lambda step: None) -> None:
        """Place one order. If this raises, ``recover`` commits the order or rolls it back."""
        with client.TwoPhase(self._broker, self._worker) as txn:
            txn.send("orders", json.dumps({"number": number, "amount": amount}), key=number)
            token = txn.prepare()
        on_step(STEPS[0])
        self._database.execute("BEGIN")
        try:
            self._database.execute("INSERT INTO orders VALUES (%s, %s)", (number, amount))
            self._end("PREPARE TRANSACTION {}", _name(token))
        except psycopg.Error:
            with contextlib.suppress(psycopg.Error):
                self._database.execute("ROLLBACK")
            raise
        on_step(STEPS[1])
        self._decisions.commit(token)
        on_step(STEPS[2])
        self._finish(token, on_step)

    def recover(self) -> list[str]:
        """Finish what a crash interrupted: commit decided orders, roll back this worker's other orders."""
        settled = []
        decided = self._decisions.undone()
        for token in decided:
            self._finish(token, lambda step: None)
            settled.append(f"{token} committed")
        for name in self._prepared():
            self._end("ROLLBACK PREPARED {}", name)
            settled.append(f"{name} rolled back in PostgreSQL")
        for token, _ in client.list_prepared(self._broker):
            if token.transactional_id == self._worker:
                client.abort_prepared(self._broker, token)
                settled.append(f"{token} rolled back in the log")
        return settled

    def _finish(self, token: Token, on_step: Callable[[str], None]) -> None:
        """The second phase. Each step may already be done, by this process or before a crash."""
        if _name(token) in self._prepared():
            self._end("COMMIT PREPARED {}", _name(token))
        on_step(STEPS[3])
        client.commit_prepared(self._broker, token)
        on_step(STEPS[4])
        self._decisions.done(token)
        on_step(STEPS[5])

    def _prepared(self) -> list[str]:
        """This worker's transactions that are prepared in this database."""
        found = self._database.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)",
            (f"millstream {self._worker}:",),
        )
        return [gid for (gid,) in found.fetchall()]

    def _end(self, how: LiteralString, name: str) -> None:
        self._database.execute(sql.SQL(how).format(sql.Literal(name)))


def _name(token: Token) -> str:
    return f"millstream {token}"
