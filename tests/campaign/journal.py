"""What a client did, one JSON line at a time. Each is one write, so a client's death loses no whole line.

A journal is one life of one client. The lines of all journals of a round are folded into the models that
the checks take.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.campaign.coverage import Range, Sighting
from tests.campaign.keyed import Table
from tests.campaign.ledger import Accounts, Place
from tests.campaign.lookups import LookUp


class Journal:
    def __init__(self, path: Path) -> None:
        self.life = path.stem
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, kind: str, *what: Any) -> None:
        os.write(self._file, (json.dumps([kind, *what]) + "\n").encode())


def lines(path: Path) -> Iterator[list[Any]]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):  # otherwise a kill cut it off
                yield json.loads(line)


class Notes:
    """All journals of some clients, folded."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.acknowledged_at: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        """Offset and timestamp of some acknowledged records, for rules about age."""
        self.fresh: list[tuple[Place, str, int, int, int, int]] = []
        """Acknowledged runs, and when they were acknowledged: place, life, number, count, offset, ms."""
        self.processed: dict[tuple[str, Place], list[Range]] = defaultdict(list)
        self.sightings: list[Sighting] = []
        self.digests: dict[Place, list[dict[int, int]]] = defaultdict(list)
        self.look_ups: dict[Place, list[LookUp]] = defaultdict(list)
        self.trims_asked: dict[Place, list[int]] = defaultdict(list)
        self.trims_done: dict[Place, list[int]] = defaultdict(list)
        self.table_events: list[tuple[str, list[Any]]] = []
        self.wrong: list[str] = []
        """What the clients themselves found wrong."""
        self.tallies: dict[str, int] = defaultdict(int)

    @classmethod
    def of(cls, paths: Iterator[Path]) -> Notes:
        notes = cls()
        for path in sorted(paths):
            digests: dict[Place, dict[int, int]] = defaultdict(dict)
            for kind, *what in lines(path):
                notes._fold(path.stem, kind, what, digests)
            for place, blocks in digests.items():
                notes.digests[place].append(blocks)
        return notes

    def _fold(self, life: str, kind: str, what: list[Any], digests: dict[Place, dict[int, int]]) -> None:
        place: Place = (what[0], what[1]) if len(what) > 1 else ("", 0)
        if kind == "sending":
            self.accounts.of(place, life).sent = what[2]
        elif kind == "acked":
            number, count, offset, timestamp, at_ms = what[2:]
            self.accounts.of(place, life).acknowledge(number, count, offset)
            self.acknowledged_at[place].append((offset, timestamp))
            self.fresh.append((place, life, number, count, offset, at_ms))
        elif kind == "processed":
            self.processed[what[2], place].append((what[3], what[4]))
        elif kind == "seen":
            self.sightings.append(Sighting(what[2], place, what[3], what[4]))
        elif kind == "digest":
            digests[place][what[2]] = what[3]
        elif kind == "looked up":
            self.look_ups[place].append(LookUp(*what[2:]))
        elif kind == "trimming":
            self.trims_asked[place].append(what[2])
        elif kind == "trimmed":
            self.trims_done[place].append(what[2])
        elif kind in ("key sent", "key acked"):
            self.table_events.append((kind, what))
        elif kind == "wrong":
            self.wrong.append(f"{life}: {what[0]}")
        elif kind == "tally":
            self.tallies[what[0]] += what[1]

    def fold_table(self, table: Table) -> None:
        for kind, what in self.table_events:
            if kind == "key sent":
                for key, number, is_tombstone in what[0]:
                    table.sent(key, (number, is_tombstone))
            else:
                for key, number in what[0]:
                    table.acknowledge(key, number)
