"""Views: tables that hold the latest row of every key, written once per batch.

A batch's rows, what they changed, and the note that this query has written this batch are one database
transaction. So a batch that Spark runs again after a crash changes nothing: here, at-least-once has the
effect of exactly-once.

    millstream_views       the views: their key and order columns, and how often they have changed
    millstream_owners      the job that each view belongs to
    millstream_ledger      the last batch that each query has written
    millstream_versions    when and by which batch each version of a view came, as long as changes are kept
    millstream_changes_V   what each of these versions changed in view V
    millstream_gone_V      which keys were deleted from view V, and when in its order (view_tombstones)
    millstream_next_V      view V while it is rebuilt, until it replaces the old one

A query is identified by the id in its checkpoint. A new checkpoint starts again at batch 0, and is another
query.

Views are kept in a SQLite file (``sqlite_views``), or in PostgreSQL if a URL says so (``postgres_views``).
``view_store`` has what both have in common, and ``view_changes`` is for followers of changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from millstream.core.errors import MillstreamError, TopologyError
from millstream.views.query import Ask, Limits
from millstream.views.values import has_order, is_key

Rows = tuple[list[str], list[tuple[Any, ...]]]  # column names, and the rows


@dataclass(frozen=True, slots=True)
class View:
    """A table to keep: columns with Spark's types, the key, the column that decides which row is later, and
    the job that the view belongs to (None: any job)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    order: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows for a view, in their order. Where ``delete`` is true, the row's key is deleted."""

    view: View
    rows: Sequence[tuple[Any, ...]]
    delete: Sequence[bool]

    def keyed(self) -> list[tuple[tuple[Any, ...], bool]]:
        """The rows that have a key, each with whether it deletes, in the order in which they came."""
        names = [name for name, _ in self.view.columns]
        at = [names.index(column) for column in self.view.key]
        entries = zip(self.rows, self.delete, strict=True)
        return [(row, gone) for row, gone in entries if all(row[i] is not None for i in at)]


class ViewsRebuilt(MillstreamError):
    """The views were rebuilt and continue with another checkpoint; this run has to end."""


class Changed(NamedTuple):
    """What became of a key: its row after the change, or None if it is gone."""

    key: tuple[Any, ...]
    row: tuple[Any, ...] | None


@dataclass(slots=True)
class Applied:
    """A written batch: the number of rows without a key, and what changed in the requested views."""

    unkeyed: int = 0
    columns: dict[str, list[str]] = field(default_factory=dict)
    changed: dict[str, list[Changed]] = field(default_factory=dict)


class ViewStore(Protocol):
    """The database of a job's views, for the one process that writes it. Several threads may use it; they
    wait for each other."""

    where: str

    def close(self) -> None: ...

    def prepare(self, view: View, *, where: str | None = None) -> None:
        """Create the table, or add new columns. Refuses another key than before, and a view of another job.
        Calling it again changes nothing. ``where`` is the line of the user's file that declares the view."""

    def check(self, view: View, *, where: str | None = None) -> None:
        """Refuse what ``prepare`` refuses. Changes nothing."""

    def apply(self, query: str, batch: int, changes: Iterable[Changes]) -> int | None:
        """Write a batch. Returns how many rows had no key and were left out, or None if the batch was written
        before. Raises ViewsRebuilt."""

    def applying(
        self, query: str, batch: int, changes: Iterable[Changes], tell: Collection[str] = ()
    ) -> AbstractContextManager[Applied | None]:
        """The same in two steps. The batch is written on entry, which gives what changed in the views in
        ``tell``. It is committed at the exit, and rolled back if that is an exception."""

    def drop(self, name: str) -> None:
        """Remove a view and its rows."""

    # ---- a rebuilt view replaces the old one (rebuild.py) --------------------------------------------

    def written(self, query: str) -> int | None:
        """The last batch of a query that is in its views. Raises ViewsRebuilt."""

    def hold(self, queries: Collection[str], seconds: float) -> None:
        """Make queries wait before they write their next batch, at most this long; 0 lets them go on."""

    def held(self, query: str) -> bool:
        """True if a query has to wait."""

    def swapping(
        self, views: Sequence[str], retire: Collection[str], tell: Collection[str] = ()
    ) -> AbstractContextManager[Applied | None]:
        """Give views the rows of those that were rebuilt next to them. All readers see the change at one
        moment, which is the exit. Queries in ``retire`` can't write the views any more. Gives None if the
        rows were replaced before."""

    def forget_rebuilt(self, views: Sequence[str]) -> None:
        """Remove what is being rebuilt next to views."""


