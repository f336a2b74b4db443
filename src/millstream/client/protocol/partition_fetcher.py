"""Reads one partition over the protocol itself, with long polls.

A librdkafka consumer has several threads and asks twice a second. This reader has none, and one request
waits at the broker until records come, so waiting costs nothing.
"""

from __future__ import annotations

from millstream.client.errors import refused
from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import DataLoss
from millstream.core.kafka_errors import OFFSET_OUT_OF_RANGE
from millstream.records.build import Record, read_records
from millstream.records.fetched import next_offset, wanted

__all__ = ["PartitionFetcher", "Record"]

_FETCH_BYTES = 4 * 1024 * 1024


class PartitionFetcher:
    """A partition, read from its start unless another position is set. For one thread."""

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None  # the next offset to read
        self._cluster = cluster

    def to_end(self) -> None:
        """Read only what is appended from now on."""
        self.position = self._cluster.ends([self.partition], LATEST)[self.partition]

    def read(self, wait_ms: int = 0, patience: float | None = None) -> list[Record]:
        """Committed records that are there or come within ``wait_ms``, in order. ``patience`` is how many
        seconds to wait for a broker that is away, if not the cluster's. DataLoss: the position is gone."""
        if self.position is None:
            self.position = self._cluster.ends([self.partition], EARLIEST)[self.partition]
        return self._cluster.patiently(f"reading {self.partition}", lambda: self._fetch(wait_ms), patience)

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
