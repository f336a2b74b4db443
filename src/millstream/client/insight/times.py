"""When records were written, by their offsets: the opposite of the lookup that Kafka offers.

A Fetch of one byte returns one batch: the one that holds the offset. Several are in flight at once, so a
thousand take less than a second. A consumer that seeks to as many places takes half a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import NamedTuple

from millstream.client.connect import Connection
from millstream.client.errors import refused
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.link import FetchedPartition, Link
from millstream.client.text.position import TopicPartition
from millstream.core.errors import CorruptBatch, RequestFailed
from millstream.core.kafka_errors import OFFSET_OUT_OF_RANGE
from millstream.records.batch import LOG_APPEND_TIME
from millstream.records.build import read_records
from millstream.records.fetched import NO_END, next_offset, wanted

_IN_FLIGHT = 16
_WAIT_MS = 500  # for records that have to come from an archive; all others come at once
_BATCHES = 10  # searched one after the other for a record: compaction and markers leave some without one


class PartitionOffset(NamedTuple):
    """An offset of a partition."""

    partition: TopicPartition
    offset: int


def times_at(
    connection: Connection,
    spots: Collection[PartitionOffset],
    problems: dict[TopicPartition, str] | None = None,
) -> dict[PartitionOffset, int]:
    """The time, in ms, of the first record at or after each offset. Offsets without an answer are left out:
    the offset is the end or was deleted, the partition has no leader at the moment, or it can't be read
    there, for example in an archive that is not reachable. ``problems`` collects what the broker said."""
    if not spots:
        return {}
    cluster = Cluster(connection, patience=connection.patience)
    try:
        return cluster.patiently(
            "looking up times", lambda: _times(cluster, spots, {} if problems is None else problems)
        )
    finally:
        cluster.close()


def _times(
    cluster: Cluster, spots: Collection[PartitionOffset], problems: dict[TopicPartition, str]
) -> dict[PartitionOffset, int]:
    cluster.topics({spot.partition.topic for spot in spots})
    by_leader: dict[Link, list[PartitionOffset]] = {}
    for spot in spots:
        try:
            by_leader.setdefault(cluster.leader(spot.partition), []).append(spot)
        except RequestFailed:
            continue
    found: dict[PartitionOffset, int] = {}
    for link, led in by_leader.items():
        left = dict(zip(led, led, strict=True))  # where to look for each one next
        for _ in range(_BATCHES):
            left = _look(link, left, found, problems)
            if not left:
                break
    return found


def _look(
    link: Link,
    places: dict[PartitionOffset, PartitionOffset],
    found: dict[PartitionOffset, int],
    problems: dict[TopicPartition, str],
) -> dict[PartitionOffset, PartitionOffset]:
    """Ask once for each. Returns those without an answer, with the offset to continue at."""
    left = {}
    for some in _parts(places.items()):
        for _, (partition, offset) in some:
            link.send_fetch({partition: (offset, 1)}, wait_ms=_WAIT_MS, read_committed=False)
        for spot, (partition, offset) in some:
            (answer,) = link.receive_fetch()
            if answer.code not in (0, OFFSET_OUT_OF_RANGE):  # deleted in the meantime is no problem
                problems[partition] = str(refused(answer.code, f"can't read offset {offset}"))
            time_ms, following = _first_time(answer, offset)
            if time_ms is not None:
                found[spot] = time_ms
            elif following > offset:
                left[spot] = PartitionOffset(partition, following)
    return left


def _parts(
    places: Iterable[tuple[PartitionOffset, PartitionOffset]],
) -> Iterable[list[tuple[PartitionOffset, PartitionOffset]]]:
    rest = iter(places)
    return iter(lambda: list(itertools.islice(rest, _IN_FLIGHT)), [])


def _first_time(answer: FetchedPartition, offset: int) -> tuple[int | None, int]:
    """The time of the first record from an offset on, or the offset to continue at."""
    if answer.code:
        return None, offset
    try:
        for at, header in wanted(answer.records, offset, NO_END, ()):
            if header.base_offset >= offset and not header.attributes & LOG_APPEND_TIME:
                if header.record_count and header.base_timestamp >= 0:
                    return header.base_timestamp, offset
                continue
            for record in read_records(answer.records, at, header):
                if record.offset >= offset and record.timestamp >= 0:
                    return record.timestamp, offset
        return None, next_offset(answer.records, offset)
    except CorruptBatch:
        return None, offset
