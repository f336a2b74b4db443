"""Questions to a database of views by whoever comes to ask: only read, and only so much of it.

    with reader.asking(Limits(seconds=5)) as ask:
        answer = ask("SELECT rule, count(*) FROM blocked GROUP BY rule")

Everything that is asked within sees one moment, and has the time of the limits together. The job that writes
goes on meanwhile: a reader of SQLite holds it up only by what it keeps from being tidied away, a reader of
PostgreSQL not at all, and both end with the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from millstream.errors import MillstreamError

READS = "only what reads is done here, one statement at a time: SELECT, WITH or VALUES"
LONGEST_VALUE = 10_000_000  # bytes; SQLite refuses to make longer ones while somebody asks


@dataclass(frozen=True, slots=True)
class Limits:
    """``rows`` and ``bytes`` cut an answer off, ``seconds`` end the question."""

    seconds: float = 5.0
    rows: int = 1000
    bytes: int = 4_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """``cut`` is the limit at which it was cut off."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    cut: Literal["rows", "bytes"] | None = None


Ask = Callable[[str], Answer]


class QueryRefused(MillstreamError):
    """A query is wrong, asks for what is not read, or takes too long. ``at`` is where in the SQL, counted in
    characters from 0, if that is known."""

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


def too_slow(sql: str, limits: Limits) -> QueryRefused:
    return QueryRefused(f"it took longer than {limits.seconds:g} s, and was stopped", sql)


def collected(rows: Iterable[tuple[Any, ...]], limits: Limits) -> tuple[list[tuple[Any, ...]], Any]:
    """The rows within the limits, and at which they were cut off. Takes no more rows than it needs."""
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
    """About how many bytes it takes to hand a value on."""
    return len(value) if isinstance(value, str | bytes) else 8


# ---- where SQLite's complaint is about -----------------------------------------------------------------

_NEAR = re.compile(r'near "(.*)": syntax error', re.DOTALL)
_NAMED = re.compile(
    r"(?:no such (?:column|table|function|collation sequence)|ambiguous column name|unrecognized token"
    r"|(?:wrong number of arguments to|misuse of \w+) function)[: ]+(.*)",
    re.DOTALL,
)


def place_of(complaint: str, sql: str, try_out: Callable[[str], str | None]) -> int | None:
    """Where in the SQL SQLite's complaint is about; it tells only a word. A parser stops at the first word
    that can't follow, so the SQL up to the right one brings the same complaint, and up to earlier ones not:
    ``try_out`` says what parsing some SQL brings."""
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
