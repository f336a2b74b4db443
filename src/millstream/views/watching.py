"""Follows a view: its rows as they are, and then every change of them, with none missed and none twice.

    for change in watch("views.db", "blocked", key=["4716253098710001"]):
        print(change.kind, change.new)

The rows are read at one version of the view. From there on, the changes of each later version are read, which
were written with it in one transaction. Followers are not registered anywhere. Any number of them may read,
and a follower stops by no longer reading. A database keeps changes only for a while. A follower that was away
for longer is told so (``reset``) and gets all rows again.

With a condition, only the rows for which it is true are followed. A row that begins to match is an insert,
and a row that no longer matches is a delete.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from millstream.views.opening import open_reader
from millstream.views.views import ChangesSince, ViewReader

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0  # between two attempts to reconnect to a database
Kind = Literal["row", "insert", "update", "delete", "reset"]
Start = Literal["rows", "changes", "now"]


@dataclass(frozen=True, slots=True)
class ViewChange:
    """What happened to one row. The kind ``row`` is a row that existed when the following began. After a
    ``reset``, whose ``old`` and ``new`` are None, all rows come again.

    ``version`` counts the transactions that changed the view. ``query`` and ``batch`` say which batch made
    the change, and ``at_ms`` when, in milliseconds since 1970. They are None for rows that existed
    before."""

    kind: Kind
    version: int
    key: dict[str, Any]
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None
    query: str | None = None
    batch: int | None = None
    at_ms: int | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it, as ``millstream view watch --output json`` prints it."""
        return {
            "kind": self.kind,
            "version": self.version,
            "key": self.key,
            "old": self.old,
            "new": self.new,
            "query": self.query,
            "batch": self.batch,
            "at_ms": self.at_ms,
        }


class Watcher:
    """A follower of a view. ``start``: the rows as they are and then changes (``rows``), every change that is
    kept (``changes``), or only what changes from now on (``now``)."""

    def __init__(
        self,
        where: str | Path,
        view: str,
        *,
        key: Sequence[str] = (),
        condition: str | None = None,
        start: Start = "rows",
        say: Callable[[str], None] = _log.warning,
    ) -> None:
        self._reader: ViewReader = open_reader(where)
        self._where = where
        self._say = say
        self._pause = _FIRST_PAUSE_S
        self._next_try = 0.0
        self._name = view
        self._ready: deque[ViewChange] = deque()
        try:
            if condition:
                self._reader.check_condition(view, condition)
            picked = [f"({condition}\n)"] if condition else []  # the condition may end with a comment
            if key:
                picked.append(self._reader.key_condition(view, key))
            self._condition = " AND ".join(picked) or None
            self._reader.wait(0)  # from here on, every write wakes this follower
            if start == "rows":
                self._version = self._rows()
            else:
                now = self._reader.present(view, "1 = 0")
                self._version = now.floor if start == "changes" else now.version
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, timeout: float) -> list[ViewChange]:
        """New changes, after waiting at most ``timeout`` seconds; none if nothing changed, or while the
        database is away. Once the database is back, the follower continues where it was."""
        if self._reader.lost and not self._reconnected(timeout):
            return []
        try:
            if not self._ready:
                self._look()
            if not self._ready:
                self._reader.wait(timeout)
                self._look()
        except Exception as error:
            if not self._reader.lost:
                raise
            self._say(f"{self._reader.where} went away ({_first_line(error)}); waiting for it to come back")
        found = list(self._ready)
        self._ready.clear()
        return found

    def _reconnected(self, timeout: float) -> bool:
        """Try to reconnect if an attempt is due, else wait a little. True if connected again."""
        left = self._next_try - time.monotonic()
        if left > 0:
            time.sleep(min(left, timeout))
            return False
        try:
            reader = open_reader(self._where)
            reader.wait(0)
        except ConnectionError:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
            self._next_try = time.monotonic() + self._pause
            return False
        self._reader.close()
        self._reader, self._pause = reader, _FIRST_PAUSE_S
        self._say(f"{reader.where} is back")
        return True

    def __iter__(self) -> Iterator[ViewChange]:
        while True:
            yield from self.read(1.0)

    def _rows(self) -> int:
        present = self._reader.present(self._name, self._condition)
        for values in present.rows:
            row = dict(zip(present.columns, values, strict=True))
            key = {name: row[name] for name in present.key}
            self._ready.append(ViewChange("row", present.version, key, new=row))
        return present.version

    def _look(self) -> None:
        since = self._reader.since(self._name, self._version, self._condition)
        # A smaller version means that the view was removed and created again.
        if since.floor > self._version or since.version < self._version:
            self._ready.append(ViewChange("reset", since.version, {}))
            self._version = self._rows()
            return
        self._ready.extend(changes_of(since))
        self._version = since.version


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def changes_of(since: ChangesSince) -> Iterator[ViewChange]:
    """The changes, with the old and the new row of a key put together."""
    old: dict[str, Any] | None = None
    for number, (version, at_ms, query, batch, is_new, values) in enumerate(since.parts):
        row = dict(zip(since.columns, values, strict=True))
        key = {name: row[name] for name in since.key}
        about: dict[str, Any] = {"query": query, "batch": batch, "at_ms": at_ms}
        if is_new:
            yield ViewChange("insert" if old is None else "update", version, key, old, row, **about)
            old = None
            continue
        following = since.parts[number + 1] if number + 1 < len(since.parts) else None
        if following is not None and following[0] == version and following[4]:
            after = dict(zip(since.columns, following[5], strict=True))
            if {name: after[name] for name in since.key} == key:
                old = row
                continue
        yield ViewChange("delete", version, key, row, None, **about)


def watch(
    where: str | Path,
    view: str,
    *,
    key: Sequence[str] = (),
    condition: str | None = None,
    start: Start = "rows",
) -> Iterator[ViewChange]:
    """Every change of a view in a file or a ``postgresql://`` database, without end; see ``Watcher``."""
    with Watcher(where, view, key=key, condition=condition, start=start) as watcher:
        yield from watcher
