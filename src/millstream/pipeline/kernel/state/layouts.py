"""The column layouts of tuples in state, so that they can be read after the columns have changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.pipeline.kernel.state.store import KEPT_BESIDE, StateStore


class Layouts:
    """The column layouts that tuples were kept with, by number. Each tuple is kept with the number of its
    layout, so nothing has to be rewritten when the columns change, wherever the state is kept."""

    def __init__(self, store: StateStore, name: str, names: Sequence[str]) -> None:
        noted = store.in_memory(KEPT_BESIDE)
        self._known: list[list[str]] = list(noted.get(f"columns of {name}") or [])
        self._names = list(names)
        if self._names not in self._known:
            self._known.append(self._names)
            noted.put(f"columns of {name}", self._known)
        self.current = self._known.index(self._names)

    def fitted(self, values: Sequence[Any], number: int) -> tuple[Any, ...]:
        """Values of an older layout, converted to the current one."""
        there = dict(zip(self._known[number], values, strict=True))
        return tuple(there.get(name) for name in self._names)
