"""The JSON form in which the catalogue keeps a group of the consumer protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from millstream.broker.groups.consumer.group import ConsumerGroup
from millstream.broker.groups.consumer.member import ClassicPart, ConsumerMember, MemberState
from millstream.broker.groups.topics import Partition, Topics

_Written = dict[str, dict[str, list[int]]]  # partitions by topic id and the epoch in which they were assigned


def to_text(group: ConsumerGroup) -> str:
    """The whole group, except for how much time its sessions have left."""
    return json.dumps(
        {
            "kind": group.kind,
            "epoch": group.epoch,
            "target_epoch": group.target_epoch,
            "empty_since_ms": group.empty_since_ms,
            "subscribed": {
                name: [topic.hex(), count] for name, (topic, count) in group.subscriptions.existing.items()
            },
            "members": [_written(member) for member in group.members.values()],
        }
    )


def restored(name: str, fields: Mapping[str, Any], topics: Topics, now: float) -> ConsumerGroup:
    """The saved group. Its sessions start again (``start_sessions``) when its settings are known."""
    group = ConsumerGroup(name, topics, epoch=fields["epoch"])
    group.target_epoch = fields["target_epoch"]
    group.empty_since_ms = fields["empty_since_ms"]
    group.subscriptions.existing = {
        topic: (bytes.fromhex(topic_id), count) for topic, (topic_id, count) in fields["subscribed"].items()
    }
    for each in fields["members"]:
        member = _read(each)
        if member.state is MemberState.UNREVOKED and member.classic is None:
            member.rebalance_deadline = now + member.rebalance_timeout
        group.add(member)
    return group


def _written(member: ConsumerMember) -> dict[str, Any]:
    classic = member.classic
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout": member.rebalance_timeout,
        "names": sorted(member.names),
        "regex": member.regex,
        "assignor": member.assignor,
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state.value,
        "assigned": _by_topic(member.assigned),
        "revoking": _by_topic(member.revoking),
        "target": _by_topic(dict.fromkeys(member.target, 0)),
        "classic": classic
        and {
            "session_timeout": classic.session_timeout,
            "protocols": [[name, base64.b64encode(data).decode()] for name, data in classic.protocols],
        },
    }


def _read(fields: Mapping[str, Any]) -> ConsumerMember:
    member = ConsumerMember(fields["member_id"], fields["instance_id"])
    member.rack_id = fields["rack_id"]
    member.client_id, member.client_host = fields["client_id"], fields["client_host"]
    member.rebalance_timeout = fields["rebalance_timeout"]
    member.names, member.regex = frozenset(fields["names"]), fields["regex"]
    member.assignor = fields["assignor"]
    member.epoch, member.previous_epoch = fields["epoch"], fields["previous_epoch"]
    member.state = MemberState(fields["state"])
    member.assigned = _partitions(fields["assigned"])
    member.revoking = _partitions(fields["revoking"])
    member.target = frozenset(_partitions(fields["target"]))
    if (classic := fields["classic"]) is not None:
        member.classic = ClassicPart(
            classic["session_timeout"],
            tuple((name, base64.b64decode(data)) for name, data in classic["protocols"]),
        )
    return member


def _by_topic(partitions: Mapping[Partition, int]) -> _Written:
    indexes: dict[tuple[bytes, int], list[int]] = {}
    for (topic, index), epoch in partitions.items():
        indexes.setdefault((topic, epoch), []).append(index)
    written: _Written = {}
    for (topic, epoch), of_both in indexes.items():
        written.setdefault(topic.hex(), {})[str(epoch)] = of_both
    return written


def _partitions(written: _Written) -> dict[Partition, int]:
    return {
        (bytes.fromhex(topic), index): int(epoch)
        for topic, by_epoch in written.items()
        for epoch, indexes in by_epoch.items()
        for index in indexes
    }
