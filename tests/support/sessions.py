"""Finds and signals all processes of a program that was started in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended in the meantime
            state, _, _, its = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def signal_session(session: int, number: signal.Signals) -> None:
    for process in members(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
