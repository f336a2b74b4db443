"""What role a data directory has: a standby's copy, promoted, or replaced by a promoted standby.

This is kept in tables of the catalogue's file that are not part of the catalogue: a leader's changes
don't touch them, and no standby copies them. ``copy_ends`` records how far each log had come with the
last complete point (``broker.standby.followers``). It is written in the same commit as the point's changes of
the catalogue.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.core.errors import DataDirectoryError

_TABLES = (
    "CREATE TABLE IF NOT EXISTS copy_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS copy_ends (topic_id BLOB NOT NULL, partition INTEGER NOT NULL, "
    '"end" INTEGER NOT NULL, PRIMARY KEY (topic_id, partition)) WITHOUT ROWID',
)

# The names of facts in copy_facts.
LEADER = "leader"  # the address of the broker that this is a copy of
CLIENTS = "clients"  # where the leader's clients connect: node id, host and port
WHOLE = "whole"  # the last complete point: when the leader took it, and when it was reached here
LEFT = "left"  # the state when the standby was shut down cleanly: see promotion.StandbyState
PROMOTED = "promoted"  # it may lead from the next start on
FENCED = "fenced"  # the address of the broker that was promoted and replaces this one
NODE_ID = "node_id"  # the configured id, which the leader had too, and the id used instead; never forgotten

Ends = dict[tuple[bytes, int], int]


@dataclass(frozen=True)
class CopyState:
    """See the module's description."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    ends: Ends = field(default_factory=dict)

    @property
    def leader(self) -> str:
        return str(self.facts.get(LEADER, ""))

    def own_id(self, configured: int) -> int:
        """The id of this directory's broker, given the configured id."""
        before, assigned = self.facts.get(NODE_ID, (configured, configured))
        return int(assigned) if before == configured else configured

    @property
    def is_promoted(self) -> bool:
        return PROMOTED in self.facts

    def check_may_lead(self, directory: str) -> None:
        """Raise DataDirectoryError if, as far as is known here, another broker leads."""
        if self.is_promoted:
            return
        if self.leader:
            raise DataDirectoryError(
                f"{directory} is a standby's copy of the broker at {self.leader}. To keep following it, add "
                f"--follow {self.leader}; to let this one lead, `millstream promote --data {directory}` first"
            )
        if FENCED in self.facts:
            raise DataDirectoryError(
                f"the broker at {self.facts[FENCED]} was promoted in place of {directory}, and has taken "
                f"records since. To be its standby, add --follow {self.facts[FENCED]}; to let this one lead "
                f"in spite of it, `millstream promote --data {directory} --force` first"
            )


def load_state(db: sqlite3.Connection) -> CopyState:
    known = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "copy_facts" not in known:
        return CopyState()
    facts = {name: json.loads(value) for name, value in db.execute("SELECT name, value FROM copy_facts")}
    rows = db.execute('SELECT topic_id, partition, "end" FROM copy_ends')
    return CopyState(facts, {(topic_id, partition): end for topic_id, partition, end in rows})


def save_facts(db: sqlite3.Connection, **facts: Any) -> None:
    """Set facts. None removes one."""
    for table in _TABLES:
        db.execute(table)
    for name, value in facts.items():
        if value is None:
            db.execute("DELETE FROM copy_facts WHERE name = ?", (name,))
        else:
            db.execute("INSERT OR REPLACE INTO copy_facts VALUES (?, ?)", (name, json.dumps(value)))


def save_ends(db: sqlite3.Connection, ends: Iterable[tuple[bytes, int, int]]) -> None:
    db.executemany("INSERT OR REPLACE INTO copy_ends VALUES (?, ?, ?)", ends)


def forget_state(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM copy_facts WHERE name != ?", (NODE_ID,))
    db.execute("DELETE FROM copy_ends")
