"""Runs users' SQL on a SQLite file, in a process that can be killed.

SQLite looks at the clock between the steps of its virtual machine, but one step may take forever: a LIKE with
many wildcards, a printf of a million digits. And sorting writes temporary files. So users' SQL runs here,
with the operating system's limits on memory and files. The process that asked kills this one when the time is
over (``Child``).

The two processes exchange marshalled tuples: first the limits, then questions, each with its answer:

    ("ask", sql)   ->  ("rows", columns, rows, cut) or ("wrong", complaint) or ("late",)
    ("try", sql)   ->  ("wrong", complaint), ("late",) or ("fine",): whether SQLite can parse it
"""

from __future__ import annotations

import marshal
import resource
import select
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote

from millstream.core.errors import MillstreamError
from millstream.views.query import LONGEST_VALUE, READS, QueryLimits, collected

MEMORY = 1 << 30  # bytes of address space
TEMPORARY = 64 << 20  # bytes of one temporary file
_GRACE = 0.5  # seconds from the deadline until the process is killed
_STARTING = 30.0  # seconds that a busy machine may take to start the process
LOOK_AT_CLOCK = 10_000  # steps of SQLite's virtual machine between two looks; less than a millisecond

_ACTIONS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
# All of SQLite's functions on values; none that reaches files, extensions or SQLite's internals.
_NAMES = """
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling changes char coalesce concat concat_ws
    cos cosh count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp
    first_value floor format glob group_concat hex if ifnull iif instr json json_array json_array_length
    json_each json_error_position json_extract json_group_array json_group_object json_insert json_object
    json_patch json_pretty json_quote json_remove json_replace json_set json_tree json_type json_valid jsonb
    julianday lag last_value lead length like likelihood likely ln log log10 log2 lower ltrim max min mod
    nth_value ntile nullif octet_length percent_rank pi pow power printf quote radians random rank replace
    round row_number rtrim sign sin sinh soundex sqlite_version sqrt strftime string_agg substr substring sum
    tan tanh time timediff total trim trunc typeof unhex unicode unistr unixepoch unlikely upper zeroblob
"""
_FUNCTIONS = frozenset(_NAMES.split())


def may(action: int, first: str | None, second: str | None, *where: str | None) -> int:
    """SQLite's authorizer for users' SQL. Even in a database opened for reading, SQL could attach another
    file."""
    allowed = action in _ACTIONS and (
        action != sqlite3.SQLITE_FUNCTION or (second or "").lower() in _FUNCTIONS
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


class Child:
    """The process, for as long as the ``with`` block lasts. Not for use by two threads at once."""

    def __init__(self, path: str, limits: QueryLimits) -> None:
        self._limits = limits
        self._process = subprocess.Popen(
            [sys.executable, "-m", "millstream.views.sqlite_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to: BinaryIO = self._process.stdin  # type: ignore[assignment]
        self._from: BinaryIO = self._process.stdout  # type: ignore[assignment]
        try:
            self._send((path, limits.seconds, limits.rows, limits.bytes))
            self._receive(time.monotonic() + _STARTING)
        except TimeoutError:
            self.close()
            raise MillstreamError(
                f"the query of {path} could not start within {_STARTING:g} s; try again"
            ) from None
        except (BrokenPipeError, EOFError):
            code = self._process.wait()
            self.close()
            raise MillstreamError(
                f"the process that queries {path} ended at its start (exit code {code}); try again"
            ) from None
        except BaseException:
            self.close()
            raise
        self._deadline = time.monotonic() + limits.seconds + _GRACE

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):  # what it was asked and did not take
            self._to.close()
        self._from.close()

    def call(self, what: str, sql: str) -> tuple[Any, ...]:
        """The process's answer; ``("late",)`` if it does not come in time."""
        try:
            self._send((what, sql))
            return self._receive(self._deadline)
        except TimeoutError:
            self._process.kill()
            return ("late",)
        except (BrokenPipeError, EOFError):
            # Killed just now, or out of memory.
            if time.monotonic() > self._deadline - _GRACE:
                return ("late",)
            return ("wrong", f"it took more memory than {MEMORY >> 20} MB, and was stopped")

    def _send(self, message: tuple[Any, ...]) -> None:
        marshal.dump(message, self._to)
        self._to.flush()

    def _receive(self, deadline: float) -> tuple[Any, ...]:
        # Not select(): it takes no file descriptor above 1,023, and a console may have more open.
        waiting = select.poll()
        waiting.register(self._from, select.POLLIN)
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        answer: tuple[Any, ...] = marshal.load(self._from)  # noqa: S302 - our own process
        return answer


# ---- in the process --------------------------------------------------------------------------------------


def main() -> None:
    asked, told = sys.stdin.buffer, sys.stdout.buffer
    path, seconds, rows, size = marshal.load(asked)  # noqa: S302
    limits = QueryLimits(seconds, rows, size)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (TEMPORARY, TEMPORARY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    db = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=10, isolation_level=None)
    db.execute("PRAGMA query_only = ON")
    db.execute("BEGIN")
    db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()  # from here on it sees one snapshot
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    deadline = time.monotonic() + limits.seconds
    db.set_progress_handler(lambda: time.monotonic() > deadline, LOOK_AT_CLOCK)
    db.set_authorizer(may)
    _answer(told, ("ready",))
    while True:
        try:
            what, sql = marshal.load(asked)  # noqa: S302
        except EOFError:
            return
        try:
            answer = _tried(db, sql) if what == "try" else _asked(db, sql, limits)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            answer = ("late",) if time.monotonic() > deadline else ("wrong", _complaint(error))
        except MemoryError:
            answer = ("wrong", f"it took more memory than {MEMORY >> 20} MB, and was stopped")
        _answer(told, answer)


def _complaint(error: Exception) -> str:
    said = str(error)
    if "disk I/O error" in said or "disk is full" in said:
        return f"it needs more than {TEMPORARY >> 20} MB of temporary files, and was stopped"
    return said or type(error).__name__


def _asked(db: sqlite3.Connection, sql: str, limits: QueryLimits) -> tuple[Any, ...]:
    with closing(db.execute(sql)) as cursor:
        if cursor.description is None:
            return ("wrong", READS)
        found, cut = collected(cursor, limits)
        return ("rows", [column[0] for column in cursor.description], found, cut)


def _tried(db: sqlite3.Connection, sql: str) -> tuple[Any, ...]:
    db.execute(f"EXPLAIN {sql}").close()
    return ("fine",)


def _answer(told: BinaryIO, answer: tuple[Any, ...]) -> None:
    marshal.dump(answer, told)
    told.flush()


if __name__ == "__main__":
    main()
