"""Keeps keyed state in a table outside the process: a file on disk, or a database.

Theory of operation. A batch writes its changes to Spark's checkpoint, as for all state. The batch that
makes a change never writes it to the table. Changes are *folded* into the table at the beginning of a
later batch, when Spark has confirmed that they count. So a table holds nothing that may have to be taken
back. The changes that it lacks, because they are not folded yet, are kept in front of it and take
precedence. Therefore:

- A batch that is run again reads what it read before: the table, and the same changes in front of it.
- A fold applies whole versions, and the changes of a version are the same in every task that folds them.
  A fold that is done twice, or by a task that should have ended long ago, changes nothing: a table ignores
  versions that it is already past.
- A task that is behind reads a table that is ahead of it, and would compute nonsense. It is refused when it
  tries to write its results, because by then the table reports a version that the task does not know.
- A table that is further than the checkpoint knows, or not as far, does not belong to the checkpoint:
  someone has restored an old copy of one of the two. That is refused.
"""

from __future__ import annotations

import heapq
import io
import marshal
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from millstream.pipeline.kernel.state.containers import PIECE_BYTES, Keyed
from millstream.pipeline.kernel.state.table import StateTable, TableEntry

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_EVER = 1 << 62


def encode(key: Any) -> bytes:
    """Encode a key: equal keys of the same types give equal bytes. (Plain pickle would not do, because its
    bytes depend on which parts of the key are the same object.)"""
    try:
        return marshal.dumps(key, 2)
    except ValueError:
        sink = io.BytesIO(b"P")
        sink.seek(1)
        pickler = pickle.Pickler(sink, 5)
        pickler.fast = True
        pickler.dump(key)
        return sink.getvalue()


def decode(key: bytes) -> Any:
    return pickle.loads(key[1:]) if key[:1] == b"P" else marshal.loads(key)  # noqa: S301, S302 - our own


class _CachedEntry:
    """An entry in front of the table: value, bytes and due time. The value is unpickled on first use."""

    __slots__ = ("blob", "due", "value")

    def __init__(self, value: Any, due: int | None, blob: bytes | None) -> None:
        self.value = value
        self.due = due
        self.blob = blob

    def get(self) -> Any:
        if self.value is _PICKLED:
            self.value = pickle.loads(self.blob or b"")  # noqa: S301 - our own
        return self.value


_PICKLED = object()


