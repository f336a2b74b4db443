"""Decides when a query gets a batch only because time has passed: for timers, idle sources, the input's end.

After every batch, each stateful operator reports at which wall-clock time it wants to look again. The
earliest of these times is written to the query's tick file (``connector/tick_file.py``).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from millstream.pipeline.connector.tick_file import Tick, write_tick
from millstream.pipeline.kernel.ending import EndOfInput
from millstream.pipeline.run.reporting.progress import BatchProgress

_LEAST_MS = 100  # between two batches that are made only because time has passed


class TickSchedule:
    """The tick files of a job's queries, on this machine. ``endings`` are of the queries that are carried to
    their end."""

    def __init__(self, endings: Mapping[str, EndOfInput]) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="millstream-ticks-"))
        self._names: dict[str, Path] = {}
        self._endings = endings

    def file(self, query: str) -> Path:
        """The file that a query's sources read. The first batch comes at once, because what was waiting when
        the job was stopped waits again."""
        if query not in self._names:
            self._names[query] = self._home / str(len(self._names))
            write_tick(self._names[query], Tick(at_ms=_now_ms()))
        return self._names[query]

    def after(self, progress: BatchProgress) -> None:
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
                write_tick(path, Tick(after=progress.ends, again=again, finish=finish))
            return
        times = [one.timer for one in operators if one.timer is not None]
        if progress.waits_for is not None:
            times += [one.may_move for one in operators if one.may_move is not None]
        if times:
            # Rounded up to the next whole millisecond: a tick that came too early would have to be repeated.
            write_tick(path, Tick(at_ms=max(-(-min(times) // 1000), _now_ms() + _LEAST_MS)))
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
