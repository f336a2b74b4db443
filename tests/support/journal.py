"""Records what a client did and saw as it happens, so that nothing is lost when the client is killed.

A journal is one life of one client: a file of JSON lines, each written with one call before the next step.
``read_journals`` makes a :class:`~tests.support.history.History` from a directory of journals.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.history import History, Mark, Outcome, Poll, Transaction, Write


class Journal:
    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _note(self, kind: str, *what: Any) -> None:
        os.write(self._file, (json.dumps([kind, *what]) + "\n").encode())

    def writing(self, number: int, writer: str, writes: Iterable[Write]) -> None:
        """Note that transaction ``number`` of this life is about to be written."""
        self._note("writing", number, writer, [[w.partition, w.value, w.source] for w in writes])

    def committing(self, number: int) -> None:
        """Note that the commit of a transaction is about to be requested."""
        self._note("committing", number, time.monotonic())

    def ended(self, number: int, outcome: Outcome, offsets: Mapping[str, int]) -> None:
        """Note the outcome of a transaction."""
        self._note("ended", number, outcome, offsets)

    def polled(self, committed_only: bool, records: list[tuple[tuple[str, int], int, str]]) -> None:
        self._note("polled", time.monotonic(), committed_only, records)

    def mark(self, name: str, topic: str, partition: int, value: int) -> None:
        self._note("mark", name, topic, partition, value)

    def trouble(self, what: object) -> None:
        """Note an error for people. It is not part of the history."""
        self._note("trouble", time.monotonic(), repr(what))


def read_journals(directory: Path) -> History:
    """The history in a directory of journals. The lives of one client are ordered by their file names."""
    history = History()
    for path in sorted(directory.glob("*.jsonl")):
        under_way: dict[int, Transaction] = {}
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # the last one may have been cut off by a kill
                _add(history, path.stem, under_way, *json.loads(line))
    return history


def _add(history: History, name: str, under_way: dict[int, Transaction], kind: str, *what: Any) -> None:
    if kind == "writing":
        number, writer, writes = what
        made = [Write(_partition(p), value, _place(source)) for p, value, source in writes]
        under_way[number] = Transaction(writer, made)
        history.transactions.append(under_way[number])
    elif kind == "committing":
        under_way[what[0]].commit_asked_at = what[1]
    elif kind == "ended":
        transaction = under_way.pop(what[0])
        transaction.outcome, transaction.offsets = what[1], what[2]
    elif kind == "polled":
        at, committed_only, records = what
        read = [(_partition(p), offset, value) for p, offset, value in records]
        history.polls.append(Poll(name, at, committed_only, read))
    elif kind == "mark":
        history.marks.append(Mark(what[0], (what[1], what[2]), what[3]))


def _partition(pair: list[Any]) -> tuple[str, int]:
    return pair[0], pair[1]


def _place(pair: list[Any] | None) -> tuple[tuple[str, int], int] | None:
    return None if pair is None else (_partition(pair[0]), pair[1])
