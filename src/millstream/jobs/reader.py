"""Reads ``millstream.jobs`` into a board, and follows it. The rules are in ``board``."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from millstream.client.connect import Connection
from millstream.client.insight.lag import lag_of_group
from millstream.client.protocol.cluster import LATEST, Cluster
from millstream.client.protocol.partition_fetcher import PartitionFetcher, Record
from millstream.client.text.position import TopicPartition
from millstream.core.clock import Clock, SystemClock
from millstream.core.errors import DataLoss, RequestFailed
from millstream.jobs.board import Board, JobRun
from millstream.jobs.report import HEARTBEAT_MS, RUN_HEADER, TOPIC, this_machine

_LISTEN_S = 1.5 * HEARTBEAT_MS / 1000  # for a run that is in doubt
_STEP_MS = 200


class JobReader:
    """The reports of jobs at one broker. Opened empty; ``read`` reads what is there. For one thread."""

    def __init__(self, connection: Connection, clock: Clock | None = None) -> None:
        connection.check()
        self.board = Board(this_machine())
        self.clock = clock or SystemClock()
        self._cluster = Cluster(connection, patience=connection.patience)
        self._readers: list[PartitionFetcher] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def read(self) -> None:
        """Read all reports up to the current end. Without the topic there are none."""
        number = self._cluster.topics([TOPIC]).get(TOPIC, 0)
        places = [TopicPartition(TOPIC, index) for index in range(number)]
        ends = self._cluster.ends(places, LATEST)
        self.board = Board(this_machine())
        self._readers = [PartitionFetcher(self._cluster, place) for place in places]
        for reader in self._readers:
            # Compaction may have removed the last records: then an answer is empty before the end.
            while (reader.position is None or reader.position < ends[reader.partition]) and (
                records := reader.read(_STEP_MS)
            ):
                self._take(records)

    def follow(self, wait_ms: int = _STEP_MS) -> bool:
        """Wait for more reports, at most so long. True if some came."""
        came = False
        for reader in self._readers:
            try:
                records = reader.read(wait_ms // len(self._readers))
            except DataLoss:
                self.read()  # the topic was created again
                return True
            self._take(records, arrived_ms=self.clock.now_ms())
            came = came or bool(records)
        return came

    def settle(self) -> None:
        """Listen until it is known of every run whether it is alive. Returns at once unless the clocks
        leave that open."""
        deadline = self.clock.monotonic() + _LISTEN_S
        while self.in_doubt() and self.clock.monotonic() < deadline:
            self.follow()
        self.board.give_up(self.clock.now_ms())

    def in_doubt(self) -> list[JobRun]:
        return self.board.in_doubt(self.clock.now_ms())

    def runs(self, name: str) -> list[JobRun]:
        return self.board.runs(name, self.clock.now_ms())

    def lag(self, run: JobRun) -> int | None:
        """How far a job is behind: as it reported, or measured now if it reports no more. None if unknown."""
        if run.runs:
            return run.status.lag
        try:
            lags = [lag_of_group(self._cluster, query.group) for query in run.status.queries]
        except RequestFailed:
            return None  # its group or its topics may be gone
        return sum(sum(by_topic.values()) for by_topic in lags) if any(lags) else None

    def _take(self, records: list[Record], arrived_ms: int | None = None) -> None:
        for record in records:
            self.board.take(
                (record.key or b"").decode(errors="replace"),
                record.value,
                offset=record.offset,
                timestamp=record.timestamp,
                run=next(
                    (value.decode() for key, value in record.headers if key == RUN_HEADER and value), None
                ),
                arrived_ms=arrived_ms,
            )
