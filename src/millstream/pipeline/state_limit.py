"""The bound on each stateful operator's state (``max_state``): a warning when half of it is used, the end of
the job when it is exceeded. The sizes are those that operators tell after every batch; what one batch alone
may do is bounded in the worker (``kernel/spark.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import StateError

if TYPE_CHECKING:
    from millstream.pipeline.progress import Progress


class StateLimit:
    """Watches the operators of a job. ``most`` is in bytes; None: there is no bound."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._warned: set[str] = set()
        self.exceeded: StateError | None = None

    def after(self, progress: Progress) -> list[str]:
        """A batch is done; what is to be said about it."""
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


def too_large(operator: str, size: int, most: int) -> str:
    """What is said of an operator whose state has outgrown its bound."""
    return (
        f"the state of {operator!r} has grown to {size / 1e6:,.1f} MB, more than max_state allows"
        f" ({most / 1e6:,.1f} MB). Let its keys expire sooner (a shorter window, within= or time to live),"
        ' keep it elsewhere (Topology(state="disk") or a database), or allow more; `millstream state show`'
        " tells what it holds"
    )
