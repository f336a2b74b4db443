"""Groups of the consumer protocol (KIP-848) in Kafka's own words: what librdkafka does not tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.client import raw
from millstream.client.cluster import Cluster
from millstream.client.connect import Connection
from millstream.client.position import TopicPartition
from millstream.client.raw import refused

_GROUP_ID_NOT_FOUND = 69


@dataclass(frozen=True, slots=True)
class MemberEpoch:
    member_id: str
    epoch: int
    awaited: tuple[TopicPartition, ...]  # what the target gives it and it has not got yet


@dataclass(frozen=True, slots=True)
class ConsumerGroupInfo:
    state: str
    assignor: str
    epoch: int
    assignment_epoch: int
    members: tuple[MemberEpoch, ...]


def described(connection: Connection, name: str) -> ConsumerGroupInfo | None:
    """A group of the consumer protocol; None if it is none."""
    cluster = Cluster(connection, patience=connection.patience)

    def ask() -> Any:
        fields = {"group_ids": [name], "include_authorized_operations": False}
        answer = cluster.coordinator(name).request(raw.CONSUMER_GROUP_DESCRIBE, fields, 0)
        (group,) = answer.groups
        if group.error_code and int(group.error_code) != _GROUP_ID_NOT_FOUND:
            raise refused(int(group.error_code), f"group {name!r}")
        return None if group.error_code else group

    try:
        group = cluster.patiently(f"describing group {name}", ask)
    finally:
        cluster.close()
    return None if group is None else epochs_of(group)


def epochs_of(group: Any) -> ConsumerGroupInfo:
    """The same, of a group as ConsumerGroupDescribe has it."""
    return ConsumerGroupInfo(
        str(group.group_state),
        str(group.assignor_name),
        int(group.group_epoch),
        int(group.assignment_epoch),
        tuple(
            MemberEpoch(
                str(member.member_id),
                int(member.member_epoch),
                tuple(sorted(places(member.target_assignment) - places(member.assignment))),
            )
            for member in group.members
        ),
    )


def places(assignment: Any) -> set[TopicPartition]:
    return {
        TopicPartition(str(topic.topic_name), int(index))
        for topic in assignment.topic_partitions
        for index in topic.partitions
    }


def states(connection: Connection) -> dict[str, str]:
    """Every group's state, by Kafka's name for it."""
    cluster = Cluster(connection, patience=connection.patience)

    def ask() -> dict[str, str]:
        found = {}
        for link in cluster.every_link():
            answer = link.request(raw.LIST_GROUPS, {}, min(link.newest(raw.LIST_GROUPS), 5))
            if answer.error_code:
                raise refused(int(answer.error_code), "listing groups")
            found.update({str(group.group_id): str(group.group_state) for group in answer.groups})
        return found

    try:
        return cluster.patiently("listing groups", ask)
    finally:
        cluster.close()
