"""Containers of state that record what changed in them, and the bytes in which rows of a table are kept.

Two kinds of container are enough for everything here. ``Keyed`` is a dictionary whose entries may have a
due time (a window's end, a timer, the end of a state's life). ``WaitingRows`` holds rows in time order until
they are released. Keys and values are plain Python: tuples, numbers, text, bytes, whatever pickles.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.channels import HIDDEN
from millstream.pipeline.kernel.state.fitting import fitted

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

# The columns that order rows, in front of the rows' own columns. No user column has such a name.
TIME, SOURCE, PARTITION, OFFSET = (
    f"{HIDDEN}row_{word}" for word in ("time", "source", "partition", "offset")
)
_STALE = 64  # outdated times in a heap, beyond as many as valid ones, before they are cleaned out
_RUNS = 32  # sorted runs of waiting rows before they are merged into one
PIECE_BYTES = 4 * 1024 * 1024  # about, of a snapshot: in one piece it would need its size in memory again
_SAMPLE = 32  # entries whose size is measured to estimate that of others


class Container(Protocol):
    """A part of the state. ``changes`` returns what changed since its last call, or None for nothing."""

    kind: ClassVar[str]  # kept with the changes, which fit no other kind

    def changes(self) -> Any: ...
    def apply(self, changes: Any) -> None: ...
    def pieces(self) -> Iterator[Any]:
        """Changes that, applied one after another, turn an empty container into this one."""

    def __len__(self) -> int: ...


class Keyed(Generic[K, V]):
    """Values by key. A value that was changed in place must be ``put`` again to record the change."""

    __slots__ = ("_by_due", "_changed", "_due", "_order", "_values")
    kind: ClassVar[str] = "keyed"

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._due: dict[K, int] = {}
        # Keys in the order in which they came. In most programs most times belong to one key only, for
        # which a tuple takes a quarter of a dictionary's memory.
        self._by_due: dict[int, tuple[K] | dict[K, None]] = {}
        self._order: list[int] = []  # a heap of the times in _by_due, and of some outdated ones
        self._changed: set[K] = set()

    def fetch(self, keys: Iterable[K]) -> None:
        """Announce the keys that are about to be used, so that a table can read them all at once."""

    def get(self, key: K, default: D = None) -> V | D:  # type: ignore[assignment]
        return self._values.get(key, default)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> Iterable[tuple[K, V]]:
        return self._values.items()

    def due_of(self, key: K) -> int | None:
        return self._due.get(key)

    def put(self, key: K, value: V, due: int | None = None) -> None:
        """Set a value, and when it is due; without ``due`` it never is."""
        self._values[key] = value
        self._changed.add(key)
        if due is not None or self._due:
            self._set_due(key, due)

    def put_all(self, values: Mapping[K, V], due: int | None = None) -> None:
        """Set many values with one due time."""
        self._values.update(values)
        self._changed.update(values)
        if due is not None or self._due:
            for key in values:
                self._set_due(key, due)

    def remove(self, key: K) -> None:
        if key in self._values:
            del self._values[key]
            self._changed.add(key)
            self._set_due(key, None)

    def take_due(self, until: int) -> list[tuple[int, K, V]]:
        """Remove and return all entries that are due at or before a time, earliest first."""
        found: list[tuple[int, K, V]] = []
        while self._order and self._order[0] <= until:
            due = heapq.heappop(self._order)
            keys = self._by_due.pop(due, None)
            if keys is not None:
                for key in keys:
                    found.append((due, key, self._values.pop(key)))
                    del self._due[key]
                self._changed.update(keys)
        return found

    def next_due(self) -> int | None:
        """The earliest time at which something is due; None if nothing is."""
        while self._order and self._order[0] not in self._by_due:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None

    def _set_due(self, key: K, due: int | None) -> None:
        old = self._due.get(key)
        if old == due:
            return
        if old is not None:
            self._not_due(key, old)
        if due is None:
            self._due.pop(key, None)
            return
        self._due[key] = due
        there = self._by_due.get(due)
        if there is None:
            self._by_due[due] = (key,)
            heapq.heappush(self._order, due)
        elif isinstance(there, tuple):
            self._by_due[due] = {there[0]: None, key: None}
        else:
            there[key] = None

    def _not_due(self, key: K, due: int) -> None:
        there = self._by_due[due]
        if not isinstance(there, tuple):
            del there[key]
            if there:
                return
        del self._by_due[due]
        if len(self._order) > 2 * len(self._by_due) + _STALE:
            self._order = list(self._by_due)
            heapq.heapify(self._order)

    def changes(self) -> Any:
        if not self._changed:
            return None
        values, dues = self._values, self._due
        put = {key: values[key] for key in self._changed if key in values}
        due = {key: dues[key] for key in put if key in dues} if dues else {}
        gone = [key for key in self._changed if key not in values]
        self._changed = set()
        return put, due, gone

    def apply(self, changes: Any) -> None:
        put, due, gone = changes
        for key in gone:
            if key in self._values:
                del self._values[key]
                self._set_due(key, None)
        self._values.update(put)
        if due or self._due:
            for key in put:
                self._set_due(key, due.get(key))

    def pieces(self) -> Iterator[Any]:
        entries = iter(self._values.items())
        while first := list(islice(entries, _SAMPLE)):
            each = len(pickle.dumps(first, 5)) / len(first)
            put = dict(first)
            put.update(islice(entries, max(0, int(PIECE_BYTES / each) - len(first))))
            yield put, {key: self._due[key] for key in put if key in self._due} if self._due else {}, []


class WaitingRows:
    """Rows of one schema in time order, until they are released. The first columns are those of
    ``ORDER``. ``own`` are the other columns that rows have now: rows that were kept with different ones
    are made to fit (``fitting.py``). Without ``own``, rows stay as they are."""

    ORDER = (TIME, SOURCE, PARTITION, OFFSET)
    kind: ClassVar[str] = "waiting"

    def __init__(self, own: pa.Schema | None = None) -> None:
        self._own = own
        self._runs: list[pa.Table] = []
        self._let_go = -(1 << 62)
        self._added: list[pa.Table] = []
        self._moved = False

    def __len__(self) -> int:
        return sum(run.num_rows for run in self._runs)

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._added.append(rows)
            self._keep(rows)

    def _keep(self, rows: pa.Table) -> None:
        self._runs.append(_in_order(rows))
        if len(self._runs) > _RUNS:
            self._runs = [_in_order(pa.concat_tables(self._runs))]

    def earliest(self) -> int | None:
        """The time of the first waiting row; None if there is none."""
        return min((int(run[TIME][0].as_py()) for run in self._runs), default=None)

    def let_go(self, before: int) -> pa.Table | None:
        """Remove and return the rows before a time, in order."""
        if before > self._let_go:
            self._let_go, self._moved = before, True
        gone, kept = [], []
        for run in self._runs:
            times = run[TIME].to_numpy()
            cut = int(np.searchsorted(times, before, side="left"))
            if cut:
                gone.append(run.slice(0, cut))
            if cut < run.num_rows:
                kept.append(run.slice(cut))
        self._runs = kept
        if not gone:
            return None
        return _in_order(pa.concat_tables(gone)) if len(gone) > 1 else gone[0]

    def rows(self) -> pa.Table | None:
        """All waiting rows, in order."""
        return _in_order(pa.concat_tables(self._runs)) if self._runs else None

    def changes(self) -> Any:
        if not self._added and not self._moved:
            return None
        # Rows that were added and released in the same batch need not be stored.
        stayed = (rows.filter(pa.array(rows[TIME].to_numpy() >= self._let_go)) for rows in self._added)
        added = [to_bytes(rows) for rows in stayed if rows.num_rows]
        self._added, self._moved = [], False
        return added, self._let_go

    def apply(self, changes: Any) -> None:
        added, before = changes
        for blob in added:
            rows = from_bytes(blob)
            if self._own is not None:
                rows = fitted(rows, [*(rows.schema.field(name) for name in self.ORDER), *self._own])
            self._keep(rows)
        self._let_go = before
        self.let_go(before)
        self._moved = False

    def pieces(self) -> Iterator[Any]:
        rows = self.rows()
        if rows is None:
            yield [], self._let_go
            return
        most = max(1, int(PIECE_BYTES / max(1, rows.nbytes / rows.num_rows)))
        for start in range(0, rows.num_rows, most):
            yield [to_bytes(rows.slice(start, most))], self._let_go


def _in_order(rows: pa.Table) -> pa.Table:
    times = rows[TIME].to_numpy()
    if rows.num_rows < 2:
        return rows.combine_chunks()
    order = np.lexsort([rows[name].to_numpy() for name in reversed(WaitingRows.ORDER)])
    if (order[1:] > order[:-1]).all() and len(times):
        return rows.combine_chunks()
    return rows.take(pa.array(order)).combine_chunks()


def to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    blob: bytes = sink.getvalue().to_pybytes()
    return blob


def from_bytes(blob: Any) -> pa.Table:
    return pa.ipc.open_stream(blob).read_all()
