"""The interface of a table that holds keyed state outside the process: a file on disk, or a database.

What a table has to promise follows from how ``keyed_on_table.py`` uses it. Each kind of table has a module;
``backends.py`` opens the one that an address names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol


class TableEntry(NamedTuple):
    """What a table holds for a key."""

    value: bytes
    due: int | None


class TableId(NamedTuple):
    """Identifies a table: an operator of a checkpoint, and a bucket. No two tables have the same."""

    operator: str
    bucket: int


class StateTable(Protocol):
    """All keyed state of one operator in one bucket. Its containers have names; keys and values are bytes.

    Any call may fail with StateError, or with an exception of its driver. The batch is then run again.
    """

    lasting: bool  # True if it outlives the job, so that a checkpoint need not hold its content

    def folded(self) -> int:
        """The version up to which changes are folded; 0 if there were none."""

    def get_many(self, container: str, keys: Sequence[bytes]) -> Mapping[bytes, TableEntry]:
        """The entries of the keys. Keys without an entry are left out."""

    def fold(self, version: int, changes: Mapping[str, Mapping[bytes, TableEntry | None]]) -> None:
        """Apply the changes up to a version, by container; None removes a key. If the table has that
        version already, nothing happens. If it fails halfway, it can be called again."""

    def due(
        self, container: str, until: int, after: tuple[int, bytes] | None
    ) -> list[tuple[bytes, TableEntry]]:
        """Some of the entries that are due at or before a time and come after a given one, those with the
        least (due, key) first. It need not return all of them: ask again until there are none."""

    def scan(self, container: str) -> Iterator[tuple[bytes, TableEntry]]:
        """All entries, in any order."""

    def rebuild(
        self, version: int, entries: Iterable[tuple[str, Sequence[tuple[bytes, TableEntry]]]]
    ) -> None:
        """Replace everything by a snapshot, all at once. Called only on tables that don't last."""

    def drop(self) -> None:
        """Remove everything, as if nothing had ever been stored."""

    def close(self) -> None: ...
