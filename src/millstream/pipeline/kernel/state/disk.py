"""Keeps keyed state in an SQLite file beside the worker, for buckets that are larger than memory.

The file is a copy. Everything is in Spark's checkpoint as well, so the file may be lost at any time and
is rebuilt from there. It is in Spark's scratch directory for this executor, which is deleted with the
executor. All workers of an executor share that directory; SQLite's locks keep them apart.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from millstream.pipeline.kernel.state.table import TableEntry, TableId

_TABLES = (
    "CREATE TABLE IF NOT EXISTS entries (container TEXT, key BLOB, value BLOB NOT NULL, due INTEGER,"
    " PRIMARY KEY (container, key)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS entries_due ON entries (container, due, key) WHERE due IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS folded (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL)",
)
_KEYS = 500  # per statement
_PAGE = 1000
_CACHE_KB = 8 * 1024  # of cached pages, for each bucket that a worker has open
_PATIENCE_S = 60.0  # to wait while another worker writes


def local_directory(run: str) -> Path:
    """Where this executor keeps scratch state for one run of a job."""
    scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    return Path(scratch) / f"millstream-state-{run}"


class DiskTable:
    """A ``Table`` in an SQLite file."""

    lasting = False

    def __init__(self, directory: Path, space: TableId) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(space.operator.encode()).hexdigest()[:16]
        self._path = directory / f"{digest}-{space.bucket}.db"
        self._connection = sqlite3.connect(self._path, timeout=_PATIENCE_S, isolation_level=None)
        # A copy needs no syncing: after a crash of the machine it is rebuilt.
        for pragma in ("journal_mode = WAL", "synchronous = OFF", f"cache_size = -{_CACHE_KB}"):
            self._connection.execute(f"PRAGMA {pragma}")
        with self._writing():
            for statement in _TABLES:
                self._connection.execute(statement)

    def folded(self) -> int:
        row = self._connection.execute("SELECT version FROM folded").fetchone()
        return 0 if row is None else int(row[0])

    def get_many(self, container: str, keys: Sequence[bytes]) -> Mapping[bytes, TableEntry]:
        found: dict[bytes, TableEntry] = {}
        wanted = sorted(keys)  # neighbours are on the same pages
        for start in range(0, len(wanted), _KEYS):
            some = wanted[start : start + _KEYS]
            marks = ", ".join("?" * len(some))
            rows = self._connection.execute(
                f"SELECT key, value, due FROM entries WHERE container = ? AND key IN ({marks})",
                (container, *some),
            )
            found.update((key, TableEntry(value, due)) for key, value, due in rows)
        return found

    def fold(self, version: int, changes: Mapping[str, Mapping[bytes, TableEntry | None]]) -> None:
        with self._writing():
            if self.folded() < version:
                for container, entries in changes.items():
                    self._put(container, [(key, one) for key, one in entries.items() if one is not None])
                    gone = [(container, key) for key, one in entries.items() if one is None]
                    self._connection.executemany("DELETE FROM entries WHERE container = ? AND key = ?", gone)
                self._is_at(version)

    def rebuild(
        self, version: int, entries: Iterable[tuple[str, Sequence[tuple[bytes, TableEntry]]]]
    ) -> None:
        with self._writing():
            if self.folded() < version:
                self._connection.execute("DELETE FROM entries")
                for container, some in entries:
                    self._put(container, some)
                self._is_at(version)

    def _put(self, container: str, entries: Iterable[tuple[bytes, TableEntry]]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)",
            [(container, key, one.value, one.due) for key, one in sorted(entries)],
        )

    def _is_at(self, version: int) -> None:
        self._connection.execute("INSERT OR REPLACE INTO folded VALUES (1, ?)", (version,))

    def due(
        self, container: str, until: int, after: tuple[int, bytes] | None
    ) -> list[tuple[bytes, TableEntry]]:
        since, key = after or (-(1 << 63), b"")
        rows = self._connection.execute(
            "SELECT key, value, due FROM entries WHERE container = ? AND due IS NOT NULL AND due <= ?"
            f" AND (due, key) > (?, ?) ORDER BY due, key LIMIT {_PAGE}",
            (container, until, since, key),
        )
        return [(key, TableEntry(value, due)) for key, value, due in rows]

    def scan(self, container: str) -> Iterator[tuple[bytes, TableEntry]]:
        last: bytes = b""
        while True:
            rows = self._connection.execute(
                "SELECT key, value, due FROM entries WHERE container = ? AND key > ?"
                f" ORDER BY key LIMIT {_PAGE}",
                (container, last),
            ).fetchall()
            if not rows:
                return
            yield from ((key, TableEntry(value, due)) for key, value, due in rows)
            last = rows[-1][0]

    def drop(self) -> None:
        with self._writing():
            self._connection.execute("DELETE FROM entries")
            self._connection.execute("DELETE FROM folded")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
