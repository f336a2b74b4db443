"""Read a stopped broker's catalogue from outside: whether it is intact, and what it says.

The file is read from a temporary copy, together with its write-ahead log, because SQLite writes even when
it only reads.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from millstream.broker.catalogue.database import FILE_NAME, create_or_check, damaged, is_lost, lost
from millstream.core.errors import DataDirectoryError
from millstream.log.recovery.check import CATALOGUE, Finding
from millstream.log.recovery.shortfall import HighestCommits

JSON_FACTS = ("broker.overrides", "group.overrides", "scram.credentials", "client.quotas", "promotions")
SIDE_FILES = ("-wal", "-shm")  # files that SQLite keeps next to a database


class CatalogueFile(NamedTuple):
    """What a catalogue says about the logs, or what is wrong with it."""

    problem: str = ""  # in words for a person; empty if the catalogue is intact
    on_disk: frozenset[tuple[str, int]] = frozenset()  # the partitions that should have logs on disk
    commits: dict[tuple[str, int], HighestCommits] = {}  # noqa: RUF012
    topic_ids: dict[str, uuid.UUID] = {}  # noqa: RUF012

    def findings(self, directory: Path) -> list[Finding]:
        path = str(directory / FILE_NAME)
        return [Finding(CATALOGUE, "", path, 0, self.problem)] if self.problem else []

    @property
    def expected(self) -> dict[tuple[str, int], HighestCommits]:
        return {key: self.commits.get(key, HighestCommits()) for key in self.on_disk}


@contextlib.contextmanager
def opened_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a temporary copy of a catalogue's file. Raises DataDirectoryError if it is damaged."""
    with tempfile.TemporaryDirectory(prefix="millstream-catalogue-") as directory:
        copy = Path(directory) / path.name
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
            try:
                create_or_check(db, str(path), thorough=True)
                yield db
            except (sqlite3.DatabaseError, ValueError, AttributeError, TypeError) as error:
                raise damaged(str(path), str(error)) from None


def read_catalogue(directory: Path) -> CatalogueFile:
    """What the catalogue in a data directory says. Empty if no broker has used the directory."""
    path = directory / FILE_NAME
    if is_lost(directory):
        return CatalogueFile(str(lost(directory)))
    if not path.exists():
        return CatalogueFile()
    try:
        with opened_copy(path) as db:
            return _read(db)
    except DataDirectoryError as error:
        return CatalogueFile(str(error))


def _read(db: sqlite3.Connection) -> CatalogueFile:
    for name, value in db.execute("SELECT name, value FROM facts"):
        if name in JSON_FACTS:
            json.loads(value)
    on_disk = set()
    topic_ids = {}
    for name, topic_id, partitions, overrides in db.execute(
        "SELECT name, id, partitions, overrides FROM topics"
    ):
        topic_ids[name] = uuid.UUID(bytes=topic_id)
        if json.loads(overrides).get("millstream.storage") != "memory":
            on_disk |= {(name, index) for index in range(partitions)}
    commits: dict[tuple[str, int], HighestCommits] = {}
    rows = db.execute('SELECT topic, partition, "offset", leader_epoch, "group" FROM offsets')
    for topic, partition, offset, epoch, group in rows:
        known = commits.get((topic, partition), HighestCommits())
        commits[topic, partition] = known.and_one(offset, epoch, group)
    return CatalogueFile("", frozenset(on_disk), commits, topic_ids)
