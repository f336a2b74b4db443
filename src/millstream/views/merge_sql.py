"""The SQL that merges a batch into a view, and that records what the batch changed.

The statements are the same for both kinds of database, without placeholders: they contain only names, numbers
and ids. The cost of every statement grows with the batch (or, when a rebuilt view replaces the old one, with
both views), never with the view that a batch is written to.

The order of the rows within a batch is settled first (``last_of_each``). The stage has only the last row of
each key, with two flags: whether it deletes, and whether it does so whatever row is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.views.naming import beside, quoted_name
from millstream.views.values import rank
from millstream.views.views import View

VERSION, PART = quoted_name("millstream version"), quoted_name("millstream part")
DELETED, FORCED = quoted_name("millstream deleted"), quoted_name("millstream forced")
OLD, NEW = 0, 1  # which part of a change a row is


def last_of_each(
    view: View, keyed: list[tuple[tuple[Any, ...], bool]], forms: Mapping[int, Callable[[Any], Any]]
) -> list[tuple[Any, ...]]:
    """The last row of each key, and the two flags. ``forms`` are for the columns that Python holds in another
    form than the database takes.

    A row is last if its order is not below that of the rows before it; null is below every order. A deletion
    without an order removes whatever came before it, so later rows are not compared with that any more.
    """
    names = [name for name, _ in view.columns]
    at = [names.index(column) for column in view.key]
    order = None if view.order is None else names.index(view.order)
    columns: list[Any] = list(zip(*(row for row, _ in keyed), strict=True))
    orders = [None] * len(keyed) if order is None else columns[order]
    for i, form in forms.items():
        columns[i] = [None if value is None else form(value) for value in columns[i]]
    last: dict[Any, tuple[Any, ...]] = {}
    latest: dict[Any, Any] = {}
    keys = columns[at[0]] if len(at) == 1 else zip(*(columns[i] for i in at), strict=True)
    for key, values, (_, gone), rank_of in zip(keys, zip(*columns, strict=True), keyed, orders, strict=True):
        before = last.get(key)
        forced = gone and order is not None and rank_of is None
        if before is not None and not forced:
            if rank(rank_of) < rank(latest[key]):
                continue
            forced = before[-1]
        last[key], latest[key] = (*values, gone, forced), rank_of
    return list(last.values())


@dataclass(frozen=True, slots=True)
class Tables:
    """A view's tables and columns. ``columns`` are all columns of its table. ``differ`` is the database's
    operator for two values that are not the same, nulls included. ``collation`` is how the order column is
    compared, if not by the database's default rules."""

    view: View
    columns: Sequence[str]
    differ: str
    collation: str = ""

    @property
    def live(self) -> str:
        return quoted_name(self.view.name)

    @property
    def changes(self) -> str:
        return quoted_name(beside("changes", self.view.name))

    @property
    def next(self) -> str:
        return quoted_name(beside("next", self.view.name))

    # ---- a batch ------------------------------------------------------------------------------------

    def stage_columns(self) -> str:
        """A SELECT of the stage's columns, without rows."""
        own = ", ".join(quoted_name(name) for name, _ in self.view.columns)
        return f"SELECT {own}, true AS {DELETED}, true AS {FORCED} FROM {self.live} WHERE false"

    def keep(self, stage: str, kept: str) -> str:
        """Save the existing rows of a batch's keys."""
        return (
            f"INSERT INTO {kept} SELECT {self._all()} FROM {self.live}"
            f" WHERE ({self._keys()}) IN (SELECT {self._keys()} FROM {stage})"
        )

    def delete(self, stage: str) -> str:
        later = ""
        if self.view.order is not None:
            later = f" AND {self._not_before('s', 't')}"
        return (
            f"DELETE FROM {self.live} WHERE ({self._keys()}) IN (SELECT {self._keys('s')} FROM {stage} s"
            f" JOIN {self.live} t ON {self.same('s', 't')} WHERE s.{FORCED} OR (s.{DELETED}{later}))"
        )

    def upsert(self, stage: str) -> str:
        """The later row wins or, without an order, the one that arrives later."""
        own = ", ".join(quoted_name(name) for name, _ in self.view.columns)
        others = [quoted_name(name) for name, _ in self.view.columns if name not in self.view.key]
        sql = (
            f"INSERT INTO {self.live} ({own}) SELECT {own} FROM {stage} WHERE NOT {DELETED}"
            f" ON CONFLICT ({self._keys()}) "
        )
        if not others:
            return sql + "DO NOTHING"
        sql += "DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)
        if self.view.order is not None:
            sql += f" WHERE {self._not_before('excluded', self.live)}"
        return sql

    def note_old(self, version: int, kept: str) -> str:
        """Record the rows that are gone or have changed, as they were."""
        return self._note(
            version, OLD, f"{kept} b LEFT JOIN {self.live} t ON {self.same('b', 't')}", "b", "t"
        )

    def note_new(self, version: int, kept: str, stage: str) -> str:
        """Record the rows that are new or have changed, as they are now."""
        joined = (
            f"{stage} s JOIN {self.live} t ON {self.same('s', 't')}"
            f" LEFT JOIN {kept} b ON {self.same('t', 'b')}"
        )
        return self._note(version, NEW, joined, "t", "b")

    # ---- a rebuilt view -----------------------------------------------------------------------------

    def note_replaced(self, version: int) -> list[str]:
        """Record what differs between the view and the one that was rebuilt next to it."""
        old = f"{self.live} b LEFT JOIN {self.next} t ON {self.same('b', 't')}"
        new = f"{self.next} t LEFT JOIN {self.live} b ON {self.same('t', 'b')}"
        return [self._note(version, OLD, old, "b", "t"), self._note(version, NEW, new, "t", "b")]

    def replace(self, version: int) -> list[str]:
        """Apply the recorded changes to the view."""
        noted = f"FROM {self.changes} WHERE {VERSION} = {version} AND {PART} ="
        return [
            f"DELETE FROM {self.live} WHERE ({self._keys()}) IN (SELECT {self._keys()} {noted} {OLD})",
            f"INSERT INTO {self.live} ({self._all()}) SELECT {self._all()} {noted} {NEW}",
        ]

    # ---- reading it back ----------------------------------------------------------------------------

    def noted(self, version: int) -> str:
        """Select a version's changes: the part, and the row; ordered by key, the old row first."""
        return (
            f"SELECT {PART}, {self._all()} FROM {self.changes} WHERE {VERSION} = {version}"
            f" ORDER BY {self._keys()}, {PART}"
        )

    def _note(self, version: int, part: int, joined: str, here: str, there: str) -> str:
        key = quoted_name(self.view.key[0])
        values = [quoted_name(name) for name in self.columns if name not in self.view.key]
        other = ""
        if values:
            ours, theirs = (", ".join(f"{side}.{name}" for name in values) for side in (here, there))
            other = f" OR ({ours}) {self.differ} ({theirs})"
        return (
            f"INSERT INTO {self.changes} ({VERSION}, {PART}, {self._all()})"
            f" SELECT {version}, {part}, {self._all(here)} FROM {joined} WHERE {there}.{key} IS NULL{other}"
        )

    def _not_before(self, one: str, other: str) -> str:
        """True, in SQL, if a row may replace another: the later one wins, and of equals the one that arrives
        later."""
        assert self.view.order is not None
        order = quoted_name(self.view.order)
        return f"({other}.{order} IS NULL OR {one}.{order}{self.collation} >= {other}.{order})"

    def _all(self, side: str = "") -> str:
        return ", ".join(f"{side}.{quoted_name(n)}" if side else quoted_name(n) for n in self.columns)

    def _keys(self, side: str = "") -> str:
        return ", ".join(f"{side}.{quoted_name(n)}" if side else quoted_name(n) for n in self.view.key)

    def same(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{quoted_name(n)} = {other}.{quoted_name(n)}" for n in self.view.key)
