"""ShareGroupHeartbeat and ShareGroupDescribe: the members of share groups (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from millstream.broker.api.groups.assignments import assignment
from millstream.broker.api.groups.classic import ALL_OPERATIONS, NOT_ASKED
from millstream.broker.api.handlers import serves
from millstream.broker.groups.share.group import (
    JOIN,
    LEAVE,
    ShareBeat,
    ShareGroup,
    ShareHeartbeat,
    ShareMember,
)
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND, INVALID_REQUEST, NONE
from millstream.wire.api_keys import SHARE_GROUP_DESCRIBE, SHARE_GROUP_HEARTBEAT
from millstream.wire.codec.schema_codec import Answer, Lazily

_LONGEST_MEMBER_ID = 36  # a UUID as text


@serves(SHARE_GROUP_HEARTBEAT, versions=(1, 1))
def share_group_heartbeat(node: Node, request: Any, client: Client) -> Answer | Awaitable[Answer]:
    try:
        _check(request)
        names = request.subscribed_topic_names
        beat = node.coordinator.share.heartbeat(
            request.group_id,
            ShareHeartbeat(
                request.member_id,
                request.member_epoch,
                None if names is None else frozenset(names),
                request.rack_id,
                client.client_id,
                f"/{client.host}",
            ),
        )
    except RequestRefused as refused:
        return _refused(refused)
    if isinstance(beat, asyncio.Future):
        return _later(node, request.group_id, beat)
    return _answer(node, request.group_id, beat)


async def _later(node: Node, group: str, beat: asyncio.Future[ShareBeat]) -> Answer:
    try:
        return _answer(node, group, await beat)
    except RequestRefused as refused:
        return _refused(refused)


def _refused(refused: RequestRefused) -> Answer:
    return {"error_code": refused.code, "error_message": str(refused), "member_id": None}


def _answer(node: Node, group: str, beat: ShareBeat) -> Answer:
    leaves = beat.epoch == LEAVE
    return {
        "error_code": NONE,
        "member_id": beat.member_id,
        "member_epoch": beat.epoch,
        "heartbeat_interval": 0 if leaves else node.coordinator.share.heartbeat_interval_ms(group),
        "assignment": None if beat.assignment is None else assignment(node, beat.assignment),
    }


def _check(request: Any) -> None:
    """Check what can be wrong with a heartbeat in any group, in Kafka's order and words."""
    wrong = None
    if not 0 < len(request.member_id) <= _LONGEST_MEMBER_ID:
        wrong = "Invalid member id in the request."
    elif not request.member_id.strip():
        wrong = "MemberId can't be empty."
    elif not request.group_id.strip():
        wrong = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        wrong = "RackId can't be empty."
    elif request.member_epoch == JOIN and not request.subscribed_topic_names:
        wrong = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE:
        wrong = "MemberEpoch is invalid."
    if wrong is not None:
        raise RequestRefused(INVALID_REQUEST, wrong)


@serves(SHARE_GROUP_DESCRIBE, versions=(1, 1))
def share_group_describe(node: Node, request: Any, client: Client) -> Answer:
    operations = ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED

    def describe(name: str) -> Answer:
        if (group := node.coordinator.share.groups.get(name)) is not None:
            return {**_described(node, group), "authorized_operations": operations}
        known = node.coordinator.directory.find(name)
        message = f"Group {name} not found." if known is None else f"Group {name} is not a share group."
        return {"error_code": GROUP_ID_NOT_FOUND, "error_message": message, "group_id": name}

    return {"groups": Lazily(tuple(dict.fromkeys(request.group_ids)), describe)}


def _described(node: Node, group: ShareGroup) -> dict[str, Any]:
    return {
        "error_code": NONE,
        "group_id": group.name,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(node, member) for member in group.members.values()],
    }


def _member(node: Node, member: ShareMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.names),
        "assignment": assignment(node, member.assigned, named=True),
    }
