"""The catalogue's commits, in order, for standbys that apply the same changes.

Each commit has a number. Commits that a standby may still need are kept, up to a limit of bytes. A
standby that is further behind, or that is new, gets the whole catalogue instead.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

KEPT_BYTES = 16 * 1024 * 1024

Statement = tuple[str, list[tuple[Any, ...]]]  # and the values of each run of it


class Recording:
    """Wraps a connection to the catalogue and records what was changed through it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.statements: list[Statement] = []

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        cursor = self._db.execute(statement, values)
        if not statement.startswith("SELECT"):
            self.statements.append((statement, [tuple(values)]))
        return cursor

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        kept = [tuple(row) for row in rows]
        cursor = self._db.executemany(statement, kept)
        if kept:
            self.statements.append((statement, kept))
        return cursor


class CatalogueFeed:
    """The newest commits. Lives on the loop."""

    def __init__(self, number: int, added: Callable[[], None]) -> None:
        self.number = number  # of the newest commit
        self._added = added  # called after each new commit
        self._commits: deque[tuple[int, list[Statement], int]] = deque()
        self._bytes = 0

    def add(self, number: int, statements: list[Statement]) -> None:
        self.number = number
        size = sum(len(text) + sum(map(_size, rows)) for text, rows in statements)
        self._commits.append((self.number, statements, size))
        self._bytes += size
        while self._bytes > KEPT_BYTES and len(self._commits) > 1:
            self._bytes -= self._commits.popleft()[2]
        self._added()

    def since(self, number: int) -> list[Statement] | None:
        """What was done after commit ``number``. None if some of it is not kept any more."""
        if number == self.number:
            return []
        if number > self.number or not self._commits or self._commits[0][0] > number + 1:
            return None
        return [each for known, statements, _ in self._commits if known > number for each in statements]

    def forget(self, number: int) -> None:
        """Drop the commits up to ``number``: every standby has them."""
        while self._commits and self._commits[0][0] <= number:
            self._bytes -= self._commits.popleft()[2]


def _size(row: tuple[Any, ...]) -> int:
    return 16 + sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
