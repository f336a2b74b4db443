"""Decides what compaction keeps of each batch, by Kafka's rules.

1. Of the records whose keys the pass has noted, the newest of each key stays. Records without a key are
   removed.
2. A tombstone (a record without a value) that is the newest of its key stays until the batch's **delete
   horizon**, so that readers see the deletion. The first pass that meets the tombstone sets the horizon,
   ``delete.retention.ms`` ahead. It replaces the batch's base timestamp, and a bit in the attributes
   marks it. The first pass after the horizon removes the tombstone.
3. The records of aborted transactions are removed. A marker stays while the same pass meets a batch of
   its transaction. After that it gets a delete horizon, as a tombstone does.
4. Batches keep their base offset, last offset delta, producer, epoch and sequence, whatever they still
   contain.
5. A batch without records is removed, except the last one of a producer that is still known (its sequence
   number and epoch have to survive a restart), and the last one of a segment, which shows where the
   segment ends.
6. A batch whose records can't be read, although its checksum is right, stays unchanged.

Pure: batches in, batches out.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop
from typing import NamedTuple

from millstream.core.errors import CorruptBatch
from millstream.log.transactions import Aborted
from millstream.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from millstream.records.build import assemble, check_plausible, read_records, write_header, write_record
from millstream.records.compression import NONE, compress, decompress
from millstream.records.keys.newest import LatestOffsets
from millstream.records.markers import Marker, read_marker


class CleanedTransactions:
    """The transactions that a pass meets: which batches are aborted, and which markers are still needed."""

    def __init__(self, aborted: Iterable[tuple[int, int, Aborted | None]]) -> None:
        """``aborted``: first offset, producer id, and the index entry if it is within what is cleaned."""
        self._coming = list(aborted)
        heapify(self._coming)
        self._aborting: dict[int, tuple[Aborted | None, bool]] = {}  # by producer: entry, a batch was met
        self._committing: set[int] = set()
        self.kept: list[Aborted] = []  # aborts whose markers stay because of their batches, for the new index

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take the next batch of records. True if its transaction was aborted."""
        if not header.attributes & TRANSACTIONAL:
            return False
        self._begin(header.last_offset)
        if header.producer_id in self._aborting:
            self._aborting[header.producer_id] = self._aborting[header.producer_id][0], True
            return True
        self._committing.add(header.producer_id)
        return False

    def is_spent(self, header: BatchHeader, data: Buffer) -> bool:
        """Take the next control batch. True if it is a marker that is no longer needed."""
        self._begin(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_marker(data, 0, header)
        if marker is None:
            return False
        if marker.kind is Marker.COMMIT:
            if header.producer_id not in self._committing:
                return True
            self._committing.discard(header.producer_id)
            return False
        entry, met = self._aborting.pop(header.producer_id, (None, False))
        if met and entry is not None:
            self.kept.append(entry)
        return not met

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, producer_id, entry = heappop(self._coming)
            self._aborting.setdefault(producer_id, (entry, False))


class CleanedBatch(NamedTuple):
    """What compaction keeps of a batch."""

    data: Buffer | None  # None: the batch is removed
    is_changed: bool
    records: int
    newest_ms: int  # of the records that are left
    keyless: int = 0  # records that were removed because they have no key
    is_unreadable: bool = False


GONE = CleanedBatch(None, True, 0, NO_TIMESTAMP)


class BatchCleaner:
    """Cleans batches one by one, in order from the log's start."""

    def __init__(
        self,
        latest: LatestOffsets,
        *,
        latest_offset: int,
        transactions: CleanedTransactions,
        producers: dict[int, tuple[int, int]],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """``latest`` holds the keys up to ``latest_offset``. ``producers`` are those still known, by id:
        epoch and the last offset of the last batch, -1 if there is only a marker."""
        self.transactions = transactions
        self._latest = latest
        self._latest_offset = latest_offset
        self._producers = producers
        self._now_ms = now_ms
        self._new_horizon = now_ms + delete_retention_ms

    def clean(self, header: BatchHeader, data: Buffer) -> CleanedBatch:
        """Clean a complete batch with a correct checksum. If the batch ends a segment, the caller keeps
        at least its header."""
        keep_empty = self._is_last_of_producer(header)
        if header.attributes & CONTROL:
            return self._control(header, data, keep_empty)
        if self.transactions.is_aborted(header):
            return emptied(header, data) if keep_empty else GONE
        return self._records(header, data, keep_empty)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER_ID:
            return False
        epoch, last_offset = self._producers.get(header.producer_id, (-1, -1))
        if last_offset >= 0:
            return header.last_offset == last_offset
        return bool(header.attributes & CONTROL) and header.producer_epoch == epoch

    def _control(self, header: BatchHeader, data: Buffer, keep_empty: bool) -> CleanedBatch:
        try:
            spent = self.transactions.is_spent(header, data)
        except CorruptBatch:
            return CleanedBatch(data, False, header.record_count, header.max_timestamp, is_unreadable=True)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        if spent and (header.record_count == 0 or (has_horizon and header.base_timestamp <= self._now_ms)):
            return emptied(header, data) if keep_empty else GONE
        if spent and not has_horizon:
            return self._with_horizon(header, data)
        return CleanedBatch(data, False, header.record_count, header.max_timestamp)

    def _with_horizon(self, header: BatchHeader, data: Buffer) -> CleanedBatch:
        body = bytearray()
        for record in read_records(data, 0, header):
            write_record(
                body, record, record.timestamp - self._new_horizon, record.offset - header.base_offset
            )
        attributes = header.attributes | DELETE_HORIZON
        fields = _fields(header, attributes, self._new_horizon, header.max_timestamp, header.record_count)
        out = assemble(compress(header.codec, body), **fields)
        return CleanedBatch(out, True, header.record_count, header.max_timestamp)

    def _records(self, header: BatchHeader, data: Buffer, keep_empty: bool) -> CleanedBatch:
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        try:
            body = uncompressed(header, data)
            out, left, newest, rebased, keyless = self._latest.kept(
                body,
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                self._latest_offset,
                horizon is None or self._now_ms < horizon,
                self._new_horizon if horizon is None else None,
                HEADER_SIZE,
            )
        except CorruptBatch:
            return CleanedBatch(data, False, header.record_count, header.max_timestamp, is_unreadable=True)
        if left == 0:
            return (emptied(header, data) if keep_empty else GONE)._replace(keyless=keyless)
        if out is None:
            return CleanedBatch(data, False, left, header.max_timestamp)
        attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, newest
        if rebased:
            attributes |= DELETE_HORIZON
            base_timestamp = self._new_horizon
        if attributes & LOG_APPEND_TIME:
            max_timestamp = header.max_timestamp
        fields = _fields(header, attributes, base_timestamp, max_timestamp, left)
        if header.codec == NONE:
            write_header(out, **fields)
        else:
            out = assemble(compress(header.codec, memoryview(out)[HEADER_SIZE:]), **fields)
        return CleanedBatch(out, True, left, max_timestamp, keyless)


def emptied(header: BatchHeader, data: Buffer) -> CleanedBatch:
    """Reduce a batch to its header."""
    if header.record_count == 0:
        return CleanedBatch(data, False, 0, NO_TIMESTAMP)
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    fields = _fields(header, attributes, NO_TIMESTAMP, header.max_timestamp, 0)
    return CleanedBatch(assemble(b"", **fields), True, 0, NO_TIMESTAMP)


def uncompressed(header: BatchHeader, data: Buffer) -> Buffer:
    """The uncompressed records of a complete batch. Raises CorruptBatch."""
    body = decompress(header.codec, memoryview(data)[HEADER_SIZE : header.size])
    check_plausible(header, len(body))
    return body


def _fields(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, records: int
) -> dict[str, int]:
    return {
        "attributes": attributes,
        "base_offset": header.base_offset,
        "leader_epoch": header.leader_epoch,
        "last_offset_delta": header.last_offset_delta,
        "base_timestamp": base_timestamp,
        "max_timestamp": max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "record_count": records,
    }
