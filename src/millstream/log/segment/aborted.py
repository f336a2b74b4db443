"""A segment's index of aborted transactions, in Kafka's format: what readers of committed records skip.

    .txnindex   2  version, 0
                8  producer id
                8  first offset of the transaction, which may be in an earlier segment
                8  last offset: its marker's, which is in this segment
                8  last stable offset when it was aborted

Entries are in the order of their last offsets. A segment without aborted transactions has no such file.
Like the other indexes it is derived from the log. Unlike them, it does not show when an entry is missing,
so it is synced together with its segment, before the segment counts as synced. New entries wait in memory
and are written to the file a page at a time. At most one page of the file is cached in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from millstream.log.storage.files import FilePool, LazyFile
from millstream.log.transactions import Aborted

ENTRY = Struct(">hqqqq")
VERSION = 0
_PAGE = 256  # entries read at once, and the most that wait in memory


class AbortedIndex:
    """The aborted transactions whose markers are in one segment."""

    __slots__ = ("_file", "_in_file", "_page_first", "_pending", "_pool", "_unsynced", "_whole", "count")

    def __init__(self, pool: FilePool, path: str, size: int = 0) -> None:
        self._pool = pool
        self._file = LazyFile(pool, path)
        self._in_file = size // ENTRY.size
        self._whole = size % ENTRY.size == 0
        self._pending: list[Aborted] = []
        self._page_first = 0  # number of the first entry on the file's cached page
        self._unsynced = False
        self.count = self._in_file

    @property
    def path(self) -> str:
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def append(self, aborted: Aborted) -> None:
        self._pending.append(aborted)
        self.count += 1

    @property
    def page_waits(self) -> bool:
        return len(self._pending) >= _PAGE

    def write(self) -> None:
        """Write the waiting entries to the file, creating it if needed."""
        if not self._pending:
            return
        data = b"".join(ENTRY.pack(VERSION, *entry) for entry in self._pending)
        self._file.get(create=True).pwrite(data, self._in_file * ENTRY.size)
        self._unsynced = True
        self._in_file = self.count
        self._pending.clear()
        self._file.page = b""

    def sync(self) -> None:
        """Sync the file if it was written to; from any thread."""
        if self._unsynced:
            self._unsynced = False  # cleared first: a write during the sync needs another sync
            try:
                (self._file.file or self._pool.files.open(self._file.path)).sync()
            except OSError:
                self._unsynced = True
                raise

    def clear(self) -> None:
        """Drop all entries, and anything else in the file."""
        if self._in_file or not self._whole:
            self._file.get().truncate(0)
            self._unsynced = True
        self._pending.clear()
        self._file.page = b""
        self._in_file = self.count = 0
        self._whole = True

    def let_go(self) -> None:
        """Close the file, unless something else still uses it."""
        self._file.let_go()

    def entry(self, number: int) -> Aborted:
        if number >= self._in_file:
            return self._pending[number - self._in_file]
        at = (number - self._page_first) * ENTRY.size
        page = self._file.page
        if not 0 <= at < len(page):
            page = self._file.page = self._file.get().pread(_PAGE * ENTRY.size, number * ENTRY.size)
            self._page_first, at = number, 0
        return Aborted._make(ENTRY.unpack_from(page, at)[1:])

    def _last_offset(self, number: int) -> int:
        """The last offset of one entry. Reads no page for it, because its neighbours may not be needed."""
        at = (number - self._page_first) * ENTRY.size
        if number < self._in_file and not 0 <= at < len(self._file.page):
            found: int = ENTRY.unpack(self._file.get().pread(ENTRY.size, number * ENTRY.size))[3]
            return found
        return self.entry(number).last_offset

    def versions(self) -> Iterator[int]:
        """The version of each entry in the file."""
        data = self._file.get().pread(self._in_file * ENTRY.size, 0) if self._in_file else b""
        return (fields[0] for fields in ENTRY.iter_unpack(data[: self._in_file * ENTRY.size]))

    def last(self) -> Aborted | None:
        return self.entry(self.count - 1) if self.count else None

    @property
    def is_whole(self) -> bool:
        """True if the file does not end with a partial entry."""
        return self._whole

    def intact(self, base_offset: int, ceiling: int) -> bool:
        """True if this could be the index of a segment with offsets from ``base_offset`` up to
        ``ceiling``. Looks only at its last entry."""
        last = self.last() if self._whole else None
        if last is None:
            return self._whole
        return 0 <= last.first_offset < last.last_offset and base_offset <= last.last_offset < ceiling

    def collect(self, start: int, upto: int, found: list[tuple[int, int]]) -> bool:
        """Add the producer id and first offset of each transaction with offsets from ``start`` up to
        ``upto``, exclusive. True if later segments can have no more of them."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._last_offset(middle) < start:
                low = middle + 1
            else:
                high = middle
        for number in range(low, self.count):
            producer_id, first, _, stable = self.entry(number)
            if first < upto:
                found.append((producer_id, first))
            if stable >= upto:
                return True
        return False
