"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from millstream.broker.api.configs import topic_entries
from millstream.broker.api.handlers import serves
from millstream.broker.catalogue.topic import MAX_PARTITIONS, Topic
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import LogError, RequestRefused
from millstream.core.kafka_errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    TOPIC_DELETION_DISABLED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS
from millstream.wire.codec.schema_codec import Answer

# The fields of each setting in the response to CreateTopics.
_TOLD = ("name", "value", "read_only", "config_source", "is_sensitive")
_REFUSALS = (RequestRefused, LogError)
_AT_ONCE = 64  # topics deleted together: more would keep other clients waiting
_TO_THE_END = -1  # DeleteRecords: everything up to the high watermark


@serves(CREATE_TOPICS, versions=(2, 7))
async def create_topics(node: Node, request: Any, client: Client) -> Answer:
    results = []
    for name, wishes in sliced(_by_name(request.topics).items()):
        try:
            wanted = _only(name, wishes)
            topic = await _create(node, wanted, request.validate_only)
        except _REFUSALS as refused:
            results.append({"name": name, "error_code": refused.code, "error_message": str(refused)})
        else:
            results.append(
                {
                    "name": name,
                    "topic_id": topic.id,
                    "error_code": NONE,
                    "error_message": None,
                    "num_partitions": topic.partitions,
                    "replication_factor": 1,
                    "configs": [{key: entry[key] for key in _TOLD} for entry in topic_entries(node, topic)],
                }
            )
    return {"topics": results}


def _by_name(topics: Iterable[Any]) -> dict[str, list[Any]]:
    by_name: dict[str, list[Any]] = {}
    for wanted in topics:
        by_name.setdefault(wanted.name, []).append(wanted)
    return by_name


def _only(name: str, wishes: list[Any]) -> Any:
    if len(wishes) > 1:
        raise RequestRefused(INVALID_REQUEST, f"the request names topic {name} {len(wishes)} times")
    return wishes[0]


async def _create(node: Node, wanted: Any, validate_only: bool) -> Topic:
    if wanted.replication_factor not in (-1, 1):
        raise RequestRefused(
            INVALID_REPLICATION_FACTOR,
            f"replication factor {wanted.replication_factor}: this is a single node, it can only be 1",
        )
    partitions = wanted.num_partitions
    if wanted.assignments:
        if partitions != -1 or wanted.replication_factor != -1:
            raise RequestRefused(
                INVALID_REQUEST,
                "partitions are either assigned by hand or given as a number: with assignments, their number "
                "and the replication factor must be -1",
            )
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise RequestRefused(
                INVALID_REPLICA_ASSIGNMENT,
                f"partitions must be numbered from 0 without gaps, not {indexes}",
            )
        _check_replicas(node, [assignment.broker_ids for assignment in wanted.assignments])
        partitions = len(indexes)
    elif partitions == -1:
        partitions = node.config.num_partitions
    overrides = {}
    for setting in wanted.configs:
        if setting.value is None:
            raise RequestRefused(INVALID_CONFIG, f"{setting.name} has no value")
        overrides[setting.name] = setting.value
    if validate_only:
        return node.catalogue.planned_topic(wanted.name, partitions, overrides)
    return await node.topic_admin.create(wanted.name, partitions, overrides)


def _check_replicas(node: Node, replicas: Sequence[Sequence[int]]) -> None:
    for broker_ids in replicas:
        if list(broker_ids) != [node.role.leader_id]:
            raise RequestRefused(
                INVALID_REPLICA_ASSIGNMENT,
                f"a partition can only be assigned to this node, [{node.role.leader_id}], "
                f"not to {list(broker_ids)}",
            )


