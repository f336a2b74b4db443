"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.catalogue.topic import Topic
from millstream.broker.groups.committed_offset import CommittedOffset, OffsetToCommit
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    INVALID_GROUP_ID,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
)
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from millstream.wire.codec.schema_codec import Answer

_NEVER_COMMITTED = CommittedOffset(-1, -1, "", -1, -1)
_EPOCHS_FROM = 9  # from this version on OffsetCommit knows member epochs and GROUP_ID_NOT_FOUND
_TOPIC_IDS_FROM = 10  # from this version on OffsetCommit and OffsetFetch name topics by id


@serves(OFFSET_COMMIT, versions=(2, 10))
async def offset_commit(node: Node, request: Any, client: Client) -> Answer:
    """Partitions are independent: an error in one does not keep the others from being committed."""
    expire_ms = -1
    if client.version <= 4 and request.retention_time >= timedelta(0):
        expire_ms = node.clock.now_ms() + request.retention_time // timedelta(milliseconds=1)
    commits, topics, good = offsets_to_commit(
        node, request.topics, expire_ms=expire_ms, by_id=client.version >= _TOPIC_IDS_FROM
    )
    error = node.coordinator.offsets.check_commit(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        by_epoch=client.version >= _EPOCHS_FROM,
    )
    if not error:
        commits, good = without_stale(node, request, request.generation_id_or_member_epoch, commits, good)
    if not error and commits:
        # If a partition is named more than once, the last one counts.
        once = {(commit.topic, commit.partition): commit for commit in sliced(commits)}
        error = await _commit(node, request.group_id, once.values())
    if error:
        for answer in sliced(good):
            answer["error_code"] = error
    return {"topics": topics}


async def _commit(node: Node, group: str, commits: Collection[OffsetToCommit]) -> int:
    """Commit offsets, on as many brokers as their topics ask for. Returns an error code."""
    copies = max(
        (topic.copies for commit in sliced(commits) if (topic := node.hosted.get(commit.topic))), default=1
    )
    try:
        node.in_sync.check_catalogue(copies)
        error = await node.coordinator.offsets.commit(group, commits)
        if not error:
            await node.in_sync.have_catalogue(copies)
    except RequestRefused as refused:
        return refused.code
    return error


def offsets_to_commit(
    node: Node, topics: Iterable[Any], *, expire_ms: int, by_id: bool = False
) -> tuple[list[OffsetToCommit], list[dict[str, Any]], list[dict[str, Any]]]:
    """Sort out which offsets of a request can be committed.

    Returns those offsets, the response's topics, and the parts of the response that belong to those
    offsets, for an error that concerns all of them.
    """
    now_ms = node.clock.now_ms()
    commits: list[OffsetToCommit] = []
    told: list[dict[str, Any]] = []
    good: list[dict[str, Any]] = []
    for named in topics:
        topic = _topic(node, named, by_id)
        answers = []
        for partition in named.partitions:
            error = _check(node, topic, partition, by_id)
            answer = {"partition_index": partition.partition_index, "error_code": error}
            answers.append(answer)
            if not error and topic is not None:
                good.append(answer)
                commits.append(
                    OffsetToCommit(
                        topic.name,
                        partition.partition_index,
                        partition.committed_offset,
                        getattr(partition, "committed_leader_epoch", -1),
                        partition.committed_metadata or "",
                        now_ms,
                        expire_ms,
                    )
                )
        told.append({**_name(named, by_id), "partitions": answers})
    return commits, told, good


def without_stale(
    node: Node, request: Any, epoch: int, commits: list[OffsetToCommit], good: list[dict[str, Any]]
) -> tuple[list[OffsetToCommit], list[dict[str, Any]]]:
    """Leave out commits for partitions that were not the member's in the epoch that it commits under.

    Returns the other commits and their parts of the response. The parts of those left out get an error.
    """
    kept: list[OffsetToCommit] = []
    told: list[dict[str, Any]] = []
    for commit, answer in sliced(zip(commits, good, strict=True)):
        answer["error_code"] = node.coordinator.offsets.check_partition(
            request.group_id, getattr(request, "member_id", ""), epoch, commit.topic, commit.partition
        )
        if not answer["error_code"]:
            kept.append(commit)
            told.append(answer)
    return kept, told


