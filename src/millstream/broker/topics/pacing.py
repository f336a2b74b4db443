"""Lets the loop run other tasks during work that goes over many topics or partitions."""

from __future__ import annotations

import asyncio
import time

_PATIENCE = 0.005  # seconds of work after which the loop may run other tasks


async def yield_if_due(started: float) -> float:
    """Let other tasks run if this one has worked for a while. Returns the time to count from next."""
    if time.monotonic() - started < _PATIENCE:
        return started
    await asyncio.sleep(0)
    return time.monotonic()
