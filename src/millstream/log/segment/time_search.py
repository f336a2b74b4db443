"""Searches for a record by its time, in steps; the long ones may run in another thread.

A search is a generator. Its own part is short and belongs to the log's thread: it asks the indexes where
to begin. It yields walks over a segment's batches. A walk may be as long as the segment, because records
may have any timestamps in any order. A walk only reads a file that it holds, so any thread may call it;
its result is sent back into the search. ``run_here`` runs everything in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, TypeVar

from millstream.core.errors import CorruptBatch
from millstream.log.segment.scan import Damage, ScannedBatch, scan
from millstream.log.storage.files import File
from millstream.records.build import read_records

_LOOKED_THROUGH = 2 * 1024 * 1024  # bytes of records decompressed at most to find one by its time

T = TypeVar("T")
Search = Generator[Callable[[], Any], Any, T]
OffsetAndTimestamp = tuple[int, int]  # offset and timestamp

NOWHERE: OffsetAndTimestamp = (-1, -1)


class Walk(NamedTuple):
    """Reads the batches of a segment, from one at or before ``offset`` to the end of what was written
    when the walk was created."""

    file: File
    path: str
    base_offset: int
    position: int
    next_offset: int  # of the batch at ``position``
    offset: int
    end: int
    ceiling: int
    verify_from: int
    gaps: bool
    read: int

    def batches(self, damage: list[Damage]) -> Iterator[ScannedBatch]:
        for item in scan(
            self.file,
            self.path,
            base_offset=self.base_offset,
            start=self.position,
            end=self.end,
            next_offset=self.next_offset,
            ceiling=self.ceiling,
            verify_from=self.verify_from,
            gaps=self.gaps,
            read=self.read,
        ):
            if isinstance(item, Damage):
                damage.append(item)
            elif item.header.last_offset >= self.offset:
                yield item

    def offsets_and_timestamps(self, batch: ScannedBatch) -> Iterator[OffsetAndTimestamp]:
        """Offsets and timestamps of a batch's records."""
        data = self.file.pread(batch.header.size, batch.position)
        try:
            for record in read_records(data, max_size=_LOOKED_THROUGH):
                yield record.offset, record.timestamp
        except CorruptBatch:
            # The checksum is right: a producer sent the batch like this, or it is too large to be
            # decompressed for this. Only the header is known then. A reader begins with the whole batch
            # anyway.
            yield batch.header.base_offset, batch.header.max_timestamp


def first_in(walk: Walk, timestamp: int, start: int) -> tuple[OffsetAndTimestamp | None, list[Damage]]:
    """The first record from offset ``start`` on that is not older, and the damage on the way."""
    damage: list[Damage] = []
    for batch in walk.batches(damage):
        if batch.header.max_timestamp >= timestamp:
            for offset, time in walk.offsets_and_timestamps(batch):
                if time >= timestamp and offset >= start:
                    return (offset, time), damage
    return None, damage


def newest_in(near: Walk, whole: Walk, largest: int, start: int) -> tuple[OffsetAndTimestamp, list[Damage]]:
    """The first record with the largest timestamp. ``near`` leads to the batch that has it, by the index."""
    damage: list[Damage] = []
    batch = next(near.batches(damage), None)
    if batch is not None and batch.header.max_timestamp == largest and batch.header.base_offset >= start:
        found = max(near.offsets_and_timestamps(batch), key=lambda found: found[1], default=None)
        if found is not None:
            return found, damage
    # That record was deleted, compacted or damaged: look at all others.
    best = NOWHERE
    for batch in whole.batches(damage):
        if batch.header.max_timestamp > best[1]:
            left = [found for found in whole.offsets_and_timestamps(batch) if found[0] >= start]
            best = max([best, *left], key=lambda found: found[1])
    return best, damage


def run_here(search: Search[T]) -> T:
    """Run a whole search in this thread."""
    try:
        walk = next(search)
        while True:
            walk = search.send(walk())
    except StopIteration as ended:
        result: T = ended.value
        return result
