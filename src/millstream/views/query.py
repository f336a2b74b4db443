"""Untrusted queries on a database of views: read-only, and within limits.

    with reader.asking(Limits(seconds=5)) as ask:
        answer = ask("SELECT rule, count(*) FROM blocked GROUP BY rule")

All queries in one such block see the same snapshot, and share the time limit. The job that writes continues
meanwhile. A reader of SQLite only keeps it from cleaning up old data, and a reader of PostgreSQL does not
hold it up at all. Both end when the time is over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from millstream.core.errors import MillstreamError

READS = "only one statement that reads is allowed: SELECT, WITH or VALUES"
LONGEST_VALUE = 10_000_000  # bytes; SQLite refuses to make longer values in such queries


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The limits of a query: ``rows`` and ``bytes`` cut its answer off, ``seconds`` stop it."""

    seconds: float = 5.0
    rows: int = 1000
    bytes: int = 4_000_000


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to a query. ``cut`` is the limit at which it was cut off; None if it is complete."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    cut: Literal["rows", "bytes"] | None = None


RunQuery = Callable[[str], QueryResult]


class QueryRefused(MillstreamError):
    """A query is wrong, does more than read, or takes too long. ``at`` is the place in the SQL, counted in
    characters from 0, if it is known."""

    def __init__(self, reason: str, sql: str, at: int | None = None) -> None:
        self.reason = reason
        self.at = at
        self.line: int | None = None
        self.column: int | None = None
        if at is not None:
            before = sql[:at]
            self.line = before.count("\n") + 1
            self.column = at - (before.rfind("\n") + 1) + 1
        super().__init__(reason if at is None else f"line {self.line}, column {self.column}: {reason}")


def too_slow(sql: str, limits: QueryLimits) -> QueryRefused:
    return QueryRefused(f"it took longer than {limits.seconds:g} s, and was stopped", sql)


def collected(rows: Iterable[tuple[Any, ...]], limits: QueryLimits) -> tuple[list[tuple[Any, ...]], Any]:
    """The rows within the limits, and the limit that cut them off. Takes no more rows than it needs."""
    found: list[tuple[Any, ...]] = []
    left = limits.bytes
    for row in rows:
        if len(found) == limits.rows:
            return found, "rows"
        left -= sum(weight(value) for value in row)
        if left < 0 and found:
            return found, "bytes"
        found.append(row)
    return found, None


def weight(value: Any) -> int:
    """About how many bytes it takes to pass a value on."""
    return len(value) if isinstance(value, str | bytes) else 8


# ---- the place of SQLite's complaint -------------------------------------------------------------------

_NEAR = re.compile(r'near "(.*)": syntax error', re.DOTALL)
_NAMED = re.compile(
    r"(?:no such (?:column|table|function|collation sequence)|ambiguous column name|unrecognized token"
    r"|(?:wrong number of arguments to|misuse of \w+) function)[: ]+(.*)",
    re.DOTALL,
)


def place_of(complaint: str, sql: str, try_out: Callable[[str], str | None]) -> int | None:
    """The place in the SQL that SQLite's complaint is about; the complaint itself names only a word. A
    parser stops at the first word that can't follow. So the SQL up to the right occurrence brings the same
    complaint, and the SQL up to an earlier one does not. ``try_out`` returns the complaint about some SQL,
    if any."""
    if complaint == "incomplete input":
        return len(sql.rstrip())
    if near := _NEAR.fullmatch(complaint):
        word = near[1]
        for found in re.finditer(re.escape(word), sql):
            if try_out(sql[: found.end()]) == complaint:
                return found.start()
        return None
    if named := _NAMED.match(complaint):
        name = named[1].strip().strip('"').removesuffix("()").rpartition(".")[2]
        found_name = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)
        return found_name.start() if found_name else None
    return None
