"""Where share groups are in their partitions: DescribeShareGroupOffsets, AlterShareGroupOffsets and
DeleteShareGroupOffsets.

The start offset is that of the first record that a group has not finished. Only a group without members can
be moved. What it has finished is forgotten then, so records are delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.catalogue.topic import Topic
from millstream.broker.groups.topics import Partition
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import CatalogueFailed, RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
)
from millstream.wire.codec.schema_codec import Answer, Lazily

_UNKNOWN = {
    "error_code": UNKNOWN_TOPIC_OR_PARTITION,
    "error_message": "This server does not host this topic-partition.",
}


# Describe --------------------------------------------------------------------------------------------


@serves(DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1))
def describe_share_group_offsets(node: Node, request: Any, client: Client) -> Answer:
    """Where groups are, and from version 1 on their lag. What is not known is -1, and no error."""

    def describe(group: Any) -> Answer:
        name = group.group_id
        if group.topics is None:
            asked = _read_by(node, name)
        else:
            asked = [(topic.topic_name, topic.partitions) for topic in group.topics]
        topics = [_described(node, name, topic, indexes) for topic, indexes in sliced(asked)]
        return {"group_id": name, "topics": topics, "error_code": NONE}

    return {"groups": Lazily(tuple(request.groups), describe)}


def _read_by(node: Node, group: str) -> list[tuple[str, list[int]]]:
    """The partitions that a group has begun to read, or that its members subscribe to."""
    places: set[Partition] = set(node.share_delivery.places(group))
    if (known := node.coordinator.share.groups.get(group)) is not None:
        places |= {(topic, index) for topic, count in known.existing.values() for index in range(count)}
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(places):
        hosted = node.hosted.get(topic_id)
        if hosted is not None:
            found.setdefault(hosted.name, []).append(index)
    return list(found.items())


def _described(node: Node, group: str, name: str, indexes: Iterable[int]) -> dict[str, Any]:
    topic = node.catalogue.topics.get(name)
    partitions = []
    for index in sliced(indexes):
        at = None if topic is None else node.share_delivery.describe(group, (topic.id.bytes, index))
        partitions.append(
            {
                "partition_index": index,
                "start_offset": -1 if at is None else at.start_offset,
                "leader_epoch": 0 if at is None else at.leader_epoch,
                "lag": -1 if at is None else at.lag,
                "error_code": NONE,
            }
        )
    return {"topic_name": name, "topic_id": _id(topic), "partitions": partitions}


# Alter -----------------------------------------------------------------------------------------------


@serves(ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0))
async def alter_share_group_offsets(node: Node, request: Any, client: Client) -> Answer:
    """Let a group begin elsewhere. A group that does not exist is created."""
    name = request.group_id
    offsets: dict[Partition, int] = {}
    responses = []
    for named in sliced(request.topics):
        topic = node.catalogue.topics.get(named.topic_name)
        partitions = []
        for each in sliced(named.partitions):
            index = each.partition_index
            if topic is not None and 0 <= index < topic.partitions:
                offsets[topic.id.bytes, index] = each.start_offset
                told: dict[str, Any] = {"error_code": NONE, "error_message": None}
            else:
                told = _UNKNOWN
            partitions.append({"partition_index": index, **told})
        responses.append({"topic_name": named.topic_name, "topic_id": _id(topic), "partitions": partitions})
    try:
        await _alter(node, name, offsets)
    except RequestRefused as refused:
        return {"error_code": refused.code, "error_message": str(refused), "responses": []}
    return {"error_code": NONE, "error_message": None, "responses": responses}


async def _alter(node: Node, name: str, offsets: dict[Partition, int]) -> None:
    if not name:
        raise RequestRefused(INVALID_GROUP_ID, "The group id is empty.")
    _check_movable(node, name)
    if not offsets:
        return
    try:
        node.coordinator.share.create(name)
        await node.coordinator.share.save(name)
        _check_movable(node, name)  # a member may have joined meanwhile
        await node.share_delivery.alter(name, offsets)
    except CatalogueFailed as error:
        raise RequestRefused(COORDINATOR_NOT_AVAILABLE, str(error)) from None


def _check_movable(node: Node, name: str) -> None:
    """Raise RequestRefused if this is a group of another kind, or a share group with members."""
    known = node.coordinator.directory.find(name)
    if known is not None and name not in node.coordinator.share.groups:
        raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} is not a share group.")
    if known is not None and not known.is_empty:
        raise RequestRefused(NON_EMPTY_GROUP, f"Share group {name} has members; stop them first.")


# Delete ----------------------------------------------------------------------------------------------


@serves(DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0))
async def delete_share_group_offsets(node: Node, request: Any, client: Client) -> Answer:
    """Let a group begin in these topics as in new ones."""
    name = request.group_id
    try:
        if not name:
            raise RequestRefused(INVALID_GROUP_ID, "The group id is empty.")
        _check_movable(node, name)
        if name not in node.coordinator.share.groups:
            raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} not found.")
        begun: dict[bytes, list[Partition]] = {}
        for place in node.share_delivery.places(name):
            begun.setdefault(place[0], []).append(place)
        gone: list[Partition] = []
        responses = []
        for named in sliced(request.topics):
            topic = node.catalogue.topics.get(named.topic_name)
            told: dict[str, Any] = {"error_code": NONE, "error_message": None}
            if topic is None:
                told = _UNKNOWN
            elif topic.id.bytes not in begun:
                told = {**_UNKNOWN, "error_message": "There is no offset information to delete."}
            else:
                gone += begun[topic.id.bytes]
            told_id = None if told["error_code"] else _id(topic)
            responses.append({"topic_name": named.topic_name, "topic_id": told_id, **told})
        if gone:
            await node.share_delivery.delete(name, gone)
    except CatalogueFailed as error:
        return {"error_code": COORDINATOR_NOT_AVAILABLE, "error_message": str(error), "responses": []}
    except RequestRefused as refused:
        return {"error_code": refused.code, "error_message": str(refused), "responses": []}
    return {"error_code": NONE, "error_message": None, "responses": responses}


def _id(topic: Topic | None) -> Any:
    return None if topic is None else topic.id
