"""One segment: a file of batches, named after its first offset, and its indexes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from millstream.core.errors import IndexRebuilding, LogError
from millstream.core.kafka_errors import CORRUPT_MESSAGE
from millstream.log.segment.aborted import AbortedIndex
from millstream.log.segment.index import UNINDEXED, OffsetIndex, TimeIndex
from millstream.log.segment.scan import WINDOW, Damage, ScannedBatch, scan
from millstream.log.segment.time_search import Walk
from millstream.log.storage.files import FilePool, LazyFile, RunOnThread, rename_all
from millstream.log.storage.memory import MemoryFiles
from millstream.records.batch import HEADER_SIZE, MAGIC, NO_TIMESTAMP, PREFIX_SIZE, BatchHeader, read_header

_log = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"  # written by compaction, not yet in use
SWAP_SUFFIX = ".swap"  # about to replace older segments

_WALK = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta: the fields that a walk needs
_WALK_READ = 8192
_HEADERS_READ = 1 << 16
_MAX_INTERVALS = 64
_INTERVAL = 4096  # bytes of log between two entries of a rebuilt index


def file_name(offset: int) -> str:
    """The name of a partition's file, without suffix: an offset in twenty digits."""
    return f"{offset:020d}"


def offset_of(name: str) -> int:
    """The offset that a file is named after, or -1 if the name is not one of the log's."""
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isdigit() else -1


