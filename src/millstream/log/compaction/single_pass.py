"""One pass of compaction over a log: what it reads, and the segments that it writes beside the old ones.

1. From the first dirty offset on, the pass notes the keys of the records with the newest offset of each,
   as many as fit in the memory. The pass covers the log up to where the memory was full; the next one
   continues there.
2. It reads all segments from the start of the log up to that offset again. What ``compaction_batches``
   keeps is written to new segments, with indexes, under names that end with ``.cleaned``. Small
   neighbouring segments become one. A segment that does not change is not written.

A pass reads only sealed, synced segments, which nothing changes, and nothing else reads its output. So it
can run in a separate process (``compaction_child``). The process that started it swaps the new segments
in (``compaction``), one group after the other, as they are reported.

Damage ends the pass before any of that group is reported: no record is dropped because of a newer one
that can't be read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.core.errors import CorruptBatch, MillstreamError
from millstream.log.compaction.batches import BatchCleaner, CleanedTransactions, emptied, uncompressed
from millstream.log.segment.index import OffsetIndex, TimeIndex
from millstream.log.segment.scan import MAX_RELATIVE_OFFSET, WINDOW, Damage
from millstream.log.segment.segment import (
    ABORTED_SUFFIX,
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)
from millstream.log.storage.files import FilePool, Files
from millstream.log.transactions import Aborted
from millstream.records.batch import BatchHeader, Buffer
from millstream.records.keys.newest import SLOT_BYTES, LatestOffsets

_MAX_POSITION = 0x7FFFFFFF


class DamagedLog(MillstreamError):
    """A segment contains bytes that are not a batch, or not the batch that was written."""


@dataclass(frozen=True, slots=True)
class PassInput:
    """The input of a pass: plain numbers and text, so that it can be sent to another process."""

    path: str  # the log's directory
    bases: list[int]  # of the segments that may be cleaned, oldest first, without empty ones
    sizes: list[int]  # of their log files
    ceilings: list[int]  # of the segments: all their offsets are below
    dirty_from: int  # the first offset whose keys no pass has noted yet
    gaps_below: int  # segments that begin before this were compacted before
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    memory: int  # bytes for the keys
    # Producers that are still known, by id: epoch and last offset of the last batch, -1 for only a marker.
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    # Aborted transactions whose markers are in later segments: producer id and first offset.
    aborted: list[tuple[int, int]] = field(default_factory=list)


class SegmentGroup(NamedTuple):
    """The segments that were read, and the sizes of the files of the synced segment written for them."""

    bases: list[int]
    is_changed: bool  # False: the group's only segment stays unchanged, and nothing was written
    size: int
    index_size: int
    times_size: int
    aborted_size: int


class PassResult(NamedTuple):
    """The result of a completed pass."""

    clean_to: int  # the next pass notes keys from here on
    keys: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    keyless: int  # records removed because they had no key
    unreadable: int  # batches kept because their records can't be read


Pace = Callable[[int], None]  # gets the number of bytes read or written; blocks to slow the pass down


_Events = Generator[SegmentGroup | PassResult, None, None]


def compact(files: Files, job: PassInput, pace: Pace = lambda size: None) -> _Events:
    """Run a pass. Raises DamagedLog, or OSError."""
    yield from _Pass(files, job, pace).run()


class _Pass:
    def __init__(self, files: Files, job: PassInput, pace: Pace) -> None:
        self._files = files
        self._job = job
        self._pace = pace
        self._pool = FilePool(files)
        self._listing = files.listing(job.path)
        self._segments = [self._open(base, size) for base, size in zip(job.bases, job.sizes, strict=True)]
        self._ceilings = dict(zip(job.bases, job.ceilings, strict=True))
        self._before = self._after = 0  # bytes
        self._records_before = self._records_after = 0
        self._keyless = self._unreadable = 0

    def _open(self, base: int, size: int) -> Segment:
        name = file_name(base)
        return Segment(
            self._pool,
            f"{self._job.path}/{name}",
            base,
            size=size,
            index_size=self._listing.get(name + INDEX_SUFFIX, 0),
            times_size=self._listing.get(name + TIME_INDEX_SUFFIX, 0),
            aborted_size=self._listing.get(name + ABORTED_SUFFIX, 0),
            gaps=base < self._job.gaps_below,
        )

    def run(self) -> Iterator[SegmentGroup | PassResult]:
        job = self._job
        latest, clean_to = self._note_keys()
        cleaner = BatchCleaner(
            latest,
            latest_offset=clean_to - 1,
            transactions=self._transactions(job.bases[0]),
            producers=job.producers,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        yield from self._clean([s for s in self._segments if s.base_offset < clean_to], cleaner)
        yield PassResult(
            clean_to,
            latest.count,
            self._before,
            self._after,
            self._records_before,
            self._records_after,
            self._keyless,
            self._unreadable,
        )

    # The keys

    def _note_keys(self) -> tuple[LatestOffsets, int]:
        """Note the keys from the first dirty offset on. Returns them, and the offset up to which they are
        complete."""
        job = self._job
        dirty = [
            segment for segment in self._segments if self._ceilings[segment.base_offset] > job.dirty_from
        ]
        offsets = job.ceilings[-1] - job.dirty_from
        latest = LatestOffsets(min(job.memory // SLOT_BYTES, offsets))
        transactions = self._transactions(dirty[0].base_offset)
        clean_to = job.dirty_from
        for segment in dirty:
            for header, data in self._batches(segment):
                try:
                    if header.is_control:
                        transactions.is_spent(header, data)
                    elif not transactions.is_aborted(header) and header.next_offset > job.dirty_from:
                        body = uncompressed(header, data)
                        if latest.count == 0 and header.record_count > latest.limit:
                            latest = LatestOffsets(header.record_count)  # every pass has to make progress
                        if not latest.note(
                            body,
                            header.record_count,
                            header.base_offset,
                            header.last_offset_delta,
                            job.dirty_from,
                        ):
                            return latest, clean_to
                except CorruptBatch:
                    pass  # the batch stays unchanged: see BatchCleaner
                clean_to = max(clean_to, header.next_offset)
            clean_to = max(clean_to, self._ceilings[segment.base_offset])
        return latest, clean_to

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every batch of a segment, checked."""
        file = segment.log.get()
        base = segment.base_offset
        for item in segment.scan(0, segment.size, base, self._ceilings[base], 0):
            if isinstance(item, Damage):
                raise DamagedLog(str(item))
            self._pace(item.header.size)
            yield item.header, file.pread(item.header.size, item.position)

    def _transactions(self, start: int) -> CleanedTransactions:
        """The transactions whose markers are at ``start`` or later."""
        aborted: list[tuple[int, int, Aborted | None]] = [
            (first, producer_id, None) for producer_id, first in self._job.aborted
        ]
        for segment in self._segments:
            entries = (segment.aborted.entry(number) for number in range(segment.aborted.count))
            aborted += [(e.first_offset, e.producer_id, e) for e in entries if e.last_offset >= start]
        return CleanedTransactions(aborted)

    # The segments

    def _clean(self, segments: list[Segment], cleaner: BatchCleaner) -> Iterator[SegmentGroup]:
        """Write what is kept of the segments, as many into one as fit by the size of what is kept so far."""
        group: list[Segment] = []
        for number, segment in enumerate(segments):
            if not group:
                out = _Output(self._files, self._pool, segment, self._job.index_interval_bytes, self._pace)
                cleaner.transactions.kept.clear()
            group.append(segment)
            following = segments[number + 1] if number + 1 < len(segments) else None
            if self._clean_segment(segment, following, cleaner, out):
                yield self._finished(group, out, cleaner.transactions.kept)
                group = []

    def _clean_segment(
        self, segment: Segment, following: Segment | None, cleaner: BatchCleaner, out: _Output
    ) -> bool:
        """Write what is kept of a segment. True if it is the last one of its group."""
        position = 0
        ends = False
        for header, data in self._batches(segment):
            left = cleaner.clean(header, data)
            if position + header.size == segment.size:
                more = 0 if left.data is None else len(left.data)
                ends = following is None or not self._fits(out.segment, more, segment, following)
                if ends and left.data is None:
                    left = emptied(header, data)._replace(keyless=left.keyless)
            if left.is_changed:
                out.put(left.data, header.last_offset, left.newest_ms)
            else:
                out.copy(segment, position, header.size, header.last_offset, left.newest_ms)
            position += header.size
            self._records_before += header.record_count
            self._records_after += left.records
            self._keyless += left.keyless
            self._unreadable += left.is_unreadable
        return ends

    def _fits(self, out: Segment, more: int, last: Segment, following: Segment) -> bool:
        """True if ``following`` fits after ``last`` in the segment ``out`` with ``more`` bytes added."""
        job = self._job
        return (
            out.size + more + following.size <= job.segment_bytes
            and _index_bytes(out.index, following.index) <= job.segment_index_bytes
            and _index_bytes(out.times, following.times) <= job.segment_index_bytes
            and self._ceilings[following.base_offset] - out.base_offset <= MAX_RELATIVE_OFFSET
            and self._ceilings[last.base_offset] == following.base_offset
        )

    def _finished(self, group: list[Segment], out: _Output, aborted: list[Aborted]) -> SegmentGroup:
        before = sum(segment.size for segment in group)
        is_changed = len(group) > 1 or out.is_changed
        self._before += before
        self._after += out.segment.size if is_changed else before
        bases = [segment.base_offset for segment in group]
        if not is_changed:
            out.discard()
            return SegmentGroup(bases, False, 0, 0, 0, 0)
        return SegmentGroup(bases, True, *out.finish(aborted))