@serves(DELETE_TOPICS, versions=(1, 6))
async def delete_topics(node: Node, request: Any, client: Client) -> Answer:
    """By name. From version 6 on, by name or by id."""
    if client.version < 6:
        wanted = [(name, None) for name in request.topic_names]
    else:
        wanted = [(each.name, each.topic_id) for each in request.topics]
    count = Counter(wanted)

    async def delete(name: str | None, topic_id: Any) -> dict[str, Any]:
        topic = None
        try:
            if not node.config.delete_topic_enable:
                code = TOPIC_DELETION_DISABLED if client.version >= 3 else INVALID_REQUEST
                raise RequestRefused(code, "topics can't be deleted here: delete.topic.enable is false")
            if count[name, topic_id] > 1:
                raise RequestRefused(INVALID_REQUEST, "the request names the topic more than once")
            topic = _named(node, name, topic_id)
            await node.topic_admin.delete(topic.name)
            error, message = NONE, None
        except _REFUSALS as refused:
            error, message = refused.code, str(refused)
        return {
            "name": topic.name if topic else name,
            "topic_id": topic.id if topic else topic_id,
            "error_code": error,
            "error_message": message,
        }

    # Many at once: the catalogue records them together, with one sync.
    responses: list[dict[str, Any]] = []
    named = iter(count)
    while together := list(islice(named, _AT_ONCE)):
        responses += await asyncio.gather(*(delete(*each) for each in together))
    return {"responses": responses}


def _named(node: Node, name: str | None, topic_id: Any) -> Topic:
    if (name is None) == (topic_id is None):
        raise RequestRefused(INVALID_REQUEST, "a topic is named either by its name or by its id")
    if name is not None:
        topic = node.catalogue.topics.get(name)
        if topic is None:
            raise RequestRefused(UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    else:
        topic = node.catalogue.by_id.get(topic_id)
        if topic is None:
            raise RequestRefused(UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
    return topic


@serves(CREATE_PARTITIONS, versions=(0, 3))
async def create_partitions(node: Node, request: Any, client: Client) -> Answer:
    results = []
    for name, wishes in sliced(_by_name(request.topics).items()):
        try:
            wanted = _only(name, wishes)
            _check_growth(node, _named(node, name, None), wanted)
            if not request.validate_only:
                await node.topic_admin.add_partitions(name, wanted.count)
            results.append({"name": name, "error_code": NONE, "error_message": None})
        except _REFUSALS as refused:
            results.append({"name": name, "error_code": refused.code, "error_message": str(refused)})
    return {"results": results}


def _check_growth(node: Node, topic: Topic, wanted: Any) -> None:
    if not topic.partitions < wanted.count <= MAX_PARTITIONS:
        raise RequestRefused(
            INVALID_PARTITIONS,
            f"topic {topic.name} has {topic.partitions} partitions; their number can only grow, to at most "
            f"{MAX_PARTITIONS}, and {wanted.count} does not",
        )
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - topic.partitions:
            raise RequestRefused(
                INVALID_REPLICA_ASSIGNMENT,
                f"{wanted.count - topic.partitions} partitions would be added, {len(wanted.assignments)} are "
                "assigned",
            )
        _check_replicas(node, [assignment.broker_ids for assignment in wanted.assignments])


@serves(DELETE_RECORDS, versions=(0, 2))
def delete_records(node: Node, request: Any, client: Client) -> Answer:
    """Delete the records before an offset. -1 means all that are there."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _delete_records(node, topic.name, each.partition_index, each.offset)
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _delete_records(node: Node, topic: str, index: int, offset: int) -> dict[str, int]:
    low_watermark, error = -1, NONE
    partition = node.topics.partition(topic, index)
    if partition is None:
        error = UNKNOWN_TOPIC_OR_PARTITION
    elif partition.log.offline is not None:
        error = partition.log.offline.code
    elif "delete" not in partition.log.config.cleanup_policy:
        error = POLICY_VIOLATION  # compaction alone decides what such a topic keeps
    elif offset < _TO_THE_END or offset > partition.log.written_offset:
        error = OFFSET_OUT_OF_RANGE
    else:
        try:
            low_watermark = partition.log.delete_records(
                partition.log.written_offset if offset == _TO_THE_END else offset
            )
        except LogError as refused:
            error = refused.code
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": error}
