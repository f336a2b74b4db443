"""Look at records where they are stored: a stretch of a partition, including what clients leave out.

A consumer returns only records. A person who investigates also wants to know which transaction a record was
in, how it ended and where its end is; and wants a small stretch now, not a stream. So this requests batches
as bytes, one bounded Fetch at a time, and keeps no records between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Literal, NamedTuple, Self

from millstream.client.connect import Connection
from millstream.client.errors import refused
from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.protocol.link import FetchedPartition
from millstream.client.protocol.unreadable import Unreadable, damaged, unreadable_in
from millstream.client.text.position import Bounds, TopicPartition
from millstream.core.errors import CorruptBatch
from millstream.core.kafka_errors import CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE
from millstream.records.batch import LOG_APPEND_TIME, BatchHeader
from millstream.records.build import Record, read_records
from millstream.records.fetched import examined, next_offset
from millstream.records.markers import Marker, read_marker

__all__ = ["Peek", "PeekedBatch", "PeekedRange", "Record", "State"]

FETCH_BYTES = 1024 * 1024
_WAIT_MS = 500  # for records that have to come from an archive; all others come at once
_LARGEST_BATCH = 64 * 1024 * 1024  # after decompression

# Of records: written outside a transaction, or in one that was committed, was aborted, or has not ended. Of
# control batches: the end of a transaction.
State = Literal["plain", "committed", "aborted", "open", "commit marker", "abort marker"]


class PeekedBatch(NamedTuple):
    """Records that were written together, and what is true of all of them."""

    state: State
    leader_epoch: int
    log_append_time: bool
    records: list[Record]


class PeekedRange(NamedTuple):
    """What one Fetch returned. Continue at ``next_offset``; it is ``until`` if there is no more."""

    batches: list[PeekedBatch]
    next_offset: int
    size: int  # bytes received
    unreadable: Unreadable | None = None  # records that exist but can't be read; the stretch ends with them


class Peek:
    """Connections for looking at records. With ``committed``, only at what readers of committed records
    see. For one thread."""

    def __init__(self, connection: Connection, *, committed: bool = True) -> None:
        self._cluster = Cluster(connection, patience=connection.patience)
        self._committed = committed
        self._stable: dict[TopicPartition, int] = {}  # the last stable offset, as of the first request for it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic; none if there is no such topic."""
        count = self._cluster.topics([topic]).get(topic, 0)
        return [TopicPartition(topic, index) for index in range(count)]

    def bounds(self, places: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Where partitions start and end, as far as this looks."""
        starts = self._cluster.ends(places, EARLIEST)
        ends = self._cluster.ends(places, LATEST, read_committed=self._committed)
        return {place: Bounds(starts[place], max(starts[place], ends[place])) for place in places}

    def since(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record at or after a time; None if every record is older."""
        found = self._cluster.offsets(times_ms)
        return {place: None if at is None else at.offset for place, at in found.items()}

    def stretch(
        self, place: TopicPartition, first: int, until: int, most_bytes: int = FETCH_BYTES
    ) -> PeekedRange:
        """Some of the records from ``first`` up to, not including, ``until``: at most ``most_bytes``, or
        one batch if that is larger. Offsets that no longer have a record are passed over. Records that
        can't be read are reported."""

        def ask() -> PeekedRange:
            # Brokers report aborted transactions only to readers of committed records.
            ended = self._committed or first < self._stable_end(place)
            answer = self._fetch(place, first, most_bytes, committed=ended)
            if answer.code == OFFSET_OUT_OF_RANGE:
                start = self._cluster.ends([place], EARLIEST)[place]
                return PeekedRange([], min(start, until) if start > first else until, 0)
            if answer.code == CORRUPT_MESSAGE:
                found = damaged(self._cluster, place, first, until)
                return PeekedRange([], found.until, 0, found)
            if answer.code:
                raise refused(answer.code, f"reading {place} from offset {first}")
            try:
                return _stretch(answer, first, until, ended=ended, everything=not self._committed)
            except CorruptBatch as problem:
                found = unreadable_in(answer, place, first, problem)
                before = PeekedRange([], first, len(answer.records))
                if found.first > first:
                    before = _stretch(answer, first, found.first, ended=ended, everything=not self._committed)
                return before._replace(next_offset=min(until, found.until), unreadable=found)

        return self._cluster.patiently(f"reading {place}", ask)

    def _stable_end(self, place: TopicPartition) -> int:
        if place not in self._stable:
            self._stable.update(self._cluster.ends([place], LATEST, read_committed=True))
        return self._stable[place]

    def _fetch(
        self, place: TopicPartition, first: int, most_bytes: int, *, committed: bool
    ) -> FetchedPartition:
        link = self._cluster.leader(place)
        link.send_fetch({place: (first, most_bytes)}, wait_ms=_WAIT_MS, read_committed=committed)
        (answer,) = link.receive_fetch()
        return answer


def _stretch(
    answer: FetchedPartition, first: int, until: int, *, ended: bool, everything: bool
) -> PeekedRange:
    batches = []
    for at, header, aborted in examined(answer.records, first, until, answer.aborted):
        if not everything and (header.is_control or aborted):
            continue
        state = _state(answer.records, at, header, ended=ended, aborted=aborted)
        records = [
            record
            for record in read_records(answer.records, at, header, _LARGEST_BATCH)
            if first <= record.offset < until
        ]
        log_append_time = bool(header.attributes & LOG_APPEND_TIME)
        if records and state is not None:
            batches.append(PeekedBatch(state, header.leader_epoch, log_append_time, records))
    following = min(until, next_offset(answer.records, first, until))
    if following == first:  # nothing is left: compaction removed the last ones
        stable = answer.last_stable_offset
        following = min(until, stable) if everything and first < stable else until
    return PeekedRange(batches, following, len(answer.records))


def _state(buffer: memoryview, at: int, header: BatchHeader, *, ended: bool, aborted: bool) -> State | None:
    """The state of a batch; None for a control record that means nothing to readers."""
    if header.is_control:
        marker = read_marker(buffer, at, header)
        if marker is None:
            return None
        return "commit marker" if marker.kind is Marker.COMMIT else "abort marker"
    if not header.is_transactional:
        return "plain"
    if aborted:
        return "aborted"
    return "committed" if ended else "open"
