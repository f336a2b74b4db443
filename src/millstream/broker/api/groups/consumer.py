"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from millstream.broker.api.groups.assignments import assignment
from millstream.broker.api.groups.classic import ALL_OPERATIONS, NOT_ASKED
from millstream.broker.api.handlers import serves
from millstream.broker.groups.consumer.group import JOIN, LEAVE, ConsumerGroup, Heartbeat, HeartbeatResponse
from millstream.broker.groups.consumer.member import LEFT_STATIC, ConsumerMember
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND, INVALID_REQUEST, NONE, UNSUPPORTED_ASSIGNOR
from millstream.core.loop_slices import sliced
from millstream.core.user_regex import BadPattern, compile_pattern
from millstream.wire.api_keys import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from millstream.wire.codec.schema_codec import Answer, Lazily

_ID_BY_CLIENT_FROM = 1  # from this version on clients choose their own member id
_CLASSIC, _CONSUMER = 0, 1  # the protocol that a member uses
# A member that waits for partitions of others is told to ask this much more often. Nothing tells it when
# they are free, and each heartbeat that comes too early would otherwise cost it a whole interval.
_SOONER = 10


@serves(CONSUMER_GROUP_HEARTBEAT, versions=(0, 1))
def consumer_group_heartbeat(node: Node, request: Any, client: Client) -> Answer | Awaitable[Answer]:
    try:
        _check(node, request, client.version)
        if regex := getattr(request, "subscribed_topic_regex", None):
            _match(node, regex)
        beat = node.coordinator.consumer.heartbeat(request.group_id, _heartbeat(request, client))
    except RequestRefused as refused:
        return _refused(refused)
    if isinstance(beat, asyncio.Future):
        return _later(node, request.group_id, beat)
    return _answer(node, request.group_id, beat)


def _match(node: Node, regex: str) -> None:
    """Match all topics now, in slices: the group matches them all at once, and the results are remembered."""
    try:
        matches = compile_pattern(regex)
    except BadPattern:
        return  # the group will report it
    for name in sliced(list(node.catalogue.topics)):
        matches(name)


async def _later(node: Node, group: str, beat: asyncio.Future[HeartbeatResponse]) -> Answer:
    try:
        return _answer(node, group, await beat)
    except RequestRefused as refused:
        return _refused(refused)


def _refused(refused: RequestRefused) -> Answer:
    return {"error_code": refused.code, "error_message": str(refused), "member_id": None}


def _answer(node: Node, group: str, beat: HeartbeatResponse) -> Answer:
    interval = node.coordinator.consumer.heartbeat_interval_ms(group) if beat.epoch >= 0 else 0
    if beat.waits:
        interval = max(1, interval // _SOONER)
    return {
        "error_code": NONE,
        "member_id": beat.member_id,
        "member_epoch": beat.epoch,
        "heartbeat_interval": interval,
        "assignment": None if beat.assignment is None else assignment(node, beat.assignment),
    }


def _heartbeat(request: Any, client: Client) -> Heartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    timeout = request.rebalance_timeout
    return Heartbeat(
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        timeout.total_seconds() if timeout >= timedelta(0) else None,
        None if names is None else frozenset(names),
        getattr(request, "subscribed_topic_regex", None),
        request.server_assignor,
        None
        if owned is None
        else frozenset(
            (each.topic_id.bytes, index)
            for each in owned
            if each.topic_id is not None
            for index in each.partitions
        ),
        client.client_id,
        f"/{client.host}",
    )


def _check(node: Node, request: Any, version: int) -> None:
    """Check what can be wrong with a heartbeat in any group, in Kafka's order and words."""
    epoch = request.member_epoch
    joins = epoch == JOIN
    regex = getattr(request, "subscribed_topic_regex", None)
    assignors = node.config.group_consumer_assignors
    wrong = None
    if not request.group_id.strip():
        wrong = "GroupId can't be empty."
    elif request.instance_id is not None and not request.instance_id.strip():
        wrong = "InstanceId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        wrong = "RackId can't be empty."
    elif epoch < LEFT_STATIC:
        wrong = "MemberEpoch is invalid."
    elif not request.member_id.strip() and (not joins or version >= _ID_BY_CLIENT_FROM):
        wrong = "MemberId can't be empty."
    elif epoch == LEFT_STATIC and request.instance_id is None:
        wrong = "InstanceId can't be null."
    elif joins and request.rebalance_timeout == timedelta(milliseconds=-1):
        wrong = "RebalanceTimeoutMs must be provided in first request."
    elif joins and (request.topic_partitions is None or request.topic_partitions):
        wrong = "TopicPartitions must be empty when (re-)joining."
    elif joins and request.subscribed_topic_names is None and regex is None:
        wrong = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if wrong is not None:
        raise RequestRefused(INVALID_REQUEST, wrong)
    if epoch not in (LEAVE, LEFT_STATIC) and request.server_assignor not in (None, *assignors):
        raise RequestRefused(
            UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


@serves(CONSUMER_GROUP_DESCRIBE, versions=(0, 1))
def consumer_group_describe(node: Node, request: Any, client: Client) -> Answer:
    operations = ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED

    def describe(name: str) -> Answer:
        known = node.coordinator.directory.find(name)
        if (group := node.coordinator.consumer.groups.get(name)) is not None:
            return {**_described(node, group), "authorized_operations": operations}
        message = f"Group {name} not found." if known is None else f"Group {name} is not a consumer group."
        return {"error_code": GROUP_ID_NOT_FOUND, "error_message": message, "group_id": name}

    return {"groups": Lazily(tuple(dict.fromkeys(request.group_ids)), describe)}


def _described(node: Node, group: ConsumerGroup) -> dict[str, Any]:
    return {
        "error_code": NONE,
        "group_id": group.name,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(node, member) for member in group.members.values()],
    }


def _member(node: Node, member: ConsumerMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.names),
        "subscribed_topic_regex": member.regex,
        "assignment": assignment(node, member.assigned, named=True),
        "target_assignment": assignment(node, member.target, named=True),
        "member_type": _CONSUMER if member.classic is None else _CLASSIC,
    }
