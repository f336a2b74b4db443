"""Stores the versions of a bucket's state in Spark's store, and loads the state from there.

For each bucket the store holds:

    head        the version (it grows by one per batch), a mark that no other write of it has, the place of
                the last snapshot, and the size of everything
    snapshot    the whole state as it was at some version, its base, in parts
    changes     what each version since the base changed, in slots counted from it; slot 0 has the base's mark

So a batch writes only what it changed. When the changes have grown as large as the snapshot, the next
batch begins by writing a new snapshot of the state that it found. A worker keeps the buckets that it has
seen. If the version and the mark are those that it knows, it reads nothing. If it fell behind because
other workers had the bucket for a while, it reads the changes since. Otherwise it reads everything. A
version that was never committed has a mark that will not be found again.

State on a table (``keyed_on_table.py``) is loaded the same way: Spark's store returns the changes that the
table may lack. A table that lasts has the rest, so snapshots leave that out. A table that does not last is
rebuilt from the snapshot if it is not as far as that.

Nothing here knows Spark: its three state variables are passed in.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from millstream.core.errors import StateError
from millstream.pipeline.kernel.state.keyed_on_table import KeyedOnTable
from millstream.pipeline.kernel.state.store import StateStore, loaded
from millstream.pipeline.kernel.state.table import StateTable, TableEntry, TableId

_PART_BYTES = 8 * 1024 * 1024  # of changes in one value
_LEAST_SNAPSHOT = 256 * 1024  # bytes of changes that are not yet worth a snapshot
_MOST_CHANGES = 400  # versions to read one after another when a bucket is loaded
_FOLD_ENTRIES = 2000  # changes in front of a table that are worth a fold
_FOLD_VERSIONS = 20  # after this many versions, fewer changes are worth one too

# The schemas of the state variables, as Spark writes them.
HEAD = (
    "version bigint, mark string, base bigint, parts int, own int, snapshot_bytes bigint,"
    " changed_bytes bigint, entries bigint, folded bigint, held bigint, operator string, space string"
)
SNAPSHOT = ("part int", "blob binary")
CHANGES = ("slot int, part int", "mark string, parts int, blob binary")


class ValueState(Protocol):
    def get(self) -> Any: ...
    def update(self, value: tuple[Any, ...]) -> None: ...


class MapState(Protocol):
    def getValue(self, key: tuple[Any, ...]) -> Any: ...  # noqa: N802 - Spark's names
    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None: ...  # noqa: N802
    def removeKey(self, key: tuple[Any, ...]) -> None: ...  # noqa: N802
    def clear(self) -> None: ...


class StateHead(NamedTuple):
    version: int = 0
    mark: str = ""
    base: int = 0  # the version of the snapshot
    parts: int = 0  # of the snapshot
    own: int = 0  # how many of the first ones come from the store; the rest are a table's entries
    snapshot_bytes: int = 0
    changed_bytes: int = 0  # since the snapshot
    entries: int = 0  # in the snapshot
    folded: int = 0  # the version up to which changes were folded into a table
    held: int = 0  # entries now
    # For tools that read the state of a job: the name of the operator, and the name under which its state
    # is kept outside.
    operator: str = ""
    space: str = ""

    @classmethod
    def of(cls, row: Any) -> StateHead:
        """The head from Spark's row; an empty head if the row is None."""
        if row is None:
            return cls()
        found: StateHead = cls._make([int(row[0]), str(row[1]), *map(int, row[2:10]), *map(str, row[10:12])])
        return found


@dataclass(slots=True)
class LoadedBucket:
    """A bucket's state as this worker has it in memory."""

    head: StateHead
    store: StateStore

    @property
    def size(self) -> int:
        """Bytes in the checkpoint and on a table that lasts."""
        here = self.head.snapshot_bytes + self.head.changed_bytes
        table = self.store.table
        return here + sum(one.size for _, one in outside(self.store)) if table and table.lasting else here


def outside(store: StateStore) -> list[tuple[str, KeyedOnTable[Any, Any]]]:
    """The containers that are on a store's table."""
    return [(name, one) for name, one in store.containers() if isinstance(one, KeyedOnTable)]


def _on_table(store: StateStore) -> Iterator[bytes]:
    """The content of a table that does not last, container by container."""
    if store.table is not None and not store.table.lasting:
        for name, one in outside(store):
            for piece in one.on_table():
                yield pickle.dumps({name: piece}, 5)


