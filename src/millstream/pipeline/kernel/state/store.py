"""The state of an operator in one bucket: containers by name, their changes and snapshots.

A program keeps its state in containers that it names in a ``StateStore``. After every batch the store returns
its changes as bytes. Now and then, when the changes have grown as large as what they change, it returns a
snapshot of everything. A store that is given a snapshot and all changes since, in order, has the same
state again.

A store on a table (``keyed_on_table.py``) keeps keyed state there and not in memory. Containers with only an
entry or two, and waiting rows, stay in memory. Programs see no difference, but a program that says with
``fetch`` which keys it is about to use saves a round trip for each.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from millstream.pipeline.kernel.state.containers import Container, Keyed, WaitingRows
from millstream.pipeline.kernel.state.keyed_on_table import KeyedOnTable
from millstream.pipeline.kernel.state.table import StateTable

D = TypeVar("D")

KEPT_BESIDE = "clock"  # the container for what a bucket keeps beside its program's state


class StateStore:
    """All state of an operator in one bucket; on a ``table``, if it is kept in one."""

    def __init__(self, table: StateTable | None = None) -> None:
        self.table = table
        self._containers: dict[str, Container] = {}
        self._pending: dict[str, list[Any]] = {}  # changes of containers that are not open yet

    def keyed(self, name: str) -> Keyed[Any, Any]:
        if self.table is None:
            return self._container(name, Keyed)
        table = self.table
        return self._container(name, Keyed, lambda: KeyedOnTable(name, table))

    def in_memory(self, name: str) -> Keyed[Any, Any]:
        """A container that is in memory wherever the rest is kept: for an entry or two, or for state of
        which the program has an index in memory anyway."""
        return self._container(name, Keyed)

    def waiting(self, name: str, own: pa.Schema | None = None) -> WaitingRows:
        return self._container(name, WaitingRows, lambda: WaitingRows(own))

    def _container(self, name: str, kind: type[D], make: Callable[[], D] | None = None) -> D:
        if name not in self._containers:
            made: Any = (make or kind)()
            self._containers[name] = made
            for changes in self._pending.pop(name, []):
                self._apply(name, changes)
        found = self._containers[name]
        assert isinstance(found, kind)
        return found

    def open_all(self) -> None:
        """Open every container that there is, for a caller that does not know the program."""
        makers: dict[str, Callable[[str], Container]] = {
            WaitingRows.kind: self.waiting,
            Keyed.kind: self.in_memory,
        }
        for name, changes in list(self._pending.items()):
            makers.get(changes[0][0], self.keyed)(name)

    def changes(self) -> bytes:
        """What changed since the last call."""
        asked = ((name, one.kind, one.changes()) for name, one in self._containers.items())
        return pickle.dumps(
            {name: (kind, changed) for name, kind, changed in asked if changed is not None}, 5
        )

    def apply(self, blob: bytes) -> None:
        """Apply the changes of another store."""
        for name, changes in loaded(blob).items():
            if name in self._containers:
                self._apply(name, changes)
            else:
                self._pending.setdefault(name, []).append(changes)

    def _apply(self, name: str, changes: tuple[str, Any]) -> None:
        kind, changed = changes
        one = self._containers[name]
        assert one.kind == kind, f"{name} was {kind}, and is {one.kind}"
        one.apply(changed)

    def snapshot(self) -> Iterator[bytes]:
        """The whole state, as changes of an empty store. Of state on a table, only what the table lacks."""
        for name, one in self._containers.items():
            for piece in one.pieces():
                yield pickle.dumps({name: (one.kind, piece)}, 5)
        for name, changes in self._pending.items():
            for piece in changes:
                yield pickle.dumps({name: piece}, 5)

    def __len__(self) -> int:
        """How many keys and rows it holds."""
        return sum(len(one) for one in self._containers.values())

    def containers(self) -> Iterator[tuple[str, Container]]:
        yield from self._containers.items()


def loaded(blob: bytes) -> dict[str, Any]:
    """Changes, or a piece of a snapshot, by container."""
    found: dict[str, Any] = pickle.loads(blob)  # noqa: S301 - our own, from our checkpoint
    return found
