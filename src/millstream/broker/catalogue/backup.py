"""Keep a checked copy of the catalogue, from which `millstream log rebuild-catalogue` can restore it.

The copy is made while the broker runs: soon after topics have changed, and every ten minutes if anything
else has (committed offsets, users, quotas). It replaces the previous copy only if SQLite finds it intact.
So damage in the catalogue is found within minutes and never gets into the copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from millstream.broker.catalogue.database import FILE_NAME
from millstream.core.errors import DataDirectoryError

_log = logging.getLogger(__name__)

BACKUP_NAME = "catalogue-backup.db"
AFTER_TOPICS = 10.0  # seconds between copies while topics change
AFTER_OTHERS = 600.0
TRY_AGAIN = 60.0  # after a failed copy, if topics have changed


class BackupClock:
    """Decides when the next copy is due.

    Changes of topics are counted by the catalogue's version of them, other changes by the database's own
    count.
    """

    def __init__(self) -> None:
        self._made_at = -AFTER_OTHERS
        self._topics = -1
        self._changes = -1

    def is_due(self, now: float, topics: int, changes: int) -> bool:
        waited = now - self._made_at
        if topics != self._topics and waited >= AFTER_TOPICS:
            return True
        return changes != self._changes and waited >= AFTER_OTHERS

    def made(self, now: float, topics: int, changes: int) -> None:
        self._made_at, self._topics, self._changes = now, topics, changes

    def failed(self, now: float) -> None:
        self._made_at = now + TRY_AGAIN - AFTER_TOPICS


def back_up(directory: Path) -> None:
    """Copy the catalogue of a data directory. Blocks; for a thread.

    Raises DataDirectoryError if the copy is damaged, and sqlite3.Error or OSError if it can't be made. In
    both cases the previous copy stays.
    """
    temporary = directory / (BACKUP_NAME + ".tmp")
    temporary.unlink(missing_ok=True)
    try:
        with (
            contextlib.closing(sqlite3.connect(directory / FILE_NAME)) as source,
            contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log
            found = target.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise DataDirectoryError(f"the catalogue {directory / FILE_NAME} is damaged ({found})")
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(directory / BACKUP_NAME)
    finally:
        temporary.unlink(missing_ok=True)


def back_up_or_complain(directory: Path) -> bool:
    """Make a copy in a running broker. Logs a failure; True if the copy was made."""
    try:
        back_up(directory)
        return True
    except (DataDirectoryError, sqlite3.DatabaseError, OSError) as error:
        _log.error("the catalogue can't be backed up: %s; the last copy of it stays", error)
        return False