class BucketVersions:
    """One bucket in Spark's store. ``open_table`` opens its table, if it has one.

    A batch calls ``load``, then ``begin`` when the program has opened its containers, then ``save``. If
    any of them fails, or anything after them, then nothing has happened, and what was loaded must not be
    used again.
    """

    def __init__(
        self,
        operator: str,
        space: TableId,
        head: ValueState,
        snapshot: MapState,
        changes: MapState,
        open_table: Callable[[TableId], StateTable | None],
    ) -> None:
        self._operator, self._space = operator, space
        self._name = f"{operator!r}, bucket {space.bucket}"  # for error messages
        self._head, self._snapshot, self._changes = head, snapshot, changes
        self._open_table = open_table

    # ---- reading ------------------------------------------------------------------------------------

    def load(self, known: LoadedBucket | None) -> LoadedBucket:
        """The state as of the last batch that counts. ``known`` is what this worker has of it, if any."""
        head = self._current()
        if known is not None and (known.head.version, known.head.mark) == (head.version, head.mark):
            return known
        if known is not None and known.store.table is None and self._behind(known.head, head):
            for slot in range(known.head.version - head.base + 1, head.version - head.base + 1):
                known.store.apply(self._changed(slot))
            return LoadedBucket(head, known.store)
        table = self._open_table(self._space) if known is None else known.store.table
        if table is not None:
            self._check(head, table)
        store = StateStore(table)
        self._restore(head, store)
        for slot in range(1, head.version - head.base + 1):
            store.apply(self._changed(slot))
        return LoadedBucket(head, store)

    def _current(self) -> StateHead:
        """The head; a new one if it belongs to state of another name, which was given up and is removed."""
        head = StateHead.of(self._head.get())
        if not head.version or head.space == self._space.operator:
            return head
        for part in range(head.parts):
            self._snapshot.removeKey((part,))
        self._changes.clear()
        return StateHead()

    def _behind(self, known: StateHead, head: StateHead) -> bool:
        """True if what is known is an earlier version of the same state."""
        if not head.base <= known.version < head.version:
            return False
        there = self._changes.getValue((known.version - head.base, 0))
        return there is not None and there[0] == known.mark

    def _check(self, head: StateHead, table: StateTable) -> None:
        """Refuse a table that does not belong to this checkpoint."""
        there = table.folded()
        if there > head.version:
            raise StateError(
                f"the state of {self._name} is ahead of the checkpoint: it is at version {there}, and the"
                f" checkpoint is at {head.version}. Either another task has replaced this one, or an old"
                " copy of the checkpoint was restored. In the latter case give a new directory with"
                " --checkpoint"
            )
        if table.lasting and there < head.folded:
            raise StateError(
                f"the state of {self._name} is behind the checkpoint: it is at version {there}, and was at"
                f" {head.folded}. An old copy of the database was restored, or its tables are gone. Give a"
                " new directory with --checkpoint, and the job starts again where its sources say"
            )

    def _restore(self, head: StateHead, store: StateStore) -> None:
        """Load the snapshot."""
        table = store.table
        for part in range(head.own):
            store.apply(self._part(part))
        if table is not None and not table.lasting and table.folded() < head.base:
            table.rebuild(head.base, self._entries(head))

    def _entries(self, head: StateHead) -> Iterator[tuple[str, list[tuple[bytes, TableEntry]]]]:
        for part in range(head.own, head.parts):
            for container, entries in loaded(self._part(part)).items():
                yield container, [(key, TableEntry(value, due)) for key, value, due in entries]

    def _part(self, part: int) -> bytes:
        return bytes(self._snapshot.getValue((part,))[0])

    def _changed(self, slot: int) -> bytes:
        first = self._changes.getValue((slot, 0))
        others = [self._changes.getValue((slot, part)) for part in range(1, int(first[1]))]
        return b"".join(bytes(one[2]) for one in (first, *others))

    # ---- writing ------------------------------------------------------------------------------------

    def begin(self, known: LoadedBucket) -> None:
        """Catch up on earlier batches: fold their changes, and take a snapshot, if either is due."""
        head, store = known.head, known.store
        changed = head.changed_bytes > max(head.snapshot_bytes, _LEAST_SNAPSHOT)
        shrunk = head.snapshot_bytes > _LEAST_SNAPSHOT and 2 * len(store) < head.entries
        due = changed or shrunk or head.version - head.base >= _MOST_CHANGES
        self._fold(known, at_once=due)
        if due:
            self._take_snapshot(known)

    def _fold(self, known: LoadedBucket, *, at_once: bool) -> None:
        head, table = known.head, known.store.table
        front = outside(known.store)
        lacks = sum(one.unfolded() for _, one in front)
        late = head.version - head.folded >= _FOLD_VERSIONS
        if table is None or not (at_once or lacks >= _FOLD_ENTRIES or (lacks and late)):
            return
        table.fold(head.version, {name: one.in_front() for name, one in front})
        for _, one in front:
            one.folded()
        known.head = head._replace(folded=head.version)

    def _take_snapshot(self, known: LoadedBucket) -> None:
        head, store = known.head, known.store
        size = part = own = 0
        for pieces in (store.snapshot(), _on_table(store)):
            own = part
            for piece in pieces:
                self._snapshot.updateValue((part,), (piece,))
                size, part = size + len(piece), part + 1
        for old in range(part, head.parts):
            self._snapshot.removeKey((old,))
        self._changes.clear()
        self._changes.updateValue((0, 0), (head.mark, 1, b""))
        known.head = head._replace(
            base=head.version, parts=part, own=own, snapshot_bytes=size, changed_bytes=0, entries=len(store)
        )

    def save(self, known: LoadedBucket) -> None:
        """Write this batch's changes."""
        head, store = known.head, known.store
        blob = store.changes()
        if store.table is not None:
            self._check(head, store.table)  # if it has not advanced, nothing that was read was too new
        version, mark = head.version + 1, uuid.uuid4().hex
        slot = version - head.base
        cuts = range(0, max(1, len(blob)), _PART_BYTES)
        for part, start in enumerate(cuts):
            self._changes.updateValue((slot, part), (mark, len(cuts), blob[start : start + _PART_BYTES]))
        known.head = head._replace(
            version=version,
            mark=mark,
            changed_bytes=head.changed_bytes + len(blob),
            held=len(store),
            operator=self._operator,
            space=self._space.operator,
        )
        self._head.update(tuple(known.head))
