"""Batches for the sake of time alone: for timers, and for sources that have fallen idle.

Spark makes a micro-batch when a source has something new. What waits for time to pass, not for rows, would
wait for ever where none come. So after every batch each stateful operator tells when, by the clock on the
wall, it wants to look again; the earliest of these times is put into a file, and the query's sources, in
their own processes, make a batch when it has come (``tickFile``). A batch's time stands in Spark's log of
offsets, so that a batch that is run again sees the time it saw before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.pipeline.progress import Progress

_LEAST_MS = 100  # between two batches for the sake of time


class Ticks:
    """The tick files of a job's queries, on this machine."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="millstream-ticks-"))
        self._names: dict[str, Path] = {}

    def file(self, query: str) -> Path:
        """Where a query's sources look. The first batch comes at once: what was waiting when the job was
        stopped waits again."""
        if query not in self._names:
            self._names[query] = self._home / str(len(self._names))
            self._write(self._names[query], _now_ms())
        return self._names[query]

    def after(self, progress: Progress) -> None:
        """A batch is done: see to the next."""
        path = self._names.get(progress.query)
        if path is None:
            return
        operators = progress.operators.values()
        times = [one.timer for one in operators if one.timer is not None]
        if any(one.waits_for is not None for one in operators):
            times += [one.may_move for one in operators if one.may_move is not None]
        if times:
            # Up to the next whole millisecond: a tick that is too early would have to be made again.
            self._write(path, max(-(-min(times) // 1000), _now_ms() + _LEAST_MS))
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    @staticmethod
    def _write(path: Path, at_ms: int) -> None:
        fresh = path.with_suffix(".new")
        try:
            fresh.write_text(str(at_ms))
            os.replace(fresh, path)
        except FileNotFoundError:  # the job has been closed meanwhile
            return


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
