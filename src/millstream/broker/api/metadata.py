"""Metadata and DescribeTopicPartitions: which topics exist and which broker leads their partitions.

One broker leads all of them. Its standbys are listed too: a client that loses the leader asks one of them
where to go. A partition whose log is offline has no leader. Clients wait for one and continue with the other
partitions.

A topic that a client asks for by name is created if the client allows it and
``auto.create.topics.enable`` is on. The response waits for that, so the client need not ask again. A
standby creates nothing. It does not report a topic as unknown either, because its leader may have it, and
producers fail the records of an unknown topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.catalogue.topic_names import check_topic_name
from millstream.broker.handler_types import Client, Reply
from millstream.broker.node import Node
from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.core.errors import LogError, RequestRefused
from millstream.core.kafka_errors import (
    INVALID_REQUEST,
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    NONE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import DESCRIBE_TOPIC_PARTITIONS, METADATA
from millstream.wire.codec.schema_codec import Answer
from millstream.wire.hot.metadata import NO_LEADER, NOT_ASKED, metadata_answer, metadata_topic

# A bit for every operation that applies. There are no access rules yet, so all are allowed.
TOPIC_OPERATIONS = 0b1101_1111_1000  # read write create delete alter describe, describe and alter configs
CLUSTER_OPERATIONS = 0b1_1111_1010_0000  # create alter describe act, describe and alter configs, idempotent
_CREATED_AT_ONCE = 20  # topics
DESCRIBE_LIMIT = 2000  # partitions in one response, whatever the client asks for


@serves(METADATA, versions=(0, 13))
def metadata(node: Node, request: Any, client: Client) -> Reply | Awaitable[Reply]:
    wanted = None if request.topics is None else list(dict.fromkeys(request.topics))
    if wanted is None or (client.version == 0 and not wanted):
        return _answer(node, request, client.version, [(topic, 0, "", b"") for topic in node.topics])
    allowed = getattr(request, "allow_auto_topic_creation", True) and node.config.auto_create_topics_enable
    if allowed and not node.role.is_follower:
        missing = [t.name for t in wanted if t.name is not None and t.name not in node.hosted]
        if missing:
            return _create_and_answer(node, request, client.version, wanted, missing)
    return _answer(node, request, client.version, [_find(node, topic) for topic in sliced(wanted)])


# A topic, or the error why there is none; then the name and id that were asked for.
Found = tuple["LocalTopic | None", int, str | None, bytes]


def _find(node: Node, wanted: Any) -> Found:
    topic_id = getattr(wanted, "topic_id", None)
    if topic_id is not None:
        return node.hosted.get(topic_id.bytes), UNKNOWN_TOPIC_ID, None, topic_id.bytes
    name = wanted.name
    if name is None:
        return None, INVALID_REQUEST, None, bytes(16)
    topic = node.hosted.get(name)
    if topic is None:
        try:
            check_topic_name(name)
        except RequestRefused as error:
            return None, error.code, name, bytes(16)
    unknown = LEADER_NOT_AVAILABLE if node.standby is not None else UNKNOWN_TOPIC_OR_PARTITION
    return topic, unknown, name, bytes(16)


async def _create_and_answer(
    node: Node, request: Any, version: int, wanted: list[Any], missing: list[str]
) -> Reply:
    failed: dict[str, int] = {}

    async def create(name: str) -> None:
        try:
            check_topic_name(name)
            await node.topic_admin.create(name, node.config.num_partitions, {})
        except RequestRefused as error:
            if error.code != TOPIC_ALREADY_EXISTS:  # another client created it meanwhile
                failed[name] = error.code
        except LogError as error:
            failed[name] = error.code

    names = list(dict.fromkeys(missing))
    for first in range(0, len(names), _CREATED_AT_ONCE):
        await asyncio.gather(*map(create, names[first : first + _CREATED_AT_ONCE]))
    found = [_find(node, topic) for topic in sliced(wanted)]
    return _answer(
        node,
        request,
        version,
        [(topic, failed.get(name or "", error), name, key) for topic, error, name, key in found],
    )


def _answer(node: Node, request: Any, version: int, topics: list[Found]) -> bytes:
    operations = (
        TOPIC_OPERATIONS if getattr(request, "include_topic_authorized_operations", False) else NOT_ASKED
    )
    of_cluster = (
        CLUSTER_OPERATIONS if getattr(request, "include_cluster_authorized_operations", False) else NOT_ASKED
    )
    node_id = node.role.leader_id
    parts = []
    for topic, error, name, topic_id in sliced(topics):
        if topic is None:
            parts.append(metadata_topic(version, error, name, topic_id, node_id, (), operations))
            continue
        part = topic.described.get((version, operations))
        if part is None:
            # None: the partition has no leader.
            epochs = [None if p.log.offline is not None else p.log.leader_epoch for p in topic.partitions]
            part = metadata_topic(version, NONE, topic.name, topic.id_bytes, node_id, epochs, operations)
            topic.described[version, operations] = part
        parts.append(part)
    return metadata_answer(version, node.brokers, node_id, node.catalogue.cluster_id, parts, of_cluster)


@serves(DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0))
def describe_topic_partitions(node: Node, request: Any, client: Client) -> Answer:
    """In order of names, a limited number of partitions at a time. The cursor says where to continue."""
    if request.cursor is not None and not _is_sound(request):
        refused = [{"name": topic.name, "error_code": INVALID_REQUEST} for topic in request.topics]
        return {"topics": refused, "next_cursor": None}
    names = sorted({topic.name for topic in request.topics} or {topic.name for topic in node.topics})
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = request.cursor.partition_index
    left = max(1, min(request.response_partition_limit, DESCRIBE_LIMIT))
    topics: list[dict[str, Any]] = []
    cursor = None
    for name in sliced(names):
        topic = node.hosted.get(name)
        if topic is None:
            if request.topics:
                topics.append({"error_code": _name_error(name), "name": name})
            first = 0
            continue
        if left == 0:
            cursor = {"topic_name": name, "partition_index": 0}
            break
        chosen = topic.partitions[first : first + left]
        topics.append(
            {
                "error_code": NONE,
                "name": name,
                "topic_id": topic.id,
                "topic_authorized_operations": TOPIC_OPERATIONS,
                "partitions": [_described(partition, node.role.leader_id) for partition in chosen],
            }
        )
        left -= len(chosen)
        if first + len(chosen) < len(topic.partitions):
            cursor = {"topic_name": name, "partition_index": first + len(chosen)}
            break
        first = 0
    return {"topics": topics, "next_cursor": cursor}


def _described(partition: Partition, node_id: int) -> dict[str, Any]:
    is_offline = partition.log.offline is not None
    return {
        "error_code": LEADER_NOT_AVAILABLE if is_offline else NONE,
        "partition_index": partition.index,
        "leader_id": NO_LEADER if is_offline else node_id,
        "leader_epoch": partition.log.leader_epoch,
        "replica_nodes": [node_id],
        "isr_nodes": [] if is_offline else [node_id],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
        "offline_replicas": [node_id] if is_offline else [],
    }


def _is_sound(request: Any) -> bool:
    """True if a response to this request could have returned the cursor."""
    names = [topic.name for topic in request.topics]
    return request.cursor.partition_index >= 0 and (not names or request.cursor.topic_name in names)


def _name_error(name: str) -> int:
    try:
        check_topic_name(name)
    except RequestRefused:
        return INVALID_TOPIC
    return UNKNOWN_TOPIC_OR_PARTITION
