"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, or reached a time or an epoch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import LogError
from millstream.core.kafka_errors import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from millstream.core.loop_slices import sliced
from millstream.log.partition import PartitionLog
from millstream.log.segment.time_search import Search
from millstream.wire.api_keys import LIST_OFFSETS, NEVER, OFFSET_FOR_LEADER_EPOCH
from millstream.wire.codec.schema_codec import Answer

_ByTime = tuple[dict[str, Any], PartitionLog, int]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4  # the oldest record that is not in the archive only
LATEST_TIERED = -5  # the newest record in the archive
EARLIEST_PENDING_UPLOAD = -6  # the oldest record of an archived topic that is not in the archive yet
READ_COMMITTED = 1
# The request version that introduced each of them. Other negative numbers mean nothing.
_KNOWN_FROM = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


@serves(LIST_OFFSETS, versions=(1, 11))
def list_offsets(node: Node, request: Any, client: Client) -> Answer | Awaitable[Answer]:
    """Responds at once unless a time has to be looked up, which may read a whole segment, or the archive."""
    committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    asked = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)

    def look_up(topic: str, wanted: Any) -> dict[str, Any]:
        index = wanted.partition_index
        if asked[topic, index] > 1:
            return {"partition_index": index, "error_code": INVALID_REQUEST}
        if wanted.timestamp < 0 and client.version < _KNOWN_FROM.get(wanted.timestamp, NEVER):
            return {"partition_index": index, "error_code": UNSUPPORTED_VERSION}
        partition = node.topics.partition(topic, index)
        if partition is None:
            return {"partition_index": index, "error_code": UNKNOWN_TOPIC_OR_PARTITION}
        log = partition.log
        error = state_error(log, getattr(wanted, "current_leader_epoch", -1))
        if error:
            return {"partition_index": index, "error_code": error}
        result: dict[str, Any] = {"partition_index": index}
        if wanted.timestamp < 0 and wanted.timestamp != MAX_TIMESTAMP:
            _tell(result, log, _offset(log, wanted.timestamp, committed))
        elif node.archiving is not None and _may_be_archived(log, wanted.timestamp):
            archived.append((result, log, wanted.timestamp))
        else:
            searched.append((result, log, wanted.timestamp))
        return result

    archived: list[_ByTime] = []
    searched: list[_ByTime] = []
    answer: Answer = {
        "topics": [
            {
                "name": topic.name,
                "partitions": [look_up(topic.name, wanted) for wanted in sliced(once.values())],
            }
            for topic in request.topics
            for once in [{wanted.partition_index: wanted for wanted in topic.partitions}]
        ]
    }
    return _with_times(node, answer, searched, archived, committed) if searched or archived else answer


def _tell(result: dict[str, Any], log: PartitionLog, found: tuple[int, int]) -> None:
    offset, timestamp = found
    result["error_code"] = NONE
    result["timestamp"] = timestamp
    result["offset"] = offset
    result["leader_epoch"] = log.epochs.at(offset) if offset >= 0 else -1


def _may_be_archived(log: PartitionLog, timestamp: int) -> bool:
    """True if the result depends on records that are only in the archive."""
    return log.log_start_offset < log.segments[0].base_offset and log.archive.newest_timestamp >= timestamp


async def _with_times(
    node: Node, answer: Answer, searched: list[_ByTime], archived: list[_ByTime], committed: bool
) -> Answer:
    """Complete a response with what is found by time, here and in the archive."""

    async def look_up(
        result: dict[str, Any], log: PartitionLog, looking: Awaitable[tuple[int, int] | None]
    ) -> None:
        try:
            found = await looking
        except LogError as failure:
            result["error_code"] = failure.code
        else:
            _tell(result, log, _visible(log, found, committed))

    for result, log, timestamp in searched:
        search: Search[Any] = (
            log.search_newest() if timestamp == MAX_TIMESTAMP else log.search_time(timestamp)
        )
        await look_up(result, log, node.segment_threads.search(search))
    if node.archiving is not None:
        archiving = node.archiving
        await asyncio.gather(
            *(
                look_up(
                    result,
                    log,
                    archiving.newest(log)
                    if timestamp == MAX_TIMESTAMP
                    else archiving.first_at(log, timestamp),
                )
                for result, log, timestamp in archived
            )
        )
    return answer


def _offset(log: PartitionLog, timestamp: int, committed: bool) -> tuple[int, int]:
    """The offset that one of the special timestamps stands for. -1 if there is none."""
    if timestamp == LATEST:
        return (log.last_stable_offset if committed else log.written_offset), -1
    if timestamp == EARLIEST:
        return log.log_start_offset, -1
    if timestamp == EARLIEST_LOCAL:
        return log.local_start_offset, -1
    if timestamp == LATEST_TIERED:
        return log.archive.end_offset - 1 if log.archive.segments else -1, -1
    archived = log.config.remote_storage_enable  # EARLIEST_PENDING_UPLOAD
    return max(log.archive.end_offset, log.local_start_offset) if archived else -1, -1


def _visible(log: PartitionLog, found: tuple[int, int] | None, committed: bool) -> tuple[int, int]:
    """What was found by time. -1 if nothing was, or if a reader of committed records may not see it yet."""
    if found is None or (committed and found[0] >= log.last_stable_offset):
        return -1, -1
    return found


def state_error(log: PartitionLog, leader_epoch: int) -> int:
    """The error for a client that takes ``leader_epoch`` for the current one. NONE if it can be served.

    It can't be if the log is offline or its epoch is another one.
    """
    if log.offline is not None:
        return log.offline.code
    if leader_epoch < 0 or leader_epoch == log.leader_epoch:
        return NONE
    return FENCED_LEADER_EPOCH if leader_epoch < log.leader_epoch else UNKNOWN_LEADER_EPOCH


@serves(OFFSET_FOR_LEADER_EPOCH, versions=(2, 4))
def offset_for_leader_epoch(node: Node, request: Any, client: Client) -> Answer:
    """Where an epoch ended. With it a reader finds out whether records it has seen are still there."""

    def look_up(topic: str, wanted: Any) -> dict[str, Any]:
        index = wanted.partition
        partition = node.topics.partition(topic, index)
        if partition is None:
            return {"partition": index, "error_code": UNKNOWN_TOPIC_OR_PARTITION}
        log = partition.log
        error = state_error(log, wanted.current_leader_epoch)
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
