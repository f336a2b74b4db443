"""The file through which a job asks its sources for a batch only because time has passed: a *tick*.

Spark makes a micro-batch when a source has something new. What waits for time to pass, and not for rows,
would wait forever if no rows came. The driver writes to the file when the next batch is due. The query's
sources, in their own processes, read it (``tickFile``) and make a batch when that time has come.

A run that ends when everything is read does not wait for the clock. The file says to which event time the
next batch carries the operators, until nothing waits (``kernel/ending.py``). Both times are in Spark's log
of offsets, so that a batch that is run again sees the same times as before.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Tick:
    """The instructions to a query's sources."""

    at_ms: int | None = None  # make a batch at this time
    after: list[dict[str, Any]] = field(default_factory=list)  # the sources' ends in the last reported batch
    again: bool = False  # something waits, and that batch read records: another source may have more
    finish: int | None = None  # nothing is left to read: the event time to carry the operators to
    there: bool = True  # False if the file does not exist


def read_tick(path: str) -> Tick:
    """Read the file; called by the sources. It is replaced as a whole, and gone if the job is closed or
    nothing waits."""
    try:
        return Tick(**json.loads(Path(path).read_text()))
    except FileNotFoundError:
        return Tick(there=False)


def write_tick(path: Path, tick: Tick) -> None:
    """Replace the file; called by the driver."""
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(json.dumps(asdict(tick)))
        os.replace(fresh, path)
    except FileNotFoundError:  # the job has been closed in the meantime
        return
