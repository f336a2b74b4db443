"""Bounds each stateful operator's state (``max_state``): warns at half of the bound, stops the job above it.

The sizes are those that operators report after every batch. What a single batch may do is bounded in the
worker (``spark/kernel_operator.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.core.errors import StateError
from millstream.pipeline.kernel.state.limit import too_large

if TYPE_CHECKING:
    from millstream.pipeline.run.reporting.progress import BatchProgress


class StateLimit:
    """Watches the operators of a job. ``most`` is in bytes; None means that there is no bound."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._warned: set[str] = set()
        self.exceeded: StateError | None = None

    def after(self, progress: BatchProgress) -> list[str]:
        """Check the operators after a batch; returns the warnings to print."""
        said = []
        for name, status in progress.operators.items():
            if self._most is None or status.bytes <= self._most / 2:
                self._warned.discard(name)
            elif status.bytes > self._most:
                self.exceeded = self.exceeded or StateError(too_large(name, status.bytes, self._most))
            elif name not in self._warned:
                self._warned.add(name)
                said.append(
                    f"the state of {name!r} has grown to {status.bytes / 1e6:,.0f} MB, over half of what"
                    f" max_state allows ({self._most / 1e6:,.0f} MB); the job stops when it is reached"
                )
        return said
