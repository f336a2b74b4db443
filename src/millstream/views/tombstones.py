"""Tombstones of a view: which keys were deleted, and where in its order. The SQL for both databases.

Without them, a view would depend on how its batches were cut. Take a row at 10, a deletion at 20 and a row
at 15. Within one batch the last row loses. In a separate batch it would find no later row, and the key
would come back.

Rule 1: a key has a row or a tombstone or neither, never both.

Rule 2: only a view whose order is not part of its key needs them. Without an order, the last row to arrive
wins.

They are kept for ``keep_gone_s`` seconds, and up to ``keep_gone`` of them in a view, plus those of one batch.
A row that arrives after that comes back, like a row of a new key.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.views.merge_sql import DELETED, FORCED, Tables
from millstream.views.naming import beside, quoted_name
from millstream.views.views import View

TOTAL, AT = quoted_name("millstream total"), quoted_name("millstream at")


def are_needed(view: View) -> bool:
    return view.order is not None and view.order not in view.key


def created(view: View, kinds: Mapping[str, str]) -> list[str]:
    """Create the table. ``kinds`` are the database's types of the view's columns."""
    table = quoted_name(beside("gone", view.name))
    columns = ", ".join(f"{quoted_name(name)} {kinds[name]}" for name in view.key)
    key = ", ".join(map(quoted_name, view.key))
    return [
        f"CREATE TABLE IF NOT EXISTS {table} ({columns}, {TOTAL} bigint, {AT} bigint, PRIMARY KEY ({key}))",
        f"CREATE INDEX IF NOT EXISTS {quoted_name(beside('gone_total', view.name))} ON {table} ({TOTAL})",
        f"CREATE INDEX IF NOT EXISTS {quoted_name(beside('gone_at', view.name))} ON {table} ({AT})",
    ]


def ordered(view: View, kinds: Mapping[str, str]) -> str:
    """Add a column for the order. When a view's order changes, the old column stays, because a job that is
    about to be replaced may still write it."""
    assert view.order is not None
    table, order = quoted_name(beside("gone", view.name)), quoted_name(view.order)
    return f"ALTER TABLE {table} ADD COLUMN {order} {kinds[view.order]}"


class Tombstones:
    """The SQL for the tombstones of one view."""

    def __init__(self, tables: Tables) -> None:
        assert tables.view.order is not None
        self._tables = tables
        self.view = tables.view.name
        self.table = quoted_name(beside("gone", tables.view.name))
        self._keys = ", ".join(map(quoted_name, tables.view.key))
        self._order = quoted_name(tables.view.order)
        self._columns = f"{self._keys}, {self._order}, {TOTAL}, {AT}"

    def any(self) -> str:
        return f"SELECT 1 FROM {self.table} LIMIT 1"

    def forget_forced(self, stage: str) -> str:
        """A deletion without an order also removes the key's tombstone."""
        return f"DELETE FROM {self.table} WHERE {self._in(stage, FORCED)}"

    def leave_out(self, stage: str) -> str:
        """Remove rows from a batch that are older than the deletion of their key."""
        same = self._tables.same("s", "g")
        late = f"s.{self._order} IS NULL OR s.{self._order}{self._tables.collation} < g.{self._order}"
        keys = ", ".join(f"s.{quoted_name(name)}" for name in self._tables.view.key)
        return (
            f"DELETE FROM {stage} WHERE ({self._keys}) IN"
            f" (SELECT {keys} FROM {stage} s JOIN {self.table} g ON {same} WHERE {late})"
        )

    def revive(self, stage: str) -> str:
        """Remove the tombstones of keys that have a row again."""
        return f"DELETE FROM {self.table} WHERE {self._in(stage, f'NOT {DELETED}')}"

    def note(self, stage: str, total: int, at_ms: int) -> str:
        """Record the deletions of a batch. A key whose later row survived gets no tombstone."""
        live = f"SELECT 1 FROM {self._tables.live} t WHERE {self._tables.same('s', 't')}"
        return (
            f"INSERT INTO {self.table} ({self._columns}) SELECT {self._keys}, {self._order}, {total}, {at_ms}"
            f" FROM {stage} s WHERE {DELETED} AND {self._order} IS NOT NULL AND NOT EXISTS ({live})"
            f" ON CONFLICT ({self._keys}) DO UPDATE SET {self._order} = excluded.{self._order},"
            f" {TOTAL} = excluded.{TOTAL}, {AT} = excluded.{AT}"
        )

    def total(self) -> str:
        """The number of the last tombstone. All those of a batch have the same number."""
        return f"SELECT coalesce(max({TOTAL}), 0) FROM {self.table}"

    def trim(self, total: int, at_ms: int) -> str:
        return f"DELETE FROM {self.table} WHERE {TOTAL} <= {total} OR {AT} < {at_ms}"

    def forget_living(self) -> str:
        """Remove the tombstones of keys that have a row. After a change of the order, tombstones of the new
        order may be from long ago."""
        return (
            f"DELETE FROM {self.table} WHERE ({self._keys}) IN (SELECT {self._keys} FROM {self._tables.live})"
        )

    def replace(self) -> list[str]:
        """Replace them with those of the view that was rebuilt next to this one."""
        built = quoted_name(beside("gone", beside("next", self._tables.view.name)))
        return [
            f"DELETE FROM {self.table}",
            f"INSERT INTO {self.table} ({self._columns}) SELECT {self._columns} FROM {built}",
        ]

    def _in(self, stage: str, condition: str) -> str:
        return f"({self._keys}) IN (SELECT {self._keys} FROM {stage} WHERE {condition})"
