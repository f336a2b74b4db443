"""What producers did, read from the batches that are in a log's files.

A ``Replay`` leads producers' and transactions' state from one offset to a later one. Batches are given in
order; their checksums are the caller's affair.
"""

from __future__ import annotations

import logging

from millstream.errors import CorruptBatch
from millstream.log.producers import Producers
from millstream.log.scan import Batch
from millstream.log.segment import Segment
from millstream.log.transactions import Aborted, Transactions
from millstream.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader
from millstream.records.markers import EndOfTransaction, Marker, read_marker

_log = logging.getLogger(__name__)


class Replay:
    """State that follows the batches it is shown."""

    __slots__ = ("_now_ms", "producers", "transactions")

    def __init__(self, producers: Producers, transactions: Transactions, now_ms: int) -> None:
        self.producers = producers
        self.transactions = transactions
        self._now_ms = now_ms

    def show(self, segment: Segment, batch: Batch) -> Aborted | None:
        """A batch of the segment's; the transaction it aborted, if it did that."""
        header = batch.header
        if header.producer_id < 0:
            return None
        return self.tell(header, _marker_at(segment, batch) if header.attributes & CONTROL else None)

    def tell(self, header: BatchHeader, marker: EndOfTransaction | None) -> Aborted | None:
        """The same, where the marker is known, if it is one."""
        producer_id, attributes = header.producer_id, header.attributes
        if producer_id < 0:
            return None
        # Else when it came is not known: better kept a little longer than forgotten early.
        time_ms = header.max_timestamp if attributes & LOG_APPEND_TIME else self._now_ms
        if attributes & CONTROL and header.record_count == 0:
            # Compaction took the marker and left the batch, for the producer's epoch.
            self.producers.record_marker(producer_id, header.producer_epoch, time_ms)
            return None
        if attributes & CONTROL:
            if marker is None:
                return None
            self.producers.record_marker(producer_id, header.producer_epoch, time_ms)
            return self.transactions.ended(
                producer_id,
                header.base_offset,
                commit=marker.kind is Marker.COMMIT,
                coordinator_epoch=marker.coordinator_epoch,
            )
        self.producers.record(
            producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.base_offset,
            time_ms,
        )
        if attributes & TRANSACTIONAL:
            self.transactions.wrote(producer_id, header.base_offset, time_ms)
        return None

    def commit(self) -> None:
        """Nothing of what was shown will be undone."""
        self.producers.commit()
        self.transactions.commit()


def _marker_at(segment: Segment, batch: Batch) -> EndOfTransaction | None:
    data = segment.log.get().pread(batch.header.size, batch.position)
    try:
        return read_marker(data, 0, batch.header)
    except CorruptBatch as problem:
        _log.warning("%s at byte %d: %s; it ends no transaction", segment.log.path, batch.position, problem)
        return None
