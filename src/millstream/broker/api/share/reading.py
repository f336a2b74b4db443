"""Which batches are in a slice of a log, from their headers alone."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from millstream.broker.groups.share.share_partition import Acquired, LogBatch, SharePartition
from millstream.records.batch import CONTROL, HEADER_SIZE, BatchHeader, read_header

_WINDOW = 16 * 1024  # bytes read at a time: many headers where batches are small, one where they are large


class Records(Protocol):
    """A slice of a log, or records that are in memory."""

    @property
    def size(self) -> int: ...
    def bytes(self) -> bytes: ...
    def peek(self, start: int, size: int, /) -> builtins.bytes: ...
    def part(self, start: int, size: int, /) -> Records: ...


class Batches(NamedTuple):
    """Batches of a slice, and the position in it at which each ends."""

    batches: list[LogBatch]
    ends: list[int]


def enough_batches(
    records: Records,
    offset: int,
    share: SharePartition,
    most: int,
    aborted: Sequence[tuple[int, int]],
) -> Batches:
    """The first batches of what was read from ``offset``: as many as hold ``most`` records to give out.

    ``aborted`` are the transactions, by producer id and first offset, whose records nobody is to see.
    """
    found = Batches([], [])
    aborting: set[int] = set()
    coming = sorted(aborted, key=lambda each: each[1])
    enough = 0
    for header, end in _headers(records):
        while coming and coming[0][1] <= header.last_offset:
            aborting.add(coming.pop(0)[0])
        is_aborted = header.is_transactional and header.producer_id in aborting
        if header.attributes & CONTROL:
            aborting.discard(header.producer_id)
        is_offered = not (header.attributes & CONTROL or is_aborted) and header.record_count > 0
        found.batches.append(LogBatch(header.base_offset, header.last_offset, is_offered))
        found.ends.append(end)
        if is_offered:
            enough += share.acquirable(max(header.base_offset, offset), header.last_offset)
            if enough >= most:
                break
    return found


def _headers(records: Records) -> Iterator[tuple[BatchHeader, int]]:
    """The headers of whole batches, each with the position after its batch. The last batch may be cut."""
    position, window, window_at = 0, b"", 0
    while position + HEADER_SIZE <= records.size:
        at = position - window_at
        if not window or at + HEADER_SIZE > len(window):
            window, window_at, at = records.peek(position, _WINDOW), position, 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, at)
        position += header.size
        if position > records.size or header.size < HEADER_SIZE:
            return
        yield header, position


def around(records: Records, found: Batches, taken: Sequence[Acquired]) -> Records:
    """The part of the slice that holds all that was given out: whole batches."""
    first = next(n for n, batch in enumerate(found.batches) if batch.last >= taken[0].first)
    last = next(n for n, batch in enumerate(found.batches) if batch.last >= taken[-1].last)
    start = found.ends[first - 1] if first else 0
    return records.part(start, found.ends[last] - start)
