"""A segment's two sparse indexes, in Kafka's formats, derived from the log.

    .index      4  offset relative to the segment's base: the last offset of the batch at that position
                4  position of that batch in the .log file
    .timeindex  8  the largest timestamp of any batch so far
                4  relative offset: the last offset of the first batch that has that timestamp

A lost or wrong index is rebuilt from the log. Every look-up is checked against the batch that it points to.

Entries of batches that are only staged are included. ``written`` counts the entries whose batches are in
the log's file, and look-ups use only those. New entries wait in memory and are written to the file a page
at a time. A look-up reads at most one page of the file, after a few single entries, and caches it for the
next look-up nearby.
"""

from __future__ import annotations

from struct import Struct

from millstream.log.storage.files import FilePool, LazyFile
from millstream.records.batch import NO_TIMESTAMP

UNINDEXED = 64 * 1024  # walking a log up to this size is as fast as building its index
_PAGE = 512  # entries read at once, and the most that wait in memory


class SparseIndex:
    """Entries in ascending order of their first field."""

    __slots__ = (
        "_entry",
        "_file",
        "_in_file",
        "_page",
        "_page_first",
        "_pending",
        "_whole",
        "base_offset",
        "count",
        "written",
    )

    def __init__(self, pool: FilePool, path: str, base_offset: int, entry: Struct, size: int) -> None:
        self._file = LazyFile(pool, path)
        self._entry = entry
        self.base_offset = base_offset
        self._in_file = size // entry.size
        self._whole = size % entry.size == 0
        self._pending = bytearray()
        self._page_first = 0  # number of the first entry on the file's cached page
        self.count = self._in_file
        self.written = self._in_file  # entries whose batches are in the log's file

    @property
    def path(self) -> str:
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def entry(self, number: int) -> tuple[int, int]:
        """The raw fields of entry ``number``."""
        size = self._entry.size
        if number >= self._in_file:
            found = self._entry.unpack_from(self._pending, (number - self._in_file) * size)
        else:
            found = self._entry.unpack(self._file.get().pread(size, number * size))
        return found[0], found[1]

    def push(self, first: int, second: int) -> None:
        self._pending += self._entry.pack(first, second)
        self.count += 1

    def find(self, key: int) -> int:
        """The number of the last entry of a written batch whose first field is at most ``key``; -1 if
        there is none."""
        return min(self._find(key), self.written - 1)

    def _find(self, key: int) -> int:
        size = self._entry.size
        if self._pending and self._entry.unpack_from(self._pending)[0] <= key:
            return self._in_file + self._search(self._pending, 0, len(self._pending) // size, key)
        if self._in_file == 0:
            return -1
        page = self._file.page
        if not (page and self._entry.unpack_from(page)[0] <= key < self._last_of_page()):
            page = self._load_page(key)
        found = self._search(page, 0, len(page) // size, key)
        return self._page_first + found if found >= 0 else -1

    def _last_of_page(self) -> int:
        last: int = self._entry.unpack_from(self._file.page, len(self._file.page) - self._entry.size)[0]
        return last

    def _load_page(self, key: int) -> bytes:
        size = self._entry.size
        file = self._file.get()
        low, high = 0, self._in_file
        while high - low > _PAGE:
            middle = (low + high) // 2
            if self._entry.unpack(file.pread(size, middle * size))[0] <= key:
                low = middle
            else:
                high = middle
        self._page_first = low
        # As much as fits: a reader that continues from here finds the next entries in it too.
        self._file.page = file.pread(min(_PAGE, self._in_file - low) * size, low * size)
        return self._file.page

    def _search(self, buffer: bytes | bytearray, low: int, high: int, key: int) -> int:
        unpack_from, size = self._entry.unpack_from, self._entry.size
        while low < high:
            middle = (low + high) // 2
            if unpack_from(buffer, middle * size)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    @property
    def is_empty(self) -> bool:
        """True if there are no entries, and nothing else in the file."""
        return self._whole and self.count == 0

    @property
    def page_waits(self) -> bool:
        return len(self._pending) >= _PAGE * self._entry.size

    def write(self) -> None:
        """Write the waiting entries to the file, creating it if needed."""
        file = self._file.get(create=True)
        if self._pending:
            file.pwrite(self._pending, self._in_file * self._entry.size)
            self._in_file = self.count
            self._pending.clear()

    def sync(self) -> None:
        self._file.get(create=True).sync()

    def forget(self, count: int) -> None:
        """Drop the entries from ``count`` on."""
        if count >= self.count:
            return
        if count >= self._in_file:
            del self._pending[(count - self._in_file) * self._entry.size :]
        else:
            self._pending.clear()
            self._file.get(create=True).truncate(count * self._entry.size)
            self._in_file = count
            self._file.page = b""
        self.count = count
        self.written = min(self.written, count)

    def replace(self, entries: bytes, kept_from: int) -> None:
        """Replace the entries before number ``kept_from`` with these. Later entries stay if they come
        after the new ones."""
        size = self._entry.size
        waiting = self._in_file
        kept = self._file.get(create=True).pread((waiting - kept_from) * size, kept_from * size)
        kept += bytes(self._pending[max(0, kept_from - waiting) * size :])
        later = len(kept) // size
        if entries:
            newest = self._entry.unpack_from(entries, len(entries) - size)[0]
            while kept and self._entry.unpack_from(kept)[0] <= newest:
                kept = kept[size:]
        unwritten = self.count - self.written
        self.clear()
        self._file.get().pwrite(entries, 0)
        self._in_file = len(entries) // size
        self._pending += kept
        self.count = self._in_file + len(kept) // size
        self.written = max(self._in_file, self.count - min(unwritten, later))

    def let_go(self) -> None:
        """Close the file, unless something else still uses it."""
        self._file.let_go()

    def clear(self) -> None:
        """Drop all entries, and anything else in the file."""
        self._pending.clear()
        self._file.get(create=True).truncate(0)
        self._in_file = self.count = self.written = 0
        self._file.page = b""

    def entries(self) -> bytes:
        """The entries that wait to be written."""
        return bytes(self._pending)


class OffsetIndex(SparseIndex):
    """Maps an offset to a position in the log at or before it."""

    __slots__ = ()
    ENTRY = Struct(">ii")

    def __init__(self, pool: FilePool, path: str, base_offset: int, size: int = 0) -> None:
        super().__init__(pool, path, base_offset, self.ENTRY, size)

    def append(self, last_offset: int, position: int) -> None:
        self.push(last_offset - self.base_offset, position)

    def intact(self, log_size: int) -> bool:
        """True if this could be the index of a log of that size. Looks only at its last entry."""
        if not self._whole or not self.count:
            return self._whole and log_size <= UNINDEXED
        relative, position = self.entry(self.count - 1)
        return relative >= 0 and 0 <= position < log_size

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """(last offset, position) of the last indexed batch that ends at or before ``offset``."""
        number = self.find(offset - self.base_offset)
        if number < 0:
            return None
        relative, position = self.entry_near(number)
        return self.base_offset + relative, position

    def entry_near(self, number: int) -> tuple[int, int]:
        """Like ``entry``, but uses the cached page if it holds the entry."""
        start = (number - self._page_first) * 8
        if number < self._in_file and 0 <= start <= len(self._file.page) - 8:
            found = self._entry.unpack_from(self._file.page, start)
            return found[0], found[1]
        return self.entry(number)

    def offset_at(self, position: int) -> int | None:
        """An offset that no batch before ``position`` reaches; None if no later batch is indexed."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry_near(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.base_offset + self.entry_near(low)[0] if low < self.count else None


class TimeIndex(SparseIndex):
    """Maps a timestamp to the offset at which to start searching for it."""

    __slots__ = ("_newest",)
    ENTRY = Struct(">qi")

    def __init__(self, pool: FilePool, path: str, base_offset: int, size: int = 0) -> None:
        super().__init__(pool, path, base_offset, self.ENTRY, size)
        self._newest: int | None = None  # the last entry's timestamp, once it is known

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry. Timestamps must grow: one that is not larger than the last is left out."""
        if self._newest is None:
            self._newest = self.entry(self.count - 1)[0] if self.count else NO_TIMESTAMP
        if timestamp > self._newest:
            self.push(timestamp, offset - self.base_offset)
            self._newest = timestamp

    def forget(self, count: int) -> None:
        super().forget(count)
        self._newest = None

    def clear(self) -> None:
        super().clear()
        self._newest = None

    def intact(self, log_size: int) -> bool:
        """True if this could be the index of a log of that size. Every log that has a record has an entry."""
        if not self._whole or not self.count:
            return self._whole and log_size == 0
        timestamp, relative = self.entry(self.count - 1)
        return timestamp >= 0 and relative >= 0

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry at or before ``timestamp``."""
        number = self.find(timestamp)
        if number < 0:
            return None
        found, relative = self.entry(number)
        return found, self.base_offset + relative

    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        if self.count == 0:
            return None
        timestamp, relative = self.entry(self.count - 1)
        return timestamp, self.base_offset + relative
