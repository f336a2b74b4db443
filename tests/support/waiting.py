"""Waits for a condition with a deadline, instead of sleeping for a fixed time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def patient(seconds: float) -> float:
    """As many seconds, or more on a busy machine: as many times more as processes compete for one core."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_for(condition: Callable[[], T], *, timeout: float = 60.0, what: str = "", every: float = 0.02) -> T:
    """The first true value of ``condition``; fails with ``what`` if none comes in time, which is longer on a
    busy machine.
    """
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() - began > patient(timeout):
            raise AssertionError(f"not within {patient(timeout):.0f} s: {what or condition}")
        time.sleep(every)
