"""Views: tables that hold the latest row of every key, written once a batch.

A batch's rows, what they changed, and the note that this query has written this batch are one database
transaction, so a batch that Spark runs again after a crash changes nothing: the effect of at-least-once is
once here.

    millstream_views       the views: their key and order columns, and how often they have changed
    millstream_owners      the job that each view belongs to
    millstream_ledger      the last batch that each query has written
    millstream_versions    when and by which batch a view came to a version, as far back as changes are kept
    millstream_changes_V   what each of these versions changed in view V
    millstream_gone_V      which keys were deleted from view V, and when in its order (view_tombstones)
    millstream_next_V      view V as it is rebuilt, until it takes the other's place

A query is known by the id in its checkpoint: a new checkpoint starts again at batch 0, and is another query.

They are kept in a SQLite file (``sqlite_views``), or in PostgreSQL where a URL says so (``postgres_views``);
what both have in common is in ``view_store``. Whoever wants to be told of changes: ``view_changes``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.view_query import Ask, Limits
from millstream.pipeline.view_values import has_order, is_key

Rows = tuple[list[str], list[tuple[Any, ...]]]  # the names of columns, and what is in them


@dataclass(frozen=True, slots=True)
class View:
    """A table to be kept: columns with Spark's types, the key, the column that tells which row is later, and
    the job that it belongs to (None: any job)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    order: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows for a view, in their order; where ``delete`` is true, the row's key goes."""

    view: View
    rows: Sequence[tuple[Any, ...]]
    delete: Sequence[bool]

    def keyed(self) -> list[tuple[tuple[Any, ...], bool]]:
        """The rows that have a key, and whether each deletes, as they came."""
        names = [name for name, _ in self.view.columns]
        at = [names.index(column) for column in self.view.key]
        entries = zip(self.rows, self.delete, strict=True)
        return [(row, gone) for row, gone in entries if all(row[i] is not None for i in at)]


class ViewsRebuilt(MillstreamError):
    """The views were rebuilt, and another checkpoint goes on with them; this run has to end."""


class Changed(NamedTuple):
    """What became of a key: its row after the change, None if it is gone."""

    key: tuple[Any, ...]
    row: tuple[Any, ...] | None


@dataclass(slots=True)
class Applied:
    """A batch that is written: rows without a key, and what changed in the views that were asked about."""

    unkeyed: int = 0
    columns: dict[str, list[str]] = field(default_factory=dict)
    changed: dict[str, list[Changed]] = field(default_factory=dict)


class ViewStore(Protocol):
    """The database of a job's views, for the one process that writes it. It may be used by several threads,
    which wait for each other."""

    where: str

    def close(self) -> None: ...

    def prepare(self, view: View, *, where: str | None = None) -> None:
        """Make the table, or add the columns that are new. Another key than before is refused, and so is a
        view of another job. Called again, it changes nothing. ``where`` is the line of the user's file that
        declares the view."""

    def check(self, view: View, *, where: str | None = None) -> None:
        """Refuse what ``prepare`` refuses, and change nothing."""

    def apply(self, query: str, batch: int, changes: Iterable[Changes]) -> int | None:
        """Write a batch. Returns how many rows had no key and were left out; None: it was written before.
        Raises ViewsRebuilt."""

    def applying(
        self, query: str, batch: int, changes: Iterable[Changes], tell: Collection[str] = ()
    ) -> AbstractContextManager[Applied | None]:
        """The same in two steps: written on entry, with what changed in the views that are in ``tell``, and
        committed at the exit; not at all if that is an exception."""

    def drop(self, name: str) -> None:
        """Remove a view and its rows."""

    # ---- a rebuilt view takes the place of the old one (rebuild.py) ----------------------------------

    def written(self, query: str) -> int | None:
        """The last batch of a query that is in its views. Raises ViewsRebuilt."""

    def hold(self, queries: Collection[str], seconds: float) -> None:
        """Let queries wait before they write their next batch, so long at most; 0 lets them go on."""

    def held(self, query: str) -> bool:
        """Whether a query has to wait."""

    def swapping(
        self, views: Sequence[str], retire: Collection[str], tell: Collection[str] = ()
    ) -> AbstractContextManager[Applied | None]:
        """Give views the rows of those that were built beside them, for all readers at one moment, which is
        the exit. Queries in ``retire`` can't write them any more. None: it was done before."""

    def forget_rebuilt(self, views: Sequence[str]) -> None:
        """Remove what is being built beside views."""


