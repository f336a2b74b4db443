"""Replace a standby's catalogue by a copy of its leader's."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.broker.catalogue.catalogue import Catalogue

_log = logging.getLogger(__name__)


def is_blank(catalogue: Catalogue) -> bool:
    """True if there is nothing in the catalogue that another broker's copy would replace."""
    return not catalogue.topics and len(catalogue.lineage) == 1


def replace_catalogue(db: sqlite3.Connection, path: Path) -> None:
    """Replace all rows with those of another catalogue, except the tables that belong to this copy."""
    theirs = sqlite3.connect(path)
    try:
        db.execute("PRAGMA defer_foreign_keys = ON")
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'copy\\_%' ESCAPE '\\'"
        tables = [name for (name,) in theirs.execute(query) if not name.startswith("sqlite_")]
        for table in tables:
            db.execute(f'DELETE FROM "{table}"')  # noqa: S608  (a name from the schema, which is ours)
        for table in tables:
            rows = theirs.execute(f'SELECT * FROM "{table}"')  # noqa: S608
            marks = ", ".join("?" * len(rows.description))
            db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)  # noqa: S608
    finally:
        theirs.close()
        for suffix in ("-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}{suffix}")


def keep_catalogue(catalogue: Catalogue, directory: str, lineage: Sequence[Sequence[Any]]) -> None:
    """Save this broker's catalogue before the leader's replaces it, if that one has seen more promotions."""
    if len(lineage) > len(catalogue.lineage):
        path = Path(directory) / f"catalogue-before-{lineage[-1][0]}.db"
        if not path.exists():
            catalogue.save_as(path)
            _log.warning("the catalogue of this broker, from before another led, is kept in %s", path)
