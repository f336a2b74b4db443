"""Writes views in SQL: batches, versions and their changes, and rebuilt views that replace old ones.

Rule 1: everything that is written for a batch is one transaction: rows, changes, and the ledger.

Rule 2: a view's versions are committed in order. Writers lock the view's row in ``millstream_views`` before
they take the next number, so a reader that has seen version N has seen all versions before it.

Rule 3: a retired query never writes again, and a held query does not write while it is held. Both are checked
in the transaction that would write, so nothing can happen in between (rebuild.py says what this is for).

Changes are kept for followers of a view, not as history: ``keep_rows`` of them in each view, for ``keep_s``
seconds. A follower that falls further behind is told so, and begins again with the rows. A batch that changes
more rows than are kept at all is not recorded row by row, unless a changelog needs it.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from millstream.core.errors import MillstreamError, TopologyError
from millstream.views.merge_sql import VERSION, Tables, last_of_each
from millstream.views.naming import beside, is_ours, quoted_name, quoted_text
from millstream.views.refusals import check_key, check_owner, check_types, other_type
from millstream.views.tombstones import Tombstones, are_needed, created, ordered
from millstream.views.views import AppliedBatch, ChangedRow, Changes, View, ViewsRebuilt

T = TypeVar("T")

TABLES = """
CREATE TABLE IF NOT EXISTS millstream_views (
    name {text} PRIMARY KEY, key_columns text NOT NULL, order_column text, version bigint NOT NULL DEFAULT 0,
    floor bigint NOT NULL DEFAULT 0, total bigint NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS millstream_owners (view {text} PRIMARY KEY, job text NOT NULL);
CREATE TABLE IF NOT EXISTS millstream_ledger (
    query {text} PRIMARY KEY, batch bigint NOT NULL, held_until double precision NOT NULL DEFAULT 0,
    retired integer NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS millstream_versions (
    view {text} NOT NULL, version bigint NOT NULL, total bigint NOT NULL, at_ms bigint NOT NULL,
    query text NOT NULL, batch bigint NOT NULL, PRIMARY KEY (view, version));
""".replace("{text}", "text")

_TRIM = 20  # the oldest versions that are looked at with every batch; it adds at most one
REBUILT = "rebuilt"  # in place of a query, for the version at which a rebuilt view took over


class SqlStore(ABC):
    """What both kinds of database do in the same way, for the one process that writes views."""

    keep_rows = 100_000
    keep_s = 86_400.0
    keep_gone = 1_000_000
    keep_gone_s = 7 * 86_400.0
    where: str
    _differ: str
    _for_update: str
    _clock: str  # seconds since 1970, in SQL

    def __init__(self) -> None:
        self._lock = threading.RLock()  # each query of a job delivers in its own thread
        self._tables: dict[View, Tables] = {}
        self._buried: set[str] = set()  # views that have tombstones, or have had some

    # ---- what they do differently -------------------------------------------------------------------

    @abstractmethod
    def _run(self, sql: str) -> int:
        """Execute; returns the number of affected rows."""

    @abstractmethod
    def _ask(self, sql: str) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[None]:
        """A transaction that commits at the exit, and rolls back on an exception."""

    @abstractmethod
    def _again(self, action: Callable[[], T]) -> T:
        """The action's result; repeated over a new connection if the old one turns out to be broken."""

    @abstractmethod
    def _temporary(self, name: str, select: str) -> None:
        """Make sure of an empty table that only this connection sees, with the columns of a SELECT."""

    @abstractmethod
    def _fill(self, stage: str, rows: list[tuple[Any, ...]]) -> None: ...

    @abstractmethod
    def _naming(self, view: View, rows: list[tuple[Any, ...]]) -> AbstractContextManager[None]:
        """While rows are written, make an error about one of them say which (``not_taken``)."""

    @abstractmethod
    def _columns(self, table: str) -> dict[str, str]:
        """The columns of a table and their types, in order."""

    @abstractmethod
    def _form(self, kind: str) -> Callable[[Any], Any] | None:
        """How a value of one of Spark's types is written, if not as Python has it. Values that the database
        finds equal must have equal forms."""

    @abstractmethod
    def _collation(self, kind: str) -> str:
        """The SQL that makes the database order values of one of Spark's types as Spark does; empty if it is
        not needed."""

    @abstractmethod
    def _read(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row as readers get it."""

    @abstractmethod
    def _kind(self, kind: str) -> str:
        """The database's type for one of Spark's, as ``_columns`` returns it."""

    @abstractmethod
    def _create(self, name: str, columns: str, key: str) -> None:
        """Create a view's table and the table of its changes; columns and key are SQL."""

    @staticmethod
    def _folded(column: str) -> str:
        """A column's name in a form that is equal for names that the database finds equal."""
        return column

    @abstractmethod
    def _tell(self, view: str) -> None:
        """Wake the followers of a view, once this transaction is committed."""

    # ---- a view -------------------------------------------------------------------------------------

    def prepare(self, view: View, *, where: str | None = None) -> None:
        """Create the table, or add new columns. Refuses what ``check`` refuses."""

        def make() -> None:
            with self._lock, self._transaction():
                if view.job is not None:
                    self._claim(view.name, view.job)
                self._check(view, where)
                self._make(view, {name: self._kind(kind) for name, kind in view.columns})

        check_types(view, at=where)
        self._again(make)

    def check(self, view: View, *, where: str | None = None) -> None:
        """Refuse a view of another job, another key or other types than before, and a table that is not a
        view. Changes nothing."""

        def look() -> None:
            with self._lock, self._transaction():
                self._check(view, where)

        check_types(view, at=where)
        self._again(look)

    def _check(self, view: View, where: str | None) -> None:
        name = quoted_text(view.name)
        for (owner,) in self._ask(f"SELECT job FROM millstream_owners WHERE view = {name}"):
            if view.job is not None:
                check_owner(view, owner, self.where, at=where)
        known = self._ask(f"SELECT key_columns FROM millstream_views WHERE name = {name}{self._for_update}")
        there = {self._folded(column): kind for column, kind in self._columns(view.name).items()}
        if there and not known:
            raise TopologyError(
                f"there is a table {view.name!r} in {self.where} that is not a view of a pipeline; give the"
                " view another name",
                where=where,
            )
        if known:
            check_key(view, json.loads(known[0][0]), self.where, at=where)
            for column, spark in view.columns:
                kind = self._kind(spark)
                if (before := there.get(self._folded(column), kind)) != kind:
                    raise other_type(view, column, before, kind, self.where, at=where)

    def _make(self, view: View, columns: Mapping[str, str]) -> None:
        """Create or widen the view's tables: they have these columns, with the database's types, and all that
        they had before."""
        name = quoted_text(view.name)
        known = self._ask(f"SELECT order_column FROM millstream_views WHERE name = {name}")
        order = quoted_text(view.order) if view.order is not None else "NULL"
        if known:
            self._widen(view.name, columns)
            if not is_ours(view.name):
                self._widen(beside("changes", view.name), columns)
            self._run(f"UPDATE millstream_views SET order_column = {order} WHERE name = {name}")
        else:
            listed = ", ".join(f"{quoted_name(column)} {kind}" for column, kind in columns.items())
            self._create(view.name, listed, ", ".join(map(quoted_name, view.key)))
            self._run(
                "INSERT INTO millstream_views (name, key_columns, order_column)"
                f" VALUES ({name}, {quoted_text(json.dumps(view.key))}, {order})"
            )
        self._tables.pop(view, None)
        if are_needed(view):
            self._make_tombstones(view)
            if known and known[0][0] != view.order:
                self._run(Tombstones(self._of(view)).forget_living())

    def _widen(self, table: str, columns: Mapping[str, str]) -> None:
        there = {self._folded(column) for column in self._columns(table)}
        for column, kind in columns.items():
            if self._folded(column) not in there:
                self._run(f"ALTER TABLE {quoted_name(table)} ADD COLUMN {quoted_name(column)} {kind}")

    def _claim(self, view: str, job: str) -> None:
        """Record the job that keeps a view, unless one is recorded already."""
        self._run(
            f"INSERT INTO millstream_owners VALUES ({quoted_text(view)}, {quoted_text(job)})"
            " ON CONFLICT (view) DO NOTHING"
        )

    def _make_tombstones(self, view: View) -> None:
        kinds = self._columns(view.name)
        for sql in created(view, kinds):
            self._run(sql)
        if view.order not in self._columns(beside("gone", view.name)):
            self._run(ordered(view, kinds))
        self._look_for_tombstones(self._of(view))

    def _look_for_tombstones(self, tables: Tables) -> None:
        if self._ask(Tombstones(tables).any()):
            self._buried.add(tables.view.name)

    def drop(self, name: str) -> None:
        """Remove a view and its rows."""

        def remove() -> None:
            with self._lock, self._transaction():
                self._remove(name)

        self._again(remove)

    def _remove(self, name: str) -> None:
        if not self._run(f"DELETE FROM millstream_views WHERE name = {quoted_text(name)}"):
            raise MillstreamError(f"there is no view {name!r} in {self.where}")
        for table in ("versions", "owners"):
            self._run(f"DELETE FROM millstream_{table} WHERE view = {quoted_text(name)}")
        self._run(f"DROP TABLE {quoted_name(name)}")
        for kind in ("changes", "gone"):
            self._run(f"DROP TABLE IF EXISTS {quoted_name(beside(kind, name))}")
        self._tables = {view: tables for view, tables in self._tables.items() if view.name != name}
        self._tell(name)

    def _of(self, view: View) -> Tables:
        if view not in self._tables:
            kind = dict(view.columns).get(view.order or "", "")
            self._tables[view] = Tables(
                view, list(self._columns(view.name)), self._differ, self._collation(kind)
            )
        return self._tables[view]

    # ---- a batch ------------------------------------------------------------------------------------

    def apply(self, query: str, batch: int, changes: Iterable[Changes]) -> int | None:
        """Write a batch. Returns how many rows had no key and were left out, or None if the batch was written
        before."""
        given = list(changes)

        def write() -> int | None:
            with self.applying(query, batch, given) as applied:
                return None if applied is None else applied.unkeyed

        return self._again(write)

    @contextmanager
    def applying(
        self, query: str, batch: int, changes: Iterable[Changes], tell: Collection[str] = ()
    ) -> Iterator[AppliedBatch | None]:
        """The same, committed when the caller's block ends. Also gives what changed in the views in
        ``tell``."""
        while True:
            with self._lock, self._transaction():
                last, held = self._standing(query)
                if not held:
                    applied = None
                    if last is None or last < batch:
                        applied = AppliedBatch()
                        for change in changes:
                            self._write(change, query, batch, applied, change.view.name in tell)
                        self._run(
                            "INSERT INTO millstream_ledger (query, batch)"
                            f" VALUES ({quoted_text(query)}, {batch})"
                            " ON CONFLICT (query) DO UPDATE SET batch = excluded.batch"
                        )
                    yield applied
                    return
            time.sleep(0.1)

    def _write(self, change: Changes, query: str, batch: int, applied: AppliedBatch, tell: bool) -> None:
        keyed = change.keyed()
        applied.unkeyed += len(change.rows) - len(keyed)
        if not keyed:
            return
        view = change.view
        forms = ((at, self._form(kind)) for at, (_, kind) in enumerate(view.columns))
        rows = last_of_each(view, keyed, {at: form for at, form in forms if form is not None})
        tables = self._of(view)
        number = list(self._tables).index(view)
        stage, kept = f"millstream_batch_{number}", f"millstream_kept_{number}"
        # One table for the life of the connection: a new one with every batch would bloat the catalogue.
        self._temporary(stage, tables.stage_columns())
        with self._naming(view, rows):
            self._fill(stage, rows)
        noted = not is_ours(view.name) and (tell or len(rows) <= self.keep_rows)
        if noted:
            self._temporary(kept, f"SELECT * FROM {tables.live} WHERE false")
            self._run(tables.keep(stage, kept))
        deletes = any(deletes or forced for *_, deletes, forced in rows)
        if are_needed(view):
            self._leave_out_late(Tombstones(tables), stage, rows)
        if deletes:
            self._run(tables.delete(stage))
        with self._naming(view, rows):
            self._run(tables.upsert(stage))
        if are_needed(view):
            self._bury(Tombstones(tables), stage, rows)
        if is_ours(view.name):
            return
        version, total = self._next_version(view.name)
        if not noted:
            self._run(f"DELETE FROM {tables.changes}")
            self._run(f"DELETE FROM millstream_versions WHERE view = {quoted_text(view.name)}")
            self._run(
                f"UPDATE millstream_views SET version = {version}, floor = {version}"
                f" WHERE name = {quoted_text(view.name)}"
            )
            self._tell(view.name)
            return
        changed = self._run(tables.note_old(version, kept))
        changed += self._run(tables.note_new(version, kept, stage))
        if changed:
            self._note(view.name, version, total + changed, query, batch)
            if tell:
                self._report(tables, version, applied)

    def _leave_out_late(self, tombstones: Tombstones, stage: str, rows: list[tuple[Any, ...]]) -> None:
        """Remove rows from the stage that are older than the deletion of their key."""
        if tombstones.view in self._buried:
            if any(forced for *_, forced in rows):
                self._run(tombstones.forget_forced(stage))
            self._run(tombstones.leave_out(stage))

    def _bury(self, tombstones: Tombstones, stage: str, rows: list[tuple[Any, ...]]) -> None:
        """Record what a batch has deleted, and remove the tombstones of keys that have come back."""
        if tombstones.view in self._buried:
            self._run(tombstones.revive(stage))
        deleted = sum(gone for *_, gone, _ in rows)
        if deleted:
            now_ms = time.time_ns() // 1_000_000
            total = self._ask(tombstones.total())[0][0] + deleted
            self._run(tombstones.note(stage, total, now_ms))
            self._run(tombstones.trim(total - self.keep_gone, now_ms - round(1000 * self.keep_gone_s)))
            self._buried.add(tombstones.view)

    def _next_version(self, name: str) -> tuple[int, int]:
        ((version, total),) = self._ask(
            f"SELECT version, total FROM millstream_views WHERE name = {quoted_text(name)}{self._for_update}"
        )
        return version + 1, total

    def _note(self, name: str, version: int, total: int, query: str, batch: int) -> None:
        """Record a view's new version, and remove changes that are too old."""
        view, now_ms = quoted_text(name), time.time_ns() // 1_000_000
        self._run(f"UPDATE millstream_views SET version = {version}, total = {total} WHERE name = {view}")
        self._run(
            f"INSERT INTO millstream_versions VALUES ({view}, {version}, {total}, {now_ms},"
            f" {quoted_text(query)}, {batch})"
        )
        oldest = self._ask(
            f"SELECT version, total, at_ms FROM millstream_versions WHERE view = {view}"
            f" ORDER BY version LIMIT {_TRIM}"
        )
        past = [
            old
            for old, so_far, at_ms in oldest
            if so_far <= total - self.keep_rows or at_ms < now_ms - 1000 * self.keep_s
        ]
        if past:
            floor = max(past)
            self._run(f"DELETE FROM {quoted_name(beside('changes', name))} WHERE {VERSION} <= {floor}")
            self._run(f"DELETE FROM millstream_versions WHERE view = {view} AND version <= {floor}")
            self._run(f"UPDATE millstream_views SET floor = {floor} WHERE name = {view}")
        self._tell(name)

    def _report(self, tables: Tables, version: int, applied: AppliedBatch) -> None:
        """Add to ``applied`` what a version changed, one entry per key."""
        view = tables.view
        at = [tables.columns.index(column) for column in view.key]
        found: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
        for part, *values in self._ask(tables.noted(version)):
            row = self._read(tuple(values))
            found[tuple([row[i] for i in at])] = row if part else None
        applied.columns[view.name] = list(tables.columns)
        applied.changed[view.name] = [ChangedRow(key, row) for key, row in found.items()]

    # ---- a rebuilt view replaces the old one ---------------------------------------------------------

    def _standing(self, query: str) -> tuple[int | None, bool]:
        """The last batch of a query, and whether the query is held. Raises ViewsRebuilt."""
        found = self._ask(
            f"SELECT batch, held_until > {self._clock}, retired FROM millstream_ledger"
            f" WHERE query = {quoted_text(query)}{self._for_update}"
        )
        if not found:
            return None, False
        ((batch, held, retired),) = found
        if retired:
            raise ViewsRebuilt(
                f"the views in {self.where} were rebuilt, and continue from another checkpoint than this"
                " run, so it ends. Start the job again: it continues where the rebuilt views are"
            )
        return (None if batch < 0 else batch), bool(held)

    def written(self, query: str) -> int | None:
        """The last batch of a query that is in its views. Raises ViewsRebuilt."""

        def look() -> int | None:
            with self._lock, self._transaction():
                return self._standing(query)[0]

        return self._again(look)

    def held(self, query: str) -> bool:
        """True if a query has to wait."""

        def look() -> bool:
            with self._lock, self._transaction():
                return self._standing(query)[1]

        return self._again(look)

    def hold(self, queries: Collection[str], seconds: float) -> None:
        """Make queries wait before they write their next batch, at most this long; 0 lets them continue."""

        def note() -> None:
            with self._lock, self._transaction():
                for query in queries:
                    self._run(
                        "INSERT INTO millstream_ledger (query, batch, held_until)"
                        f" VALUES ({quoted_text(query)}, -1, {self._clock} + {seconds:g})"
                        " ON CONFLICT (query) DO UPDATE SET held_until = excluded.held_until"
                    )

        self._again(note)

    @contextmanager
    def swapping(
        self, views: Sequence[str], retire: Collection[str], tell: Collection[str] = ()
    ) -> Iterator[AppliedBatch | None]:
        """Give views the rows of those that were rebuilt next to them, for all readers at one moment."""
        with self._lock, self._transaction():
            found = self._ask("SELECT name, key_columns, order_column FROM millstream_views")
            known = {name: (tuple(json.loads(key)), order) for name, key, order in found}
            built = [name for name in views if beside("next", name) in known]
            applied = AppliedBatch() if built else None
            for name in built:
                assert applied is not None
                key, order = known[beside("next", name)]
                self._replace(View(name, (), key, order), applied, name in tell)
            for query in retire:
                self._run(
                    "INSERT INTO millstream_ledger (query, batch, retired)"
                    f" VALUES ({quoted_text(query)}, -1, 1)"
                    " ON CONFLICT (query) DO UPDATE SET retired = 1"
                )
            yield applied

    def _replace(self, view: View, applied: AppliedBatch, tell: bool) -> None:
        next_ = beside("next", view.name)
        for (job,) in self._ask(f"SELECT job FROM millstream_owners WHERE view = {quoted_text(next_)}"):
            self._claim(view.name, job)
        self._make(view, self._columns(next_))
        self._widen(next_, self._columns(view.name))  # columns that the topology no longer gives are null
        tables = self._of(view)
        version, total = self._next_version(view.name)
        changed = sum(self._run(sql) for sql in tables.note_replaced(version))
        if changed:
            for sql in tables.replace(version):
                self._run(sql)
            self._note(view.name, version, total + changed, REBUILT, 0)
            if tell:
                self._report(tables, version, applied)
        if are_needed(view):
            for sql in Tombstones(tables).replace():
                self._run(sql)
            self._look_for_tombstones(tables)
        self._remove(next_)

    def forget_rebuilt(self, views: Sequence[str]) -> None:
        """Remove what is being rebuilt next to views."""

        def remove() -> None:
            with self._lock, self._transaction():
                known = {name for (name,) in self._ask("SELECT name FROM millstream_views")}
                for name in known.intersection(beside("next", view) for view in views):
                    self._remove(name)

        self._again(remove)
