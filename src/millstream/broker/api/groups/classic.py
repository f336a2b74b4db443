"""FindCoordinator and classic groups: join, sync, heartbeat, leave, list, describe, delete.

Requests that only groups of another kind serve are beside this.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.groups.classic.group import ClassicGroup, ClassicState
from millstream.broker.groups.classic.member import JoinRequest
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.kafka_errors import (
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    NONE,
)
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from millstream.wire.codec.schema_codec import Answer, Lazily, answer_writer

# What a client may do with a group when there are no access rules, one bit each: read, delete, describe,
# describe and alter settings.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
NOT_ASKED = -(2**31)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_FROM = 6  # from this version on FindCoordinator also finds what keeps the state of share groups
_PROTOCOL_NAMED_FROM = 5  # from this version on SyncGroup has to name the agreed protocol


@serves(FIND_COORDINATOR, versions=(0, 6))
def find_coordinator(node: Node, request: Any, client: Client) -> Answer:
    """This node coordinates everything. From version 4 on, a request has many keys."""
    key_type = getattr(request, "key_type", _GROUP)
    served = {_GROUP, _TRANSACTION} if client.version < _SHARE_FROM else {_GROUP, _TRANSACTION, _SHARE}
    if key_type in served:
        found = {
            "error_code": NONE,
            "node_id": node.role.leader_id,
            "host": node.role.host,
            "port": node.role.port,
        }
    else:
        message = (
            f"coordinators of type {key_type} are not served, only of groups (0), transactions (1) and, from "
            f"version {_SHARE_FROM} on, share groups (2)"
        )
        found = {
            "error_code": INVALID_REQUEST,
            "error_message": message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    if client.version < 4:
        return found
    return {"coordinators": [{"key": key, **found} for key in request.coordinator_keys]}


@serves(JOIN_GROUP, versions=(0, 9))
async def join_group(node: Node, request: Any, client: Client) -> Answer:
    session_timeout = request.session_timeout.total_seconds()
    rebalance_timeout = session_timeout  # before version 1 there was only one timeout
    if client.version >= 1:
        rebalance_timeout = max(request.rebalance_timeout.total_seconds(), 0.0)
    joined = await node.coordinator.classic_requests.join(
        request.group_id,
        JoinRequest(
            request.member_id,
            getattr(request, "group_instance_id", None),
            client.client_id,
            f"/{client.host}",
            session_timeout,
            rebalance_timeout,
            request.protocol_type,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            getattr(request, "reason", None) or "",
            id_required=client.version >= 4,
            can_skip_assignment=client.version >= 9,
        ),
        client.is_gone,
    )
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol if client.version >= 7 else joined.protocol or "",
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in joined.members
        ],
    }


@serves(SYNC_GROUP, versions=(0, 5))
async def sync_group(node: Node, request: Any, client: Client) -> Answer:
    protocol_type = getattr(request, "protocol_type", None)
    protocol_name = getattr(request, "protocol_name", None)
    if client.version >= _PROTOCOL_NAMED_FROM and (protocol_type is None or protocol_name is None):
        return {"error_code": INCONSISTENT_GROUP_PROTOCOL, "assignment": b""}
    synced = await node.coordinator.classic_requests.sync(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id,
        protocol_type,
        protocol_name,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


@serves(HEARTBEAT, versions=(0, 4))
def heartbeat(node: Node, request: Any, client: Client) -> bytes:
    instance_id = request.group_instance_id if client.version >= 3 else None
    error = node.coordinator.classic_requests.heartbeat(
        request.group_id, request.member_id, instance_id, request.generation_id
    )
    return _heartbeat_answer(client.version, error)


@cache
def _heartbeat_answer(version: int, error: int) -> bytes:
    """There are few different ones, and every member of every group gets one every few seconds."""
    body = bytearray()
    answer_writer(12, version)(body, {"error_code": error})
    return bytes(body)


@serves(LEAVE_GROUP, versions=(0, 5))
def leave_group(node: Node, request: Any, client: Client) -> Answer:
    """From version 3 on, several members can leave at once, by member id or by instance id."""
    if client.version < 3:
        (error,) = node.coordinator.classic_requests.leave(request.group_id, [(request.member_id, None)])
        return {"error_code": error}
    if not request.group_id:
        return {"error_code": INVALID_GROUP_ID}
    leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    errors = node.coordinator.classic_requests.leave(request.group_id, leaving)
    return {
        "error_code": NONE,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(leaving, errors, strict=True)
        ],
    }


@serves(DESCRIBE_GROUPS, versions=(0, 6))
def describe_groups(node: Node, request: Any, client: Client) -> Answer:
    """A group that does not exist or is not classic is Dead. From version 6 on that is also an error."""
    operations = ALL_OPERATIONS if getattr(request, "include_authorized_operations", False) else NOT_ASKED

    def describe(name: str) -> Answer:
        known = node.coordinator.directory.find(name)
        if (group := node.coordinator.classic.groups.get(name)) is not None:
            return {**_described(group), "authorized_operations": operations}
        missing = client.version >= 6
        message = f"Group {name} not found." if known is None else f"Group {name} is not a classic group."
        return {
            "error_code": GROUP_ID_NOT_FOUND if missing else NONE,
            "error_message": message if missing else None,
            "group_id": name,
            "group_state": ClassicState.DEAD.value,
            "authorized_operations": NOT_ASKED if missing else operations,
        }

    # A group that is named twice is described twice, as in Kafka. The response is made piece by piece.
    return {"groups": Lazily(tuple(request.groups), describe)}


def _described(group: ClassicGroup) -> dict[str, Any]:
    # Metadata and assignments make sense only together, under the protocol that the group agreed on.
    stable = group.state is ClassicState.STABLE
    return {
        "group_id": group.name,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
    }


@serves(LIST_GROUPS, versions=(0, 5))
def list_groups(node: Node, request: Any, client: Client) -> Answer:
    states, kinds = getattr(request, "states_filter", ()), getattr(request, "types_filter", ())
    return {
        "error_code": NONE,
        "groups": [
            {
                "group_id": group.name,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": group.kind,
            }
            for group in node.coordinator.directory.listed(states, kinds)
        ],
    }


@serves(DELETE_GROUPS, versions=(0, 2))
async def delete_groups(node: Node, request: Any, client: Client) -> Answer:
    return {
        "results": [
            {"group_id": name, "error_code": await node.coordinator.directory.delete(name)}
            for name in sliced(dict.fromkeys(request.groups_names))
        ]
    }
