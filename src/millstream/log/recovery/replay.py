"""Derives the state of producers and transactions from the batches in a log's files.

A ``Replay`` moves this state from one offset to a later one. Batches must be given in order; the caller
verifies their checksums.
"""

from __future__ import annotations

import logging

from millstream.core.errors import CorruptBatch
from millstream.log.producers import Producers
from millstream.log.segment.scan import ScannedBatch
from millstream.log.segment.segment import Segment
from millstream.log.transactions import Aborted, PartitionTransactions
from millstream.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader
from millstream.records.markers import EndOfTransaction, Marker, read_marker

_log = logging.getLogger(__name__)


class Replay:
    """The state of producers and transactions after the batches it was shown."""

    __slots__ = ("_now_ms", "producers", "transactions")

    def __init__(self, producers: Producers, transactions: PartitionTransactions, now_ms: int) -> None:
        self.producers = producers
        self.transactions = transactions
        self._now_ms = now_ms

    def show(self, segment: Segment, batch: ScannedBatch) -> Aborted | None:
        """Take the segment's next batch. Returns the transaction that it aborted, if any."""
        header = batch.header
        if header.producer_id < 0:
            return None
        return self.tell(header, _marker_at(segment, batch) if header.attributes & CONTROL else None)

    def tell(self, header: BatchHeader, marker: EndOfTransaction | None) -> Aborted | None:
        """Like ``show``, with the marker already read if the batch is one."""
        producer_id, attributes = header.producer_id, header.attributes
        if producer_id < 0:
            return None
        # Otherwise its time is unknown: it is better kept a little longer than forgotten too early.
        time_ms = header.max_timestamp if attributes & LOG_APPEND_TIME else self._now_ms
        if attributes & CONTROL and header.record_count == 0:
            # Compaction removed the marker and kept the batch, for the producer's epoch.
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
        """Note that nothing shown so far will be undone."""
        self.producers.commit()
        self.transactions.commit()


def _marker_at(segment: Segment, batch: ScannedBatch) -> EndOfTransaction | None:
    data = segment.log.get().pread(batch.header.size, batch.position)
    try:
        return read_marker(data, 0, batch.header)
    except CorruptBatch as problem:
        _log.warning("%s at byte %d: %s; it ends no transaction", segment.log.path, batch.position, problem)
        return None
