"""One partition that several processes write, one at a time, while each keeps a table of what is in it.

Rules. A writer knows all that was written before. If two want to write at once, one does, and the other is
told to read again.

Theory of operation. All writers share a transactional id. ``take_over`` gets a new epoch for it, which
fences every other writer and aborts what one may have left open. Then the new writer reads everything that
is committed. ``append`` commits records under that epoch. It fails with ProducerFenced if another writer
has taken over since, and then nothing was written. So every commit was made by a writer that had read all
earlier commits. A writer that was not fenced has missed nothing and need not take over again.

Readers need none of that. They see only committed records, in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from millstream.client.connect import Connection
from millstream.client.errors import refused
from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.protocol.sender import BatchSender
from millstream.client.protocol.transaction_requests import ProducerSession, TransactionClient
from millstream.client.text.position import TopicPartition
from millstream.core.errors import BrokerUnavailable, DataLoss, ProducerFenced, RequestFailed
from millstream.core.kafka_errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_ABORTABLE,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_PRODUCER_ID,
)
from millstream.records.build import Record, build_batch, read_records
from millstream.records.fetched import next_offset, wanted

__all__ = ["FencedPartition", "Record"]

_FETCH_BYTES = 4 * 1024 * 1024
_TRANSACTION_MS = 10_000  # after which a transaction that nobody ends is aborted
# The broker no longer knows this writer's transaction, or its place in it: another writer has ended it.
_OVERTAKEN = (
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    INVALID_TXN_STATE,
    INVALID_PRODUCER_ID_MAPPING,
    CONCURRENT_TRANSACTIONS,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_PRODUCER_ID,
    TRANSACTION_ABORTABLE,
)


class FencedPartition:
    """A partition, read from its start. For one thread."""

    def __init__(
        self,
        connection: Connection,
        partition: TopicPartition,
        transactional_id: str,
        *,
        patience: float = 30.0,
    ) -> None:
        self.partition = partition
        self.position: int | None = None  # the next offset to read
        self._cluster = Cluster(connection, patience=patience)
        self._coordinator = TransactionClient(self._cluster)
        self._transactional_id = transactional_id
        self._own_end = 0  # where the last commit from here ends
        self._producer: ProducerSession | None = None
        self._sender: BatchSender | None = None

    def close(self) -> None:
        """Leave. What was not committed is aborted by the next writer, or when it times out."""
        self._cluster.close()

    # Reading -----------------------------------------------------------------------------------------

    def read(self, wait_ms: int = 0, patience: float | None = None) -> list[Record]:
        """Committed records that are there or come within ``wait_ms``, in order. ``patience`` is how many
        seconds to wait for a broker that is away, if not the usual number."""
        if self.position is None:
            self.position = self._cluster.ends([self.partition], EARLIEST)[self.partition]
        return self._cluster.patiently(f"reading {self.partition}", lambda: self._fetch(wait_ms), patience)

    def catch_up(self) -> Iterator[list[Record]]:
        """Everything up to the current end of what is committed."""
        end = self._cluster.ends([self.partition], LATEST, read_committed=True)[self.partition]
        # Apache Kafka reports a transaction as committed before readers can see it.
        end = max(end, self._own_end)
        deadline = time.monotonic() + self._cluster.patience
        while self.position is None or self.position < end:
            records = self.read(100)
            if records:
                yield records
                deadline = time.monotonic() + self._cluster.patience
            elif time.monotonic() > deadline:
                address = self._cluster.connection.address
                raise BrokerUnavailable(
                    f"{self.partition} at {address} ends at {end}, but returns no records there"
                )

    def _fetch(self, wait_ms: int) -> list[Record]:
        assert self.position is not None
        link = self._cluster.leader(self.partition)
        link.send_fetch({self.partition: (self.position, _FETCH_BYTES)}, wait_ms=wait_ms, read_committed=True)
        (answer,) = link.receive_fetch()
        if answer.code == OFFSET_OUT_OF_RANGE:
            raise DataLoss(
                f"{self.partition}: offset {self.position} is gone: the topic was truncated or created again"
            )
        if answer.code:
            raise refused(answer.code, f"reading {self.partition} from offset {self.position}")
        first = self.position
        found = []
        for at, header in wanted(answer.records, first, 2**63 - 1, answer.aborted):
            records = read_records(answer.records, at, header)
            found += [record for record in records if record.offset >= first]
        self.position = next_offset(answer.records, first)
        return found

    # Writing -----------------------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """True if the right to write was taken, and was not found lost since."""
        return self._producer is not None

    def take_over(self) -> None:
        """Take the right to write from its owner. Read what was committed before deciding anything."""
        self._producer = self._coordinator.init(self._transactional_id, _TRANSACTION_MS)
        self._sender = None

    def append(self, records: Sequence[Record]) -> None:
        """Commit records, all or none. ProducerFenced: another writer has taken over, and none was written.

        After any other error the outcome is unknown; the next writer finds out by reading.
        """
        producer = self._producer
        assert producer is not None, "take over before writing"
        self._producer = None  # until the commit is known to have succeeded
        if self._sender is None:
            self._sender = BatchSender(self._cluster, producer=producer)
        try:
            self._sender.send([(self.partition, build_batch(records, transactional=True))])
            self._sender.flush()
            end = self._cluster.ends([self.partition], LATEST)[self.partition]
            after = self._coordinator.end(producer, commit=True)
        except RequestFailed as error:
            if error.code in _OVERTAKEN and not isinstance(error, ProducerFenced):
                raise ProducerFenced(error.code, error.name, str(error)) from None
            raise
        if after != producer:
            self._sender = None  # a new epoch starts its sequence numbers again
        self._producer, self._own_end = after, end