class ViewReader(Protocol):
    """The same database, read-only, beside the job that writes it."""

    where: str

    @property
    def lost(self) -> bool:
        """Whether the database has gone away, so that only another reader can go on."""

    def close(self) -> None: ...

    def views(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Name, key columns and number of rows of every view."""

    def query(self, sql: str) -> Rows:
        """Columns and rows of any SELECT. Nothing is changed, whatever the SQL says."""

    def asking(self, limits: Limits, *, ours: bool = False) -> AbstractContextManager[Ask]:
        """Questions by others: about one moment, and within limits. They raise QueryRefused. ``ours``:
        nothing that others wrote stands in the SQL."""

    def described(self) -> list[Described]:
        """Every view, without its rows."""

    def all(self, name: str) -> Rows:
        """Every row of a view."""

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key."""

    # ---- for those who follow a view (view_changes.py) -----------------------------------------------

    def key_condition(self, name: str, key: Sequence[str]) -> str:
        """The SQL condition that picks a key's row."""

    def check_condition(self, name: str, condition: str) -> None:
        """Refuse a condition that is none."""

    def present(self, name: str, condition: str | None) -> Present:
        """The rows of a view and the version they are of."""

    def since(self, name: str, version: int, condition: str | None) -> Since:
        """What changed after a version."""

    def wait(self, timeout: float) -> None:
        """Until something was written, for so many seconds at most."""

    def versions(self) -> dict[str, int]:
        """The version that each view has."""


@dataclass(frozen=True, slots=True)
class Described:
    """A view: its columns with the database's types, and by which batch it changed last (None: not kept any
    more, or never)."""

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
    """What changed: version, time in milliseconds, query, batch, whether it is the new row or the old one,
    and the row; by version and key, the old row in front of the new one."""

    version: int
    floor: int
    key: tuple[str, ...]
    columns: list[str]
    parts: list[tuple[int, int, str, int, bool, tuple[Any, ...]]]


def open_store(where: str | Path) -> ViewStore:
    """The views of a file, or of the database that a URL names."""
    if _is_url(where):
        from millstream.pipeline.postgres_views import PostgresStore

        return PostgresStore(str(where))
    from millstream.pipeline.sqlite_views import SqliteStore

    return SqliteStore(Path(where))


def open_reader(where: str | Path) -> ViewReader:
    """The same, for reading only."""
    if _is_url(where):
        from millstream.pipeline.postgres_views import PostgresReader

        return PostgresReader(str(where))
    from millstream.pipeline.sqlite_views import SqliteReader

    return SqliteReader(Path(where))


def shown(where: str | Path) -> str:
    """Where views are, for people to read: without the password."""
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
    """Refuse another key than a view was made with."""
    if tuple(known) != view.key:
        raise TopologyError(
            f"view {view.name!r} in {where} has the key {', '.join(known)}, not {', '.join(view.key)}; give"
            f" the view another name, or remove it there with: millstream view drop {view.name}"
            f" --views {where}",
            where=at,
        )


def not_taken(view: View, row: Sequence[Any], column: str | None, reason: str, where: str) -> MillstreamError:
    """A database does not take a row: which one it is, and what can be done."""
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
    """A column has another type than it was made with."""
    return TopologyError(
        f"column {column!r} of view {view.name!r} in {where} is {there}, not {wanted}; give the view another"
        f" name, or remove it there with: millstream view drop {view.name} --views {where}",
        where=at,
    )


def check_types(view: View, *, at: str | None) -> None:
    """Refuse keys that can't be told apart, and an order that the databases don't have."""
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
    """A table's or a column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def beside(kind: str, view: str) -> str:
    """A table of ours that belongs to a view: ``changes`` or ``next``. PostgreSQL cuts names off at 63."""
    name = f"millstream_{kind}_{view}"
    if len(name.encode()) <= 63:
        return name
    return f"millstream_{kind}_{hashlib.sha256(view.encode()).hexdigest()[:40]}"


def is_ours(name: str) -> bool:
    """Whether a table is not for the user."""
    return name.lower().startswith("millstream_")