class _Output:
    """The new segment of a group."""

    def __init__(self, files: Files, pool: FilePool, first: Segment, interval: int, pace: Pace) -> None:
        self._files = files
        self._interval = interval
        self._pace = pace
        self.segment = Segment(pool, first.path, first.base_offset, gaps=True, stage=CLEANED_SUFFIX)
        self.segment.start_indexes()
        self._file = self.segment.log.get(create=True)
        self._file.truncate(0)
        self._source: tuple[Segment, int, int] | None = None  # bytes still to copy: from, start and end
        self._staged = bytearray()
        self.is_changed = False

    def put(self, data: Buffer | None, last_offset: int, newest_ms: int) -> None:
        """Replace a batch, or remove it."""
        self.is_changed = True
        if data is not None:
            self._copy_source()
            self._staged += data
            self._added(len(data), last_offset, newest_ms)
            if len(self._staged) >= WINDOW:
                self._write_staged()

    def copy(self, source: Segment, position: int, size: int, last_offset: int, newest_ms: int) -> None:
        """Keep a batch unchanged. Nothing is written while all batches are."""
        if self._source is not None and self._source[0] is source and self._source[2] == position:
            self._source = source, self._source[1], position + size
        else:
            self._copy_source()
            self._source = source, position, position + size
        self._added(size, last_offset, newest_ms)

    def _added(self, size: int, last_offset: int, newest_ms: int) -> None:
        segment = self.segment
        if segment.size + size > _MAX_POSITION:
            raise OSError(f"{segment.path}: the compacted segment would be larger than a segment can be")
        segment.added(segment.size, size, last_offset, newest_ms, self._interval)
        segment.size += size
        if segment.index.page_waits:
            segment.write_indexes(final=False)

    def _copy_source(self) -> None:
        if self._source is None:
            return
        self._write_staged()
        source, start, end = self._source
        self._source = None
        while start < end:
            data = source.log.get().pread(min(WINDOW, end - start), start)
            if not data:
                raise OSError(f"{source.log.path} ends at byte {start}, before {end}")
            self._write(data)
            start += len(data)

    def _write_staged(self) -> None:
        if self._staged:
            self._write(self._staged)
            self._staged.clear()

    def _write(self, data: Buffer) -> None:
        self._file.pwrite(data, self.segment.written)
        self.segment.written += len(data)
        self._pace(len(data))

    def finish(self, aborted: list[Aborted]) -> tuple[int, int, int, int]:
        """Write and sync everything. Returns the sizes of the files."""
        segment = self.segment
        self._copy_source()
        self._write_staged()
        # The file is always created, so that it replaces the old segment's file.
        self._files.open(segment.aborted.path, create=True).truncate(0)
        for entry in aborted:
            segment.aborted.append(entry)
        segment.write_indexes(final=True)
        for path in (segment.index.path, segment.times.path, segment.aborted.path):
            self._files.open(path).sync()
        self._file.sync()
        self._files.sync_directory(segment.path.rpartition("/")[0])
        sizes = (segment.index.path, segment.times.path, segment.aborted.path)
        index_size, times_size, aborted_size = (self._files.open(path).size() for path in sizes)
        return segment.size, index_size, times_size, aborted_size

    def discard(self) -> None:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX):
            self._files.remove(self.segment.path + suffix + CLEANED_SUFFIX)


def _index_bytes(*indexes: OffsetIndex | TimeIndex) -> int:
    return sum(index.count * index.ENTRY.size for index in indexes)
