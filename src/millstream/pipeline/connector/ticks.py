"""Makes batches only because time has passed: for timers, for idle sources, and for the end of the input.

Spark makes a micro-batch when a source has something new. What waits for time to pass, and not for rows,
would wait forever if no rows came. So after every batch, each stateful operator reports at which wall-clock
time it wants to look again. The earliest of these times is written to a file. The query's sources, in their
own processes, make a batch when that time has come (``tickFile``).

A run that ends when everything is read does not wait for the clock. The file says to which event time the
next batch carries the operators, until nothing waits (``kernel/ending.py``). Both times are in Spark's log
of offsets, so that a batch that is run again sees the same times as before.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.pipeline.kernel.ending import Ending
    from millstream.pipeline.run.progress import Progress

_LEAST_MS = 100  # between two batches that are made only because time has passed


@dataclass(frozen=True, slots=True)
class Tick:
    """What a query's sources are told."""

    at_ms: int | None = None  # make a batch at this time
    after: list[dict[str, Any]] = field(default_factory=list)  # the sources' ends in the last reported batch
    again: bool = False  # something waits, and that batch read records: another source may have more
    finish: int | None = None  # nothing is left to read: the event time to carry the operators to
    there: bool = True  # False if the file does not exist


def read_tick(path: str) -> Tick:
    """Read a tick file; called by the sources. The file is replaced as a whole, and gone if the job is closed
    or nothing waits."""
    try:
        return Tick(**json.loads(Path(path).read_text()))
    except FileNotFoundError:
        return Tick(there=False)


class Ticks:
    """The tick files of a job's queries, on this machine. ``endings`` are of the queries that are carried to
    their end."""

    def __init__(self, endings: Mapping[str, Ending]) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="millstream-ticks-"))
        self._names: dict[str, Path] = {}
        self._endings = endings

    def file(self, query: str) -> Path:
        """The file that a query's sources read. The first batch comes at once, because what was waiting when
        the job was stopped waits again."""
        if query not in self._names:
            self._names[query] = self._home / str(len(self._names))
            self._write(self._names[query], at_ms=_now_ms())
        return self._names[query]

    def after(self, progress: Progress) -> None:
        """A batch is done: say when or how the next one is made."""
        path = self._names.get(progress.query)
        if path is None:
            return
        operators = progress.operators.values()
        if (ending := self._endings.get(progress.query)) is not None:
            waits = progress.waits_for
            finish = None
            try:
                finish = None if progress.moved else ending.next(waits)
            finally:  # the sources wait for the file, and without it the query could not be stopped
                again = progress.moved and waits is not None
                self._write(path, after=progress.ends, again=again, finish=finish)
            return
        times = [one.timer for one in operators if one.timer is not None]
        if progress.waits_for is not None:
            times += [one.may_move for one in operators if one.may_move is not None]
        if times:
            # Rounded up to the next whole millisecond: a tick that came too early would have to be repeated.
            self._write(path, at_ms=max(-(-min(times) // 1000), _now_ms() + _LEAST_MS))
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    @staticmethod
    def _write(path: Path, **tick: Any) -> None:
        fresh = path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(tick))
            os.replace(fresh, path)
        except FileNotFoundError:  # the job has been closed in the meantime
            return


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
