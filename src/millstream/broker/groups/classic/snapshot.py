"""A classic group as it is stored in the catalogue: what its members last agreed on, as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from millstream.broker.groups.classic.group import ClassicGroup, ClassicState
from millstream.broker.groups.classic.member import ClassicMember, JoinRequest


def to_text(group: ClassicGroup) -> str:
    """What ``group`` agreed on, as JSON. Members are stored only if the group is stable."""
    members = group.members.values() if group.state is ClassicState.STABLE else ()
    return json.dumps(
        {
            "kind": group.kind,
            "generation": group.generation,
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "leader": group.leader,
            "empty_since_ms": group.empty_since_ms,
            "members": [_written(member) for member in members],
        }
    )


def restore(group: ClassicGroup, fields: Mapping[str, Any], now: float) -> None:
    """Put the stored state into a new group. Every member's session time-out starts over."""
    group.empty_since_ms = fields["empty_since_ms"]
    group.restore(
        fields["generation"],
        fields["protocol_type"],
        fields["protocol"],
        fields["leader"],
        [_read(each, fields["protocol_type"], now) for each in fields["members"]],
    )


def _written(member: ClassicMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout": member.session_timeout,
        "rebalance_timeout": member.rebalance_timeout,
        "protocols": [[name, base64.b64encode(metadata).decode()] for name, metadata in member.protocols],
        "assignment": base64.b64encode(member.assignment).decode(),
    }


def _read(fields: dict[str, Any], protocol_type: str, now: float) -> ClassicMember:
    join = JoinRequest(
        fields["member_id"],
        fields["instance_id"],
        fields["client_id"],
        fields["client_host"],
        fields["session_timeout"],
        fields["rebalance_timeout"],
        protocol_type,
        tuple((name, base64.b64decode(metadata)) for name, metadata in fields["protocols"]),
    )
    member = ClassicMember(join.member_id, join, deadline=now + join.session_timeout)
    member.assignment = base64.b64decode(fields["assignment"])
    return member