class ViewReader(Protocol):
    """The same database, read-only, next to the job that writes it."""

    where: str

    @property
    def lost(self) -> bool:
        """True if the database has gone away, so that only a new reader can continue."""

    def close(self) -> None: ...

    def views(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Name, key columns and number of rows of every view."""

    def query(self, sql: str) -> Rows:
        """Columns and rows of any SELECT. Nothing is changed, whatever the SQL says."""

    def asking(self, limits: Limits, *, ours: bool = False) -> AbstractContextManager[Ask]:
        """Run queries written by others, on one snapshot and within limits. A query may raise QueryRefused.
        With ``ours``, the SQL contains nothing that others wrote."""

    def described(self) -> list[Described]:
        """Every view, without its rows."""

    def all(self, name: str) -> Rows:
        """Every row of a view."""

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key."""

    # ---- for followers of a view (view_changes.py) ---------------------------------------------------

    def key_condition(self, name: str, key: Sequence[str]) -> str:
        """The SQL condition that selects a key's row."""

    def check_condition(self, name: str, condition: str) -> None:
        """Refuse an invalid condition."""

    def present(self, name: str, condition: str | None) -> Present:
        """The rows of a view, and their version."""

    def since(self, name: str, version: int, condition: str | None) -> Since:
        """What changed after a version."""

    def wait(self, timeout: float) -> None:
        """Wait until something was written, for at most ``timeout`` seconds."""

    def versions(self) -> dict[str, int]:
        """The current version of each view."""


@dataclass(frozen=True, slots=True)
class Described:
    """A view: its columns with the database's types, and the batch that changed it last (None: no batch has,
    or the record of it is no longer kept)."""

    name: str
    key: tuple[str, ...]
    columns: list[tuple[str, str]]
    version: int
    at_ms: int | None = None
    query: str | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """A view at one moment. ``floor`` is the oldest version after which changes are kept."""

    version: int
    floor: int
    key: tuple[str, ...]
    columns: list[str]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Since:
    """What changed: version, time in milliseconds, query, batch, True for the new row and False for the old
    one, and the row. Ordered by version and key, with the old row before the new one."""

    version: int
    floor: int
    key: tuple[str, ...]
    columns: list[str]
    parts: list[tuple[int, int, str, int, bool, tuple[Any, ...]]]


def open_store(where: str | Path) -> ViewStore:
    """The store for the views in a file, or in the database that a URL names."""
    if _is_url(where):
        from millstream.views.postgres import PostgresStore

        return PostgresStore(str(where))
    from millstream.views.sqlite import SqliteStore

    return SqliteStore(Path(where))


def open_reader(where: str | Path) -> ViewReader:
    """A reader for the views in a file, or in the database that a URL names."""
    if _is_url(where):
        from millstream.views.postgres import PostgresReader

        return PostgresReader(str(where))
    from millstream.views.sqlite import SqliteReader

    return SqliteReader(Path(where))


def shown(where: str | Path) -> str:
    """Where the views are, for people to read: without the password."""
    if not _is_url(where):
        return str(where)
    scheme, _, rest = str(where).partition("?")[0].partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{place}"


def _is_url(where: str | Path) -> bool:
    if isinstance(where, str) and "://" in where:
        if where.startswith(("postgresql://", "postgres://")):
            return True
        raise MillstreamError(
            f"views can't be kept in {where.partition('://')[0]}; give a file, or a postgresql:// URL"
        )
    return False


# ---- what both kinds of database have in common ------------------------------------------------------


def check_key(view: View, known: Sequence[str], where: str, *, at: str | None) -> None:
    """Refuse a key other than the one that a view was created with."""
    if tuple(known) != view.key:
        raise TopologyError(
            f"view {view.name!r} in {where} has the key {', '.join(known)}, not {', '.join(view.key)}; give"
            f" the view another name, or remove it there with: millstream view drop {view.name}"
            f" --views {where}",
            where=at,
        )


def not_taken(view: View, row: Sequence[Any], column: str | None, reason: str, where: str) -> MillstreamError:
    """The error for a row that a database does not take: which row it is, and what can be done."""
    names = [name for name, _ in view.columns]
    key = ", ".join(f"{name}={_short(row[names.index(name)])}" for name in view.key)
    what = f"column {column!r} of " if column is not None else ""
    return MillstreamError(
        f"view {view.name!r} in {where} can't take {what}the row with {key}: {reason}. Nothing of the batch"
        " is in the views: change the column in a .select(...) in front of .to_view, or leave such rows out"
        " with .where(...), and start the job again"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text):,} characters)"


def check_owner(view: View, owner: str, where: str, *, at: str | None) -> None:
    """Refuse a view that another job keeps: each would overwrite the other's rows."""
    if view.job != owner:
        raise TopologyError(
            f"view {view.name!r} in {where} belongs to job {owner!r}, not to {view.job!r}; give the view"
            " another name, or keep this job's views elsewhere with --views. If the other job is gone for"
            f" good, remove its view with: millstream view drop {view.name} --views {where}",
            where=at,
        )


def other_type(
    view: View, column: str, there: str, wanted: str, where: str, *, at: str | None
) -> TopologyError:
    """The error for a column whose type is not the one it was created with."""
    return TopologyError(
        f"column {column!r} of view {view.name!r} in {where} is {there}, not {wanted}; give the view another"
        f" name, or remove it there with: millstream view drop {view.name} --views {where}",
        where=at,
    )


def check_types(view: View, *, at: str | None) -> None:
    """Refuse keys that can't be told apart, and an order that the databases don't share with Spark."""
    kinds = dict(view.columns)
    for column in view.key:
        if not is_key(kinds[column]):
            raise TopologyError(
                f"view {view.name!r}: the key {column!r} is {kinds[column]}, and maps can't be compared; give"
                " a plain column, to_json(...) of the map for example",
                where=at,
            )
    if view.order is not None and not has_order(kinds[view.order]):
        raise TopologyError(
            f"view {view.name!r}: order={view.order!r} is {kinds[view.order]}, and the databases order those"
            " differently from Spark; give a number, text, bytes, a date or a time",
            where=at,
        )


def quoted_name(name: str) -> str:
    """A table's or a column's name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def beside(kind: str, view: str) -> str:
    """The name of an internal table that belongs to a view, such as ``changes`` or ``next``. PostgreSQL
    truncates names at 63 bytes, so a longer one is a hash."""
    name = f"millstream_{kind}_{view}"
    if len(name.encode()) <= 63:
        return name
    return f"millstream_{kind}_{hashlib.sha256(view.encode()).hexdigest()[:40]}"


def is_ours(name: str) -> bool:
    """True if a table is internal, and not for the user."""
    return name.lower().startswith("millstream_")