class Found(NamedTuple):
    """A batch's position and offsets."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class Segment:
    """A segment. Only the last one of a log is written to; sealed ones open their files when needed."""

    __slots__ = (
        "_mark",
        "_pool",
        "_verified",
        "aborted",
        "base_offset",
        "bytes_since_index",
        "damage",
        "deleted",
        "first_timestamp",
        "gaps",
        "index",
        "is_rebuilding",
        "jitter_ms",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "path",
        "size",
        "times",
        "trusted_from",
        "written",
    )

    def __init__(
        self,
        pool: FilePool,
        path: str,
        base_offset: int,
        *,
        size: int = 0,
        index_size: int = 0,
        times_size: int = 0,
        aborted_size: int = 0,
        gaps: bool = False,
        stage: str = "",
    ) -> None:
        """``path`` is without a suffix. ``stage`` is the extra suffix of its files while they are not in
        their final place."""
        self._pool = pool
        self.path = path
        self.base_offset = base_offset
        self.gaps = gaps  # compaction may have left offsets that are in no batch
        self.size = size  # of the log file, including what is staged for it
        self.written = size  # of the log file
        self.log = LazyFile(pool, path + LOG_SUFFIX + stage)
        self.index = OffsetIndex(pool, path + INDEX_SUFFIX + stage, base_offset, index_size)
        self.times = TimeIndex(pool, path + TIME_INDEX_SUFFIX + stage, base_offset, times_size)
        self.aborted = AbortedIndex(pool, path + ABORTED_SUFFIX + stage, aborted_size)
        self.bytes_since_index = 0
        self.max_timestamp = None if size else NO_TIMESTAMP  # None: not read yet, see largest_timestamp()
        self.max_timestamp_offset = -1
        self.first_timestamp: int | None = None  # largest of the first batch; segment.ms counts from it
        self.jitter_ms = 0
        self.damage: list[Damage] = []
        self.deleted = False
        # This process checked the batches from here on, when they were appended or recovered. Earlier
        # ones are checked when they are first read.
        self.trusted_from = size
        self._verified: list[tuple[int, int, int]] = []  # start, end, next offset
        self.is_rebuilding = False  # True while its indexes are rebuilt elsewhere
        self.commit()

    def added(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Update the bookkeeping for a batch at ``position``. The caller adds to ``size``."""
        if self.max_timestamp is None or max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > interval:
            self.index.append(last_offset, position)
            if self.max_timestamp is not None and self.max_timestamp >= 0:
                self.times.append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def commit(self) -> None:
        """Note that everything added is in the file: look-ups use it, and ``undo`` returns to it."""
        self.written = self.size
        self.index.written = self.index.count
        self.times.written = self.times.count
        self._mark = (
            self.bytes_since_index,
            self.max_timestamp,
            self.max_timestamp_offset,
            self.first_timestamp,
        )

    def undo(self) -> None:
        """Go back to the state at the last ``commit``."""
        self.size = self.written
        (self.bytes_since_index, self.max_timestamp, self.max_timestamp_offset,
         self.first_timestamp) = self._mark  # fmt: skip
        self.index.forget(self.index.written)
        self.times.forget(self.times.written)

    def largest_timestamp(self, ceiling: int) -> tuple[int, int]:
        """(timestamp, last offset of the first batch that has it) of what is written, or (-1, -1) if no
        batch has a timestamp. It comes from the last entry of the time index, which is checked on first
        use: retention deletes by it."""
        if self.max_timestamp is None:
            last = self.times.last()
            if last is not None and not self._has_time(*last, ceiling):
                self._distrust(self.times, ceiling)
            else:
                self.max_timestamp, self.max_timestamp_offset = last or (NO_TIMESTAMP, -1)
                self.commit()
        _, timestamp, offset, _ = self._mark
        assert timestamp is not None
        return timestamp, offset

    def _has_time(self, timestamp: int, offset: int, ceiling: int) -> bool:
        """True if this entry matches one of this segment's batches. A damaged batch counts as a match."""
        if not self.base_offset <= offset < ceiling:
            return False
        batch = next(self.good_batches(offset, ceiling), None)
        if batch is None or batch.header.base_offset > offset:
            return self.damage_of(offset) is not None
        return batch.header.newest_ms == timestamp and batch.header.last_offset == offset

    def _distrust(self, index: OffsetIndex | TimeIndex, ceiling: int) -> None:
        """Rebuild the indexes. Raises IndexRebuilding while that continues elsewhere."""
        if not self.is_rebuilding:
            _log.warning("%s disagrees with the log; it is rebuilt", index.path)
            self._rebuild(ceiling, _INTERVAL, self._pool.aside)
        if self.is_rebuilding:
            raise IndexRebuilding(f"{index.path} disagrees with the log and is being rebuilt; try again")

    def write_indexes(self, *, final: bool) -> None:
        """Write waiting entries to the files. ``final``: no batch follows for now, so the largest
        timestamp of all must be the last entry of the time index."""
        if final and self.max_timestamp is not None and self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset)
        self.index.write()
        self.times.write()
        self.aborted.write()

    # Finding a batch

    def locate(self, offset: int, end: int, ceiling: int) -> Found | None:
        """The first batch that ends at ``offset`` or after, before position ``end``. None if there is no
        such batch here. Raises LogError if the wanted records are known to be damaged."""
        file = self.log.get()
        while True:
            start, expected = self.anchor(offset, ceiling)
            position = start
            data, data_at = b"", 0
            while position < end:
                if self.damage and (damage := self.damage_at(position)) is not None:
                    if offset < damage.next_offset:
                        raise damaged(damage)
                    expected = damage.next_offset
                    position = damage.position + damage.size
                    continue
                at = position - data_at
                if not 0 <= at <= len(data) - _WALK.size:
                    data, data_at, at = file.pread(_WALK_READ, position), position, 0
                    if len(data) < _WALK.size:
                        break
                base, length, magic, delta = _WALK.unpack_from(data, at)
                size = length + PREFIX_SIZE
                if magic != MAGIC or size < HEADER_SIZE or position + size > end:
                    break
                if base != expected and (base < expected or not self.gaps):
                    break
                if base + delta >= offset:
                    if base > expected and self._overtakes(position + size, expected, base + delta):
                        break
                    return Found(position, size, base, base + delta)
                expected = base + delta + 1
                position += size
            else:
                if offset < ceiling and expected < ceiling:
                    raise damaged(self.report_missing(expected, ceiling))
                return None
            # Something is wrong here, or in a batch skipped on the way: the checksums show which.
            if not self.examine(start, end, ceiling):
                return None

    def _overtakes(self, following: int, expected: int, last_offset: int) -> bool:
        """True if the batch after a gap shows that the offset found before it can't be right."""
        header = self.header_at(following)
        return header is not None and expected <= header.base_offset <= last_offset

    def anchor(self, offset: int, ceiling: int) -> tuple[int, int]:
        """A batch's position and base offset, at or before the one wanted. It comes from the index, which
        is checked against the batch that it points to, and rebuilt if it is wrong."""
        for _ in range(2):
            entry = self.index.lookup(offset)
            if entry is None:
                break
            last_offset, position = entry
            damage = self.damage_at(position)
            if damage is not None:
                return damage.position, damage.first_offset
            if 0 <= position <= self.written - HEADER_SIZE:
                base, _, magic, delta = _WALK.unpack(self.log.get().pread(_WALK.size, position))
                if magic == MAGIC and base + delta == last_offset and base >= self.base_offset:
                    return position, base
            self._distrust(self.index, ceiling)
        return 0, self.base_offset

    def header_at(self, position: int) -> BatchHeader | None:
        """The header of the batch at ``position``, which the caller has from an index; None if no batch
        is there."""
        data = self.log.get().pread(HEADER_SIZE, position) if position >= 0 else b""
        if len(data) < HEADER_SIZE:
            return None
        header = read_header(data)
        return header if header.magic == MAGIC else None

    def walk(self, offset: int, ceiling: int) -> Walk:
        """A walk from the batch that holds ``offset``, for any thread to read."""
        offset = max(offset, self.base_offset)
        position, next_offset = self.anchor(offset, ceiling)
        verify_from = position if position < self.trusted_from else self.written
        return Walk(
            self.log.get(),
            self.log.path,
            self.base_offset,
            position,
            next_offset,
            offset,
            self.written,
            ceiling,
            verify_from,
            self.gaps,
            WINDOW if verify_from < self.written else _HEADERS_READ,
        )

    def has_intact_index(self) -> bool:
        """True if the offset index could belong to this log. It may be empty if all batches begin so
        early that no entry was due: a segment may be a single large batch."""
        if self.size <= UNINDEXED or not self.index.is_empty:
            return self.index.intact(self.size)
        position = 0
        while position <= UNINDEXED and position < self.size:
            header = self.header_at(position)
            if header is None or header.size < HEADER_SIZE:
                return False
            position += header.size
        return position >= self.size

    def scan(
        self,
        start: int,
        end: int,
        next_offset: int,
        ceiling: int,
        verify_from: int,
        read: int = WINDOW,
        path: str = "",
    ) -> Iterator[ScannedBatch | Damage]:
        return scan(
            self.log.get(),
            path or self.log.path,
            base_offset=self.base_offset,
            start=start,
            end=end,
            next_offset=next_offset,
            ceiling=ceiling,
            verify_from=verify_from,
            gaps=self.gaps,
            # If only headers are wanted, large batches are jumped over: don't read what nothing looks at.
            read=read if verify_from < end else _HEADERS_READ,
        )

    def good_batches(self, offset: int, ceiling: int) -> Iterator[ScannedBatch]:
        """The batches from the one that holds ``offset`` on, without damaged ones."""
        found: Found | None = None
        offset = max(offset, self.base_offset)
        while found is None:
            try:
                found = self.locate(offset, self.written, ceiling)
                if found is None:
                    return
            except IndexRebuilding:
                raise
            except LogError:
                damage = self.damage_of(offset)
                assert damage is not None
                offset = damage.next_offset
        verify_from = found.position if found.position < self.trusted_from else self.written
        for item in self.scan(found.position, self.written, found.base_offset, ceiling, verify_from):
            if isinstance(item, Damage):
                self.report(item)
            else:
                yield item

    def offset_before(self, timestamp: int, ceiling: int) -> int:
        """An offset such that all records before it are older than ``timestamp``. It comes from the time
        index, which is checked against the batch that it points to, and rebuilt if it is wrong."""
        for _ in range(2):
            entry = self.times.lookup(timestamp)
            if entry is None:
                break
            if self._has_time(*entry, ceiling):
                return entry[1]
            self._distrust(self.times, ceiling)
        return self.base_offset

    # Damage

    def damage_of(self, offset: int) -> Damage | None:
        """The damage that contains the record at ``offset``."""
        for damage in self.damage:
            if damage.first_offset <= offset < damage.next_offset:
                return damage
        return None

    def damage_at(self, position: int) -> Damage | None:
        for damage in self.damage:
            if damage.position <= position < damage.position + damage.size:
                return damage
        return None

    def examine(self, start: int, end: int, ceiling: int) -> bool:
        """Check every batch from the one at ``start`` on and report the first new damage. True if there
        is any."""
        base = _WALK.unpack(self.log.get().pread(_WALK.size, start))[0] if start else self.base_offset
        for item in self.scan(start, end, base, ceiling, start):
            if isinstance(item, Damage) and item not in self.damage:
                self.report(item)
                return True
        return False

    def report(self, damage: Damage) -> None:
        """Remember damage, and log it once."""
        if damage not in self.damage:
            self.damage.append(damage)
            self.damage.sort(key=lambda known: known.position)
            _log.error("damaged records: %s. They are not served; the rest of the log is.", damage)

    def report_missing(self, first_offset: int, next_offset: int) -> Damage:
        """Report that the file ends before the next segment begins."""
        reason = "the file ends here, before the next segment begins"
        missing = Damage(self.log.path, self.written, 0, first_offset, next_offset, reason, True)
        self.report(missing)
        return missing

    def good_until(self, found: Found, end: int, ceiling: int) -> int:
        """Check the batches from ``found`` to position ``end`` that were not checked before. Returns where
        the last good one ends; ``found.position`` if ``found`` itself is damaged, which is reported."""
        for damage in self.damage:
            if found.position < damage.position + damage.size and damage.position < end:
                end = max(damage.position, found.position)
        position, expected = found.position, found.base_offset
        stop = min(end, self.trusted_from)
        while position < stop:
            known = self._verified_to(position)
            if known is not None:
                position, expected = known
                continue
            start = position
            read = min(max(stop - start, found.size), WINDOW)
            # Up to the end of the file, so that batches appended since are found after damage.
            for item in self.scan(start, self.written, expected, ceiling, start, read):
                if isinstance(item, Damage):
                    self.report(item)
                    self._remember_verified(start, position, expected)
                    return item.position
                position = item.position + item.header.size
                expected = item.header.next_offset
                if position >= stop:
                    break
            self._remember_verified(start, position, expected)
        return end

    def _verified_to(self, position: int) -> tuple[int, int] | None:
        """The end of the checked range that contains ``position``, and the offset that comes there."""
        for start, end, next_offset in self._verified:
            if start <= position < end:
                return end, next_offset
        return None

    def _remember_verified(self, start: int, end: int, next_offset: int) -> None:
        if start >= end:
            return
        apart = []
        for known in self._verified:
            if known[1] < start or end < known[0]:
                apart.append(known)
                continue
            start = min(start, known[0])
            if known[1] > end:
                end, next_offset = known[1], known[2]
        self._verified = [(start, end, next_offset), *apart[: _MAX_INTERVALS - 1]]

    # Rebuilding the indexes

    def start_indexes(self) -> None:
        """Clear both indexes; ``added`` fills them again."""
        self.index.clear()
        self.times.clear()
        self.bytes_since_index = 0
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1

    def rebuild_indexes(self, ceiling: int) -> None:
        """Rebuild both indexes from the log, checking every batch on the way."""
        self._rebuild(ceiling, _INTERVAL, lambda work, done: done(work()))

    def _rebuild(self, ceiling: int, interval: int, aside: RunOnThread) -> None:
        """Rebuild both from what is written now. ``done`` puts them in place, on the log's thread."""
        file, end = self.log.get(), self.written
        entries, times = self.index.written, self.times.written

        def build() -> tuple[Segment, list[Damage]]:
            # Builds a segment of the same batches in memory, for the entries of its indexes.
            built = Segment(FilePool(MemoryFiles()), "", self.base_offset, gaps=self.gaps)
            built.log.file = file
            damage = []
            for item in built.scan(0, end, self.base_offset, ceiling, 0, path=self.log.path):
                if isinstance(item, Damage):
                    damage.append(item)
                    continue
                header = item.header
                built.added(item.position, header.size, header.last_offset, header.newest_ms, interval)
            if built.max_timestamp is not None and built.max_timestamp >= 0:
                built.times.append(built.max_timestamp, built.max_timestamp_offset)
            return built, damage

        def done(outcome: tuple[Segment, list[Damage]] | None) -> None:
            self.is_rebuilding = False
            if outcome is None or self.deleted:
                return
            built, damage = outcome
            for each in damage:
                self.report(each)
            self.index.replace(built.index.entries(), entries)
            self.times.replace(built.times.entries(), times)
            self.index.write()
            self.times.write()
            self._take_newest(built.max_timestamp or NO_TIMESTAMP, built.max_timestamp_offset)

        self.is_rebuilding = True
        aside(build, done)

    def _take_newest(self, timestamp: int, offset: int) -> None:
        """Take the largest timestamp from the log. Batches appended since may have a larger one."""
        since, largest, _, first = self._mark
        appended = self.trusted_from < self.size
        if largest is None or timestamp > largest or not appended:
            self._mark = since, timestamp, offset, first
        if self.max_timestamp is None or timestamp > self.max_timestamp or not appended:
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset

    # Its files

    def rolls_from(self, now_ms: int) -> int:
        """The time from which segment.ms counts: the first batch's, as in Kafka; now if it has none."""
        if self.first_timestamp is None:
            header = self.header_at(0)
            self.first_timestamp = header.max_timestamp if header else NO_TIMESTAMP
        return self.first_timestamp if self.first_timestamp >= 0 else now_ms

    def newest_ms(self, ceiling: int) -> int:
        """The time of the newest record, or of the file's last write if the records carry none. If
        compaction left no record, the last batch's header still has the time."""
        largest = max(self.largest_timestamp(ceiling)[0], self.max_timestamp or NO_TIMESTAMP)  # staged, too
        if largest < 0 and self.gaps:
            last = self.header_at(self.written - HEADER_SIZE)
            if last is not None and last.size == HEADER_SIZE:
                largest = last.max_timestamp
        return largest if largest >= 0 else self._pool.files.modified_ms(self.log.path)

    def sync(self) -> None:
        """Sync the log file, from any thread. Its descriptor may have been closed since the write. If a
        write failed and no descriptor has reported it yet, Linux reports it to the next one opened."""
        try:
            file = self.log.file or self._pool.files.open(self.log.path)
        except FileNotFoundError:
            if self.deleted:
                return
            raise
        file.sync()

    def sync_sealed(self) -> None:
        """Sync a sealed segment's log file and its index of aborted transactions, which only a whole scan
        could rebuild."""
        self.sync()
        try:
            self.aborted.sync()
        except FileNotFoundError:
            if not self.deleted:
                raise

    def move(self, old: str, new: str) -> None:
        """Rename its existing files from one stage to the next. The log comes last: the others belong to
        it."""
        files = self._pool.files
        for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
            if files.exists(self.path + suffix + old):
                files.rename(self.path + suffix + old, self.path + suffix + new)
        self.stand_at(lambda suffix: new)

    def stand_at(self, stage: Callable[[str], str]) -> None:
        """Set the extra suffix of each file's name, given by a function of its normal suffix."""
        self.log.path = self.path + LOG_SUFFIX + stage(LOG_SUFFIX)
        self.index.path = self.path + INDEX_SUFFIX + stage(INDEX_SUFFIX)
        self.times.path = self.path + TIME_INDEX_SUFFIX + stage(TIME_INDEX_SUFFIX)
        self.aborted.path = self.path + ABORTED_SUFFIX + stage(ABORTED_SUFFIX)

    def delete_log(self) -> list[str]:
        """Rename the log file as deleted; returns its new name. Readers that have it open continue."""
        self.deleted = True  # set first: a sync may be looking for the file
        self.let_go()
        return self._rename((LOG_SUFFIX,))

    def delete_indexes(self) -> list[str]:
        """Rename the indexes as deleted, once their log is gone."""
        return self._rename(INDEX_SUFFIXES)

    def _rename(self, suffixes: tuple[str, ...]) -> list[str]:
        return rename_all(self._pool.files, [self.path + suffix for suffix in suffixes], DELETED_SUFFIX)

    def let_go(self) -> None:
        """Mark the segment as deleted and close its files, unless something else still uses them: a
        deleted file takes space while it is open."""
        self.deleted = True
        self.log.let_go()
        self.index.let_go()
        self.times.let_go()
        self.aborted.let_go()


def damaged(damage: Damage) -> LogError:
    """The error for readers of damaged records."""
    return LogError(CORRUPT_MESSAGE, f"damaged records: {damage}; continue at offset {damage.next_offset}")
