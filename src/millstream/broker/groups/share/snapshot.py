"""The JSON form in which the catalogue keeps the members of a share group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.broker.groups.share.group import ShareGroup, ShareMember
from millstream.broker.groups.topics import Partition, Topics

_Written = dict[str, list[int]]  # partitions by topic id


def to_text(group: ShareGroup) -> str:
    """The whole group, except for how much time its sessions have left."""
    return json.dumps(
        {
            "kind": group.kind,
            "epoch": group.epoch,
            "target_epoch": group.target_epoch,
            "empty_since_ms": group.empty_since_ms,
            "existing": {name: [topic.hex(), count] for name, (topic, count) in group.existing.items()},
            "members": [_written(member) for member in group.members.values()],
        }
    )


def restored(name: str, fields: Mapping[str, Any], topics: Topics) -> ShareGroup:
    """The saved group. Its sessions start again (``start_sessions``) when its settings are known."""
    group = ShareGroup(name, topics, epoch=fields["epoch"])
    group.target_epoch = fields["target_epoch"]
    group.empty_since_ms = fields["empty_since_ms"]
    group.existing = {
        topic: (bytes.fromhex(topic_id), count) for topic, (topic_id, count) in fields["existing"].items()
    }
    for each in fields["members"]:
        group.add(_read(each))
    return group


def _written(member: ShareMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "names": sorted(member.names),
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "assigned": _by_topic(member.assigned),
        "target": _by_topic(member.target),
    }


def _read(fields: Mapping[str, Any]) -> ShareMember:
    member = ShareMember(fields["member_id"])
    member.names = frozenset(fields["names"])
    member.rack_id = fields["rack_id"]
    member.client_id, member.client_host = fields["client_id"], fields["client_host"]
    member.epoch, member.previous_epoch = fields["epoch"], fields["previous_epoch"]
    member.assigned, member.target = _partitions(fields["assigned"]), _partitions(fields["target"])
    return member


def _by_topic(partitions: Iterable[Partition]) -> _Written:
    written: _Written = {}
    for topic, index in sorted(partitions):
        written.setdefault(topic.hex(), []).append(index)
    return written


def _partitions(written: _Written) -> frozenset[Partition]:
    return frozenset((bytes.fromhex(topic), index) for topic, indexes in written.items() for index in indexes)