class KeyedOnTable(Keyed[K, V]):
    """A ``Keyed`` on a table. In memory are the changes that the table lacks, and what this batch read."""

    __slots__ = ("_bytes", "_count", "_first", "_front", "_looked", "_name", "_read", "_sizes", "_table")
    kind: ClassVar[str] = "outside"

    def __init__(self, name: str, table: StateTable) -> None:
        super().__init__()
        self._name = name
        self._table = table
        self._front: dict[K, _CachedEntry | None] = {}  # None: removed
        self._read: dict[K, _CachedEntry | None] = {}  # None: not there
        self._sizes: dict[K, int | None] = {}  # of entries before this batch changed them; None: not known
        self._count = self._bytes = 0
        # The first entry that is due in the table and not replaced in front of it; None if there is none.
        # It is valid if it was looked up (``_looked``): a change in front of the table can only hide it.
        self._first: tuple[int, K, TableEntry] | None = None
        self._looked = False

    # ---- one by one ---------------------------------------------------------------------------------

    def fetch(self, keys: Iterable[K]) -> None:
        wanted = {encode(key): key for key in keys if key not in self._front and key not in self._read}
        if wanted:
            found = self._table.get_many(self._name, list(wanted))
            for code, key in wanted.items():
                entry = found.get(code)
                self._read[key] = None if entry is None else _CachedEntry(_PICKLED, entry.due, entry.value)

    def _find(self, key: K) -> _CachedEntry | None:
        if key in self._front:
            return self._front[key]
        if key not in self._read:
            self.fetch((key,))
        return self._read[key]

    def get(self, key: K, default: D = None) -> V | D:  # type: ignore[assignment]
        found = self._find(key)
        return default if found is None else found.get()

    def __contains__(self, key: K) -> bool:
        return self._find(key) is not None

    def due_of(self, key: K) -> int | None:
        found = self._find(key)
        return None if found is None else found.due

    def put(self, key: K, value: V, due: int | None = None) -> None:
        self._changing(key)
        self._front[key] = _CachedEntry(value, due, None)
        self._set_due(key, due)

    def put_all(self, values: Mapping[K, V], due: int | None = None) -> None:
        for key, value in values.items():
            self.put(key, value, due)

    def remove(self, key: K) -> None:
        if self._find(key) is not None:
            self._changing(key)
            self._front[key] = None
            self._set_due(key, None)

    def _changing(self, key: K) -> None:
        if key in self._sizes:
            return
        if key in self._front:
            self._sizes[key] = _size(self._front[key])
        elif key in self._read:
            self._sizes[key] = _size(self._read[key])
        else:
            self._sizes[key] = None

    # ---- by time ------------------------------------------------------------------------------------

    def take_due(self, until: int) -> list[tuple[int, K, V]]:
        found: list[tuple[int, K, V]] = []
        first = self._first_in_table()
        if first is not None and first[0] <= until:
            for due, key, entry in self._due_in_table(until):
                self._read[key] = here = _CachedEntry(_PICKLED, due, entry.value)
                found.append((due, key, here.get()))
        while self._order and self._order[0] <= until:
            due = heapq.heappop(self._order)
            for key in self._by_due.pop(due, ()):
                del self._due[key]
                here_too = self._front[key]
                assert here_too is not None
                found.append((due, key, here_too.get()))
        found.sort(key=lambda one: one[0])
        for _, key, _ in found:
            self._changing(key)
            self._front[key] = None
        return found

    def next_due(self) -> int | None:
        here, first = super().next_due(), self._first_in_table()
        if first is None:
            return here
        return first[0] if here is None else min(here, first[0])

    def _first_in_table(self) -> tuple[int, K, TableEntry] | None:
        """The first entry that is due in the table and has not been changed since."""
        if not self._looked or (self._first is not None and self._first[1] in self._front):
            after = None if self._first is None else (self._first[0], encode(self._first[1]))
            self._first = next(self._due_in_table(_EVER, after), None)
            self._looked = True
        return self._first

    def _due_in_table(
        self, until: int, after: tuple[int, bytes] | None = None
    ) -> Iterator[tuple[int, K, TableEntry]]:
        while page := self._table.due(self._name, until, after):
            for code, entry in page:
                due = int(entry.due or 0)
                key = decode(code)
                if key not in self._front:
                    yield due, key, entry
                after = due, code

    # ---- all of it ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of keys, as of the last ``changes``."""
        return self._count

    @property
    def size(self) -> int:
        """The bytes of all values, as of the last ``changes``."""
        return self._bytes

    def items(self) -> Iterable[tuple[K, V]]:
        for key, here in list(self._front.items()):
            if here is not None:
                yield key, here.get()
        for code, entry in self._table.scan(self._name):
            key = decode(code)
            if key not in self._front:
                yield key, pickle.loads(entry.value)  # noqa: S301 - our own

    # ---- kept with the batch ------------------------------------------------------------------------

    def changes(self) -> Any:
        if not self._sizes:
            self._read = {}
            return None
        self._resolve()
        put: list[tuple[bytes, bytes, int | None]] = []
        gone: list[bytes] = []
        for key, before in self._sizes.items():
            here = self._front[key]
            code = encode(key)
            if here is None:
                gone.append(code)
            else:
                here.blob = pickle.dumps(here.get(), 5)
                put.append((code, here.blob, here.due))
            self._count += (here is not None) - (before != 0)
            self._bytes += _size(here) - int(before or 0)
        self._sizes, self._read = {}, {}
        return put, gone, self._count, self._bytes

    def _resolve(self) -> None:
        """Look up the sizes of entries that were overwritten without being read."""
        unknown = {encode(key): key for key, size in self._sizes.items() if size is None}
        if unknown:
            found = self._table.get_many(self._name, list(unknown))
            for code, key in unknown.items():
                self._sizes[key] = _entry_size(found[code].value) if code in found else 0

    def apply(self, changes: Any) -> None:
        put, gone, self._count, self._bytes = changes
        for code, blob, due in put:
            key = decode(code)
            self._front[key] = _CachedEntry(_PICKLED, due, blob)
            self._set_due(key, due)
        for code in gone:
            key = decode(code)
            self._front[key] = None
            self._set_due(key, None)
        self._read, self._first, self._looked = {}, None, False

    def pieces(self) -> Iterator[Any]:
        """What the table lacks, if the table lasts. Otherwise ``on_table`` gives all entries instead."""
        put: list[tuple[bytes, bytes, int | None]] = []
        gone: list[bytes] = []
        if self._table.lasting:
            for key, here in self._front.items():
                if here is None:
                    gone.append(encode(key))
                else:
                    put.append((encode(key), here.blob or b"", here.due))
        yield put, gone, self._count, self._bytes

    def on_table(self) -> Iterator[list[tuple[bytes, bytes, int | None]]]:
        """All entries of a table, in pieces. Nothing may be in front of the table."""
        assert not self._front, "folded first"
        piece: list[tuple[bytes, bytes, int | None]] = []
        size = 0
        for code, (value, due) in self._table.scan(self._name):
            piece.append((code, value, due))
            size += len(code) + len(value)
            if size >= PIECE_BYTES:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def in_front(self) -> dict[bytes, TableEntry | None]:
        """What the table lacks, in the form that ``fold`` takes."""
        return {
            encode(key): None if here is None else TableEntry(here.blob or b"", here.due)
            for key, here in self._front.items()
        }

    def unfolded(self) -> int:
        return len(self._front)

    def folded(self) -> None:
        """Note that the table has absorbed all changes that were waiting in memory."""
        self._front, self._read, self._first, self._looked = {}, {}, None, False
        self._due, self._by_due, self._order = {}, {}, []


def _size(here: _CachedEntry | None) -> int:
    return 0 if here is None else _entry_size(here.blob or b"")


def _entry_size(blob: bytes) -> int:
    return len(blob) + 1  # never 0, which means that there is no entry
