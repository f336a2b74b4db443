"""Views: tables that hold the latest row of every key, written once per batch.

A batch's rows, what they changed, and the note that this query has written this batch are one database
transaction. So a batch that Spark runs again after a crash changes nothing: here, at-least-once has the
effect of exactly-once.

    millstream_views       the views: their key and order columns, and how often they have changed
    millstream_owners      the job that each view belongs to
    millstream_ledger      the last batch that each query has written
    millstream_versions    when and by which batch each version of a view came, as long as changes are kept
    millstream_changes_V   what each of these versions changed in view V
    millstream_gone_V      which keys were deleted from view V, and when in its order (tombstones)
    millstream_next_V      view V while it is rebuilt, until it replaces the old one

A query is identified by the id in its checkpoint. A new checkpoint starts again at batch 0, and is another
query.

Views are kept in a SQLite file (``sqlite``), or in PostgreSQL if a URL says so (``postgres``). ``opening``
chooses between them, ``writing`` and ``reading`` have what both have in common, and ``watching`` is for
followers of changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from millstream.core.errors import MillstreamError
from millstream.views.query import QueryLimits, RunQuery

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


class ChangedRow(NamedTuple):
    """What became of a key: its row after the change, or None if it is gone."""

    key: tuple[Any, ...]
    row: tuple[Any, ...] | None


@dataclass(slots=True)
class AppliedBatch:
    """A written batch: the number of rows without a key, and what changed in the requested views."""

    unkeyed: int = 0
    columns: dict[str, list[str]] = field(default_factory=dict)
    changed: dict[str, list[ChangedRow]] = field(default_factory=dict)


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
    ) -> AbstractContextManager[AppliedBatch | None]:
        """The same in two steps. The batch is written on entry, which gives what changed in the views in
        ``tell``. It is committed at the exit, and rolled back if that is an exception."""

    def drop(self, name: str) -> None:
        """Remove a view and its rows."""

    # ---- a rebuilt view replaces the old one (rebuild.py) --------------------------------------------

    def written(self, query: str) -> int | None:
        """The last batch of a query that is in its views. Raises ViewsRebuilt."""

    def hold(self, queries: Collection[str], seconds: float) -> None:
        """Make queries wait before they write their next batch, at most this long; 0 lets them continue."""

    def held(self, query: str) -> bool:
        """True if a query has to wait."""

    def swapping(
        self, views: Sequence[str], retire: Collection[str], tell: Collection[str] = ()
    ) -> AbstractContextManager[AppliedBatch | None]:
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

    def asking(self, limits: QueryLimits, *, ours: bool = False) -> AbstractContextManager[RunQuery]:
        """Run queries written by others, on one snapshot and within limits. A query may raise QueryRefused.
        With ``ours``, the SQL contains nothing that others wrote."""

    def described(self) -> list[ViewDescription]:
        """Every view, without its rows."""

    def all(self, name: str) -> Rows:
        """Every row of a view."""

    def get(self, name: str, key: Sequence[str]) -> Rows:
        """The row of a key."""

    # ---- for followers of a view (watching.py) --------------------------------------------------

    def key_condition(self, name: str, key: Sequence[str]) -> str:
        """The SQL condition that selects a key's row."""

    def check_condition(self, name: str, condition: str) -> None:
        """Refuse an invalid condition."""

    def present(self, name: str, condition: str | None) -> ViewContents:
        """The rows of a view, and their version."""

    def since(self, name: str, version: int, condition: str | None) -> ChangesSince:
        """What changed after a version."""

    def wait(self, timeout: float) -> None:
        """Wait until something was written, for at most ``timeout`` seconds."""

    def versions(self) -> dict[str, int]:
        """The current version of each view."""


@dataclass(frozen=True, slots=True)
class ViewDescription:
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
class ViewContents:
    """A view at one moment. ``floor`` is the oldest version after which changes are kept."""

    version: int
    floor: int
    key: tuple[str, ...]
    columns: list[str]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ChangesSince:
    """What changed: version, time in milliseconds, query, batch, True for the new row and False for the old
    one, and the row. Ordered by version and key, with the old row before the new one."""

    version: int
    floor: int
    key: tuple[str, ...]
    columns: list[str]
    parts: list[tuple[int, int, str, int, bool, tuple[Any, ...]]]
