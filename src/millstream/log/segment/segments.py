"""The segments of one log, oldest first: finds the one that holds an offset or a time, and reads from it."""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from millstream.core.errors import IndexRebuilding, LogError
from millstream.log.segment.segment import Segment
from millstream.log.segment.time_search import NOWHERE, OffsetAndTimestamp, Search, first_in, newest_in
from millstream.log.storage.files import File
from millstream.records.batch import HEADER_SIZE


class LogSlice:
    """The location of batches, not their bytes. It stays readable while it is held, even if its segment
    is deleted."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File | None, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 if the bytes are in memory, or there are none."""
        return -1 if self.file is None else self.file.fileno()

    def bytes(self) -> bytes:
        return b"" if self.file is None else self.file.pread(self.size, self.position)

    def peek(self, start: int, size: int) -> builtins.bytes:
        """Some of the bytes, from ``start`` in the slice on."""
        if self.file is None:
            return b""
        return self.file.pread(min(size, self.size - start), self.position + start)

    def part(self, start: int, size: int) -> LogSlice:
        return LogSlice(self.file, self.position + start, size)


NOTHING = LogSlice(None, 0, 0)


class Segments:
    """A log's segments. In the methods, ``end`` is the end of what is written to the log's files."""

    __slots__ = ("_bases", "_segments", "last")

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        if segments:
            self.last = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def size_from(self, offset: int) -> int:
        """The number of bytes from the last indexed batch that ends before ``offset``."""
        number = max(bisect_right(self._bases, offset) - 1, 0)
        segment = self._segments[number]
        indexed = segment.index.lookup(offset - 1)
        later = sum(each.size for each in islice(self._segments, number + 1, None))
        return later + segment.size - (indexed[1] if indexed is not None else 0)

    def append(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.last = segment

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the ``count`` oldest segments and return them. The last segment is never among them."""
        removed = self._segments[:count]
        self._segments = self._segments[count:]
        self._bases = self._bases[count:]
        return removed

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace consecutive segments with ``new``. The last segment is never among them."""
        number = self._segments.index(old[0])
        self._segments[number : number + len(old)] = [new]
        self._bases[number : number + len(old)] = [new.base_offset]

    def aborted(self, start: int, upto: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions with offsets from ``start`` up to
        ``upto``, exclusive. Their markers are in the segment that holds ``start``, or later."""
        found: list[tuple[int, int]] = []
        for segment in islice(self._segments, max(bisect_right(self._bases, start) - 1, 0), None):
            if segment.aborted.count and segment.aborted.collect(start, upto, found):
                break
        return found

    def newest_abort(self) -> int:
        """The last offset of the newest aborted transaction; -1 if there is none."""
        newest = next((s.aborted.last() for s in reversed(self._segments) if s.aborted.count), None)
        return newest.last_offset if newest else -1

    def offset_after(self, offset: int, part: LogSlice, *, end: int) -> int:
        """An offset that ``part``, which was read from ``offset``, does not reach. It is close to the end
        of ``part``, not exact: the index is sparse."""
        for number in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._segments)):
            segment = self._segments[number]
            if segment.log.file is part.file:
                after = segment.index.offset_at(part.position + part.size)
                return self.ceiling(number, end) if after is None else after
        return end

    def ceiling(self, number: int, end: int) -> int:
        """The upper bound of segment ``number``: all its offsets are below."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else end

    def read(
        self, offset: int, max_bytes: int, limit: int, at_least_one: bool, *, end: int, stop: int | None
    ) -> LogSlice:
        """Batches, starting with the one that holds ``offset``, all below ``limit``. ``stop`` is the
        position of ``limit`` in the last segment, if the caller knows it.

        Batches that compaction emptied are skipped as long as others follow: some readers (librdkafka)
        take a response without records for one that was too small."""
        number = max(bisect_right(self._bases, offset) - 1, 0)
        emptied = NOTHING
        while number < len(self._segments):
            segment = self._segments[number]
            ceiling = self.ceiling(number, end)
            found = segment.locate(offset, segment.written, ceiling)
            if found is None:
                number += 1
                continue
            if found.base_offset >= limit or (found.size > max_bytes and not at_least_one):
                return emptied
            if segment.gaps and found.size == HEADER_SIZE:
                emptied = LogSlice(segment.log.get(), found.position, found.size)
                offset = found.last_offset + 1
                continue
            if limit >= ceiling:
                until = segment.written
            elif stop is not None and segment is self.last:
                until = stop
            else:
                until = self._position_of(segment, limit, ceiling)
            until = min(until, found.position + max(max_bytes, found.size))
            good = segment.good_until(found, until, ceiling)
            if good > found.position:
                return LogSlice(segment.log.get(), found.position, good - found.position)
            # Damaged after all. The next look-up knows whether the damage includes the wanted offset.
        return emptied

    def _position_of(self, segment: Segment, limit: int, ceiling: int) -> int:
        """The position in a segment at which a reader limited to offsets below ``limit`` must stop."""
        try:
            found = segment.locate(limit, segment.written, ceiling)
        except IndexRebuilding:
            raise
        except LogError:
            damage = segment.damage_of(limit)
            return damage.position if damage else segment.written
        return found.position if found else segment.written

    # By time

    def first_at(self, timestamp: int, start: int, *, end: int) -> Search[OffsetAndTimestamp | None]:
        """(offset, timestamp) of the first record from ``start`` on with that timestamp or a later one."""
        for segment, ceiling in self._as_now(end):
            if segment.deleted or ceiling <= start or segment.largest_timestamp(ceiling)[0] < timestamp:
                continue
            walk = segment.walk(max(start, segment.offset_before(timestamp, ceiling)), ceiling)
            found, damage = yield partial(first_in, walk, timestamp, start)
            for each in damage:
                segment.report(each)
            if found is not None:
                return found  # type: ignore[no-any-return]
        return None

    def newest(self, start: int, *, end: int) -> Search[OffsetAndTimestamp]:
        """(offset, timestamp) of the first record from ``start`` on that has the largest timestamp."""
        best = NOWHERE
        for segment, ceiling in self._as_now(end):
            if segment.deleted or ceiling <= start:
                continue
            largest, offset = segment.largest_timestamp(ceiling)
            if largest > best[1]:
                near, whole = segment.walk(max(offset, start), ceiling), segment.walk(start, ceiling)
                found, damage = yield partial(newest_in, near, whole, largest, start)
                for each in damage:
                    segment.report(each)
                best = max(best, found, key=lambda found: found[1])
        return best

    def _as_now(self, end: int) -> list[tuple[Segment, int]]:
        """Segments and their ceilings at this moment: a search may take long, and the segments may change
        meanwhile."""
        return [(segment, self.ceiling(number, end)) for number, segment in enumerate(self._segments)]
