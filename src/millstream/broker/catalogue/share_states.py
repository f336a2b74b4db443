"""What share groups have finished, by group and partition: kept in memory and in the catalogue's file.

``broker.groups.share`` decides what is kept, and in which form. A partition is here from the moment its group
knows where in it to begin.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.broker.catalogue.database import CatalogueDatabase

ShareKey = tuple[str, bytes, int]  # group, topic id, partition


class SavedShare(NamedTuple):
    """All records before ``start_offset`` are finished. ``runs`` says which of the others are."""

    start_offset: int
    runs: bytes


class ShareStates:
    def __init__(self, database: CatalogueDatabase) -> None:
        self._database = database
        self._states: dict[str, dict[tuple[bytes, int], SavedShare]] = {}

    def load(self) -> None:
        for group, topic_id, partition, *fields in self._database.rows("SELECT * FROM share_partitions"):
            self._states.setdefault(group, {})[topic_id, partition] = SavedShare(*fields)

    def of(self, group: str) -> Mapping[tuple[bytes, int], SavedShare]:
        """A group's partitions, by topic id and number. Empty if it has none."""
        return self._states.get(group, {})

    def groups(self) -> list[str]:
        return list(self._states)

    def save(self, states: Mapping[ShareKey, SavedShare]) -> asyncio.Future[None]:
        """Replace the states of these partitions. Those of deleted topics are left out."""

        def write(db: sqlite3.Connection) -> set[bytes]:
            topics = {topic_id for _, topic_id, _ in states}
            known = {t for t in topics if db.execute("SELECT 1 FROM topics WHERE id = ?", (t,)).fetchone()}
            db.executemany(
                "INSERT OR REPLACE INTO share_partitions VALUES (?, ?, ?, ?, ?)",
                [(*key, *state) for key, state in states.items() if key[1] in known],
            )
            return known

        def remember(known: set[bytes]) -> None:
            for (group, topic_id, partition), state in states.items():
                if topic_id in known:
                    self._states.setdefault(group, {})[topic_id, partition] = state

        return self._database.write(write, remember)

    def replace_now(self, states: Mapping[ShareKey, SavedShare]) -> None:
        """Replace states before anything else is written."""
        self._database.run_now(
            "UPDATE share_partitions SET start_offset = ?, runs = ? "
            'WHERE "group" = ? AND topic_id = ? AND partition = ?',
            [(*state, *key) for key, state in states.items()],
        )
        for (group, topic_id, partition), state in states.items():
            self._states[group][topic_id, partition] = state

    def delete(self, keys: Iterable[ShareKey]) -> asyncio.Future[None]:
        """Forget these partitions: their groups begin in them as in new ones."""
        rows = list(keys)

        def write(db: sqlite3.Connection) -> None:
            db.executemany(
                'DELETE FROM share_partitions WHERE "group" = ? AND topic_id = ? AND partition = ?', rows
            )

        def remember(_: None) -> None:
            for group, topic_id, partition in rows:
                of_group = self._states.get(group, {})
                of_group.pop((topic_id, partition), None)
                if not of_group:
                    self._states.pop(group, None)

        return self._database.write(write, remember)

    def forget(self, group: str, db: sqlite3.Connection | None = None) -> None:
        """Forget a deleted group: in the file if ``db`` is given, else in memory."""
        if db is not None:
            db.execute('DELETE FROM share_partitions WHERE "group" = ?', (group,))
        else:
            self._states.pop(group, None)

    def forget_topic(self, topic_id: bytes) -> None:
        """Forget a deleted topic in memory. Its rows in the file were deleted with it."""
        for group, states in list(self._states.items()):
            for key in [key for key in states if key[0] == topic_id]:
                del states[key]
            if not states:
                del self._states[group]
