"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, or reached a time or an epoch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from millstream.broker.codes import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from millstream.broker.dispatch import Client, serves
from millstream.errors import LogError
from millstream.wire.apis import NEVER
from millstream.wire.codec import Answer

if TYPE_CHECKING:
    from millstream.broker.node import Node
    from millstream.log.partition import PartitionLog

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4  # the oldest record not moved to archive storage only: there is none
LATEST_TIERED = -5  # the newest record in archive storage
EARLIEST_PENDING_UPLOAD = -6
# The version from which on a client may ask for one of these instead of a time.
_ASKED_FROM = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1


@serves(2, versions=(1, 11))
def list_offsets(node: Node, request: Any, client: Client) -> Answer:
    committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    asked = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)

    def look_up(topic: str, wanted: Any) -> dict[str, Any]:
        index = wanted.partition_index
        if asked[topic, index] > 1:
            return {"partition_index": index, "error_code": INVALID_REQUEST}
        partition = node.partition(topic, index)
        if partition is None:
            return {"partition_index": index, "error_code": UNKNOWN_TOPIC_OR_PARTITION}
        log = partition.log
        error = epoch_error(log, getattr(wanted, "current_leader_epoch", -1))
        if wanted.timestamp < 0 and client.version < _ASKED_FROM.get(wanted.timestamp, NEVER):
            error = UNSUPPORTED_VERSION
        if error:
            return {"partition_index": index, "error_code": error}
        try:
            offset, timestamp = _offset(log, wanted.timestamp, committed)
        except LogError as failure:
            return {"partition_index": index, "error_code": failure.code}
        epoch = log.epochs.at(offset) if offset >= 0 else -1
        return {
            "partition_index": index,
            "error_code": NONE,
            "timestamp": timestamp,
            "offset": offset,
            "leader_epoch": epoch,
        }

    return {
        "topics": [
            {"name": topic.name, "partitions": [look_up(topic.name, wanted) for wanted in once.values()]}
            for topic in request.topics
            for once in [{wanted.partition_index: wanted for wanted in topic.partitions}]
        ]
    }


def _offset(log: PartitionLog, timestamp: int, committed: bool) -> tuple[int, int]:
    """The offset and its timestamp; -1 where there is none, or where a reader of committed records only may
    not look yet."""
    if timestamp == LATEST:
        return (log.last_stable_offset if committed else log.written_offset), -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or (committed and found[0] >= log.last_stable_offset):
        return -1, -1
    return found


def epoch_error(log: PartitionLog, leader_epoch: int) -> int:
    """What is wrong with the leader epoch that a client believes to be the current one."""
    if leader_epoch < 0 or leader_epoch == log.leader_epoch:
        return NONE
    return FENCED_LEADER_EPOCH if leader_epoch < log.leader_epoch else UNKNOWN_LEADER_EPOCH


@serves(23, versions=(2, 4))
def offset_for_leader_epoch(node: Node, request: Any, client: Client) -> Answer:
    """Where an epoch ended: a reader finds out whether records it has seen are still there."""

    def look_up(topic: str, wanted: Any) -> dict[str, Any]:
        index = wanted.partition
        partition = node.partition(topic, index)
        if partition is None:
            return {"partition": index, "error_code": UNKNOWN_TOPIC_OR_PARTITION}
        log = partition.log
        error = epoch_error(log, wanted.current_leader_epoch)
        if error:
            return {"partition": index, "error_code": error}
        epoch, end = log.epochs.end_of(wanted.leader_epoch, log.written_offset)
        return {"partition": index, "error_code": NONE, "leader_epoch": epoch, "end_offset": end}

    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [look_up(topic.topic, wanted) for wanted in topic.partitions],
            }
            for topic in request.topics
        ]
    }