def _check(node: Node, topic: Topic | None, partition: Any, by_id: bool) -> int:
    if topic is None:
        return UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
    if not 0 <= partition.partition_index < topic.partitions:
        return UNKNOWN_TOPIC_OR_PARTITION
    metadata = partition.committed_metadata
    if metadata and len(metadata.encode()) > node.config.offset_metadata_max_bytes:
        return OFFSET_METADATA_TOO_LARGE
    return NONE


def _topic(node: Node, named: Any, by_id: bool) -> Topic | None:
    return node.catalogue.by_id.get(named.topic_id) if by_id else node.catalogue.topics.get(named.name)


def _name(named: Any, by_id: bool) -> dict[str, Any]:
    return {"topic_id": named.topic_id} if by_id else {"name": named.name}


@serves(OFFSET_FETCH, versions=(1, 10))
def offset_fetch(node: Node, request: Any, client: Client) -> Answer:
    """The committed offsets of groups. -1 without an error means that nothing was committed.

    With ``require_stable``, an offset that an open transaction may still change is an error, after which
    the consumer asks again. If it continued from that offset, it would repeat the transaction's work.
    """
    stable = getattr(request, "require_stable", False)
    if client.version < 8:
        return {"topics": _fetched(node, request.group_id, request.topics, False, stable), "error_code": NONE}
    by_id = client.version >= _TOPIC_IDS_FROM
    groups: list[dict[str, Any]] = []
    for group in request.groups:
        name = group.group_id
        error = node.coordinator.offsets.check_fetch(
            name, getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
        )
        topics = [] if error else _fetched(node, name, group.topics, by_id, stable)
        groups.append({"group_id": name, "topics": topics, "error_code": error})
    return {"groups": groups}


def _fetched(
    node: Node, group: str, asked: Iterable[Any] | None, by_id: bool, stable: bool
) -> list[dict[str, Any]]:
    offsets = node.coordinator.offsets.of(group)
    decisions = node.catalogue.decisions
    check = stable and decisions.has_pending(group)
    wanted: list[tuple[dict[str, Any], Topic | None, Iterable[int]]]
    if asked is None:  # all that are or may be committed
        known = {name: set(partitions) for name, partitions in offsets.items()}
        for name, index in decisions.pending_of(group) if check else ():
            known.setdefault(name, set()).add(index)
        wanted = [
            ({"topic_id": topic.id} if by_id else {"name": name}, topic, sorted(indexes))
            for name, indexes in known.items()
            if (topic := node.catalogue.topics.get(name)) is not None
        ]
    else:
        wanted = [
            (_name(named, by_id), _topic(node, named, by_id), named.partition_indexes) for named in asked
        ]
    answer = []
    for named_so, topic, indexes in sliced(wanted):
        error = UNKNOWN_TOPIC_ID if by_id and topic is None else NONE
        of_topic: Mapping[int, CommittedOffset] = offsets.get(topic.name, {}) if topic is not None else {}
        partitions = []
        for index in sliced(indexes):
            if check and topic is not None and decisions.is_unstable(group, topic.name, index):
                partitions.append(_partition(index, _NEVER_COMMITTED, UNSTABLE_OFFSET_COMMIT))
            else:
                partitions.append(_partition(index, of_topic.get(index, _NEVER_COMMITTED), error))
        answer.append({**named_so, "partitions": partitions})
    return answer


def _partition(index: int, committed: CommittedOffset, error: int = NONE) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error,
    }


@serves(OFFSET_DELETE, versions=(0, 0))
async def offset_delete(node: Node, request: Any, client: Client) -> Answer:
    """Delete offsets, except in topics that members of the group are reading."""
    if not request.group_id:
        return {"error_code": INVALID_GROUP_ID}
    error, refused = await node.coordinator.offsets.delete(
        request.group_id,
        [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions],
    )
    if error:
        return {"error_code": error}
    return {
        "error_code": NONE,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": _deletable(node, topic.name, each.partition_index)
                        or refused.get(topic.name, NONE),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _deletable(node: Node, name: str, partition: int) -> int:
    topic = node.catalogue.topics.get(name)
    known = topic is not None and 0 <= partition < topic.partitions
    return NONE if known else UNKNOWN_TOPIC_OR_PARTITION
