"""Selects the batches of a Fetch response that contain requested records, and finds the next offset to fetch.

A response may begin with a batch whose first records were not requested, and end with a partial batch.
Control batches are left out. So are the batches of aborted transactions, if the caller passes the list
from the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop

from millstream.core.errors import CorruptBatch
from millstream.records import batch
from millstream.records.batch import NO_PRODUCER_ID, Buffer
from millstream.records.markers import Marker, read_marker

NO_END = 2**63 - 1


def wanted(
    buffer: Buffer, first: int, end: int, aborted: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, batch.BatchHeader]]:
    """The batches with records to deliver: in range, checked, not control and not aborted."""
    for position, header, is_aborted in examined(buffer, first, end, aborted):
        if not header.is_control and not is_aborted:
            yield position, header


def examined(
    buffer: Buffer, first: int, end: int, aborted: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, batch.BatchHeader, bool]]:
    """Every batch in range, checked, including control batches, and whether its transaction was aborted."""
    coming = [(first_offset, producer) for producer, first_offset in aborted]
    heapify(coming)
    aborting: set[int] = set()
    for position, header in _checked(buffer):
        if header.base_offset >= end:
            return
        if header.last_offset < first and not coming and not aborting:
            continue
        batch.verify(buffer, position, header)
        is_aborted = False
        if header.producer_id != NO_PRODUCER_ID:
            while coming and coming[0][0] <= header.last_offset:
                aborting.add(heappop(coming)[1])
            if header.is_control:
                if header.producer_id in aborting:
                    marker = read_marker(buffer, position, header)
                    if marker is not None and marker.kind is Marker.ABORT:
                        aborting.discard(header.producer_id)
            else:
                is_aborted = header.is_transactional and header.producer_id in aborting
        if header.last_offset >= first:
            yield position, header, is_aborted


def next_offset(buffer: Buffer, first: int, end: int = NO_END) -> int:
    """The offset to continue from after a Fetch response to a request for ``first``: after the last
    complete batch, even if no record of it is delivered. A batch beyond ``end`` shows that nothing is
    left before ``end``, even if compaction removed the last offsets."""
    following = first
    for _, header in _checked(buffer):
        following = max(following, min(header.base_offset, end))
        if following >= end:
            break
        following = max(following, header.next_offset)
    return following


def _checked(buffer: Buffer) -> Iterator[tuple[int, batch.BatchHeader]]:
    """The complete batches. Negative offsets raise CorruptBatch: they could send a reader backwards
    forever."""
    for position, header in batch.batches(buffer):
        if header.last_offset_delta < 0 or header.base_offset < 0:
            raise CorruptBatch("its offsets are negative", position=position)
        yield position, header
