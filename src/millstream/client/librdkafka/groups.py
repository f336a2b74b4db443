"""Groups of consumers: list and describe them, read and set their offsets, delete them.

These requests go to the groups' coordinators over millstream's own links. librdkafka's admin client ends
the whole process (an assertion fails) when the connection to a coordinator is lost at the wrong moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from millstream.client.errors import refused
from millstream.client.librdkafka.request import Requests
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.link import Link
from millstream.client.protocol.share_groups import (
    ShareOffsets,
    forget_share_topics,
    move_share_group,
    share_offsets,
)
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError, RequestFailed
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND
from millstream.core.units import did_you_mean
from millstream.wire.api_keys import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    SHARE_GROUP_DESCRIBE,
)
from millstream.wire.consumer_protocol import read_assignment

SHARE = "share"  # the kind of a share group, and the name of its protocol
_WITH_TYPES = 5  # the version of ListGroups with the kinds of groups; Kafka has it since 3.8


@dataclass(frozen=True, slots=True)
class GroupListing:
    name: str
    state: str
    kind: str  # "classic", "consumer" (KIP-848) or "share" (KIP-932)


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    instance: str | None
    client: str
    host: str
    assigned: tuple[TopicPartition, ...]
    epoch: int | None = None  # not in classic groups
    awaited: tuple[TopicPartition, ...] = ()  # assigned to it, but not yet released by another member


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: str
    kind: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None  # this and the next: not in classic groups
    assignment_epoch: int | None = None


class Groups(Requests):
    """Lists, describes and changes groups of consumers."""

    def groups(self) -> list[GroupListing]:
        """Every group of consumers."""
        with self._cluster() as cluster:
            found = cluster.patiently(
                "listing groups",
                lambda: [group for link in cluster.every_link() for group in _listed(link)],
            )
        return sorted(found, key=lambda group: group.name)

    def group(self, name: str) -> GroupInfo:
        """A group's state and members. An unknown name is an error with the nearest names."""
        with self._cluster() as cluster:
            found = cluster.patiently(f"describing group {name}", lambda: _described(cluster, name))
        if found is None:
            raise self.unknown_group(name)
        return found

    def unknown_group(self, name: str) -> RequestFailed:
        hint = did_you_mean(name, (group.name for group in self.groups()), most=3)
        return RequestFailed(
            GROUP_ID_NOT_FOUND,
            "GROUP_ID_NOT_FOUND",
            f"there is no consumer group {name!r} at {self.connection.address}{hint and f'; {hint}'}",
        )

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Every offset that a group has committed."""
        with self._cluster() as cluster:
            commits = cluster.commits(group, require_stable=False)
        return {partition: found.offset for partition, found in sorted(commits.items())}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set a group's offsets. The broker refuses while the group has members."""
        with self._cluster() as cluster:
            cluster.commit(group, offsets)

    def share_offsets(self, group: str) -> ShareOffsets:
        """Where a share group has begun to read. Empty for groups of other kinds."""
        with self._cluster() as cluster:
            return share_offsets(cluster, group)

    def move_share_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a share group begin at these offsets. The broker refuses while the group has members."""
        with self._cluster() as cluster:
            move_share_group(cluster, group, offsets)

    def forget_share_topic(self, group: str, topic: str) -> None:
        """Let a share group begin in a topic as in a new one. The broker refuses while it has members."""
        with self._cluster() as cluster:
            forget_share_topics(cluster, group, [topic])

    def delete_groups(self, names: Sequence[str]) -> dict[str, MillstreamError | None]:
        """Delete groups and their offsets. Returns each one's error, or None if it was deleted."""
        with self._cluster() as cluster:
            return {name: _deleted(cluster, name) for name in names}

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        cluster = Cluster(self.connection, patience=self.connection.patience)
        try:
            yield cluster
        finally:
            cluster.close()


def describe_classic(link: Link, names: Sequence[str]) -> Iterator[GroupInfo | RequestFailed]:
    """Groups of the classic protocol, or why one of them can't be described."""
    answer = link.request(DESCRIBE_GROUPS, {"groups": names, "include_authorized_operations": False})
    for group in answer.groups:
        code = int(group.error_code)
        if not code and str(group.group_state) == "Dead" and not group.members:
            code = GROUP_ID_NOT_FOUND  # how versions before 6 report it
        if code:
            yield refused(code, f"group {str(group.group_id)!r}")
            continue
        members = tuple(
            _member(member, member.group_instance_id, _assigned(member.member_assignment))
            for member in sorted(group.members, key=_by_client)
        )
        name, state, assignor = str(group.group_id), str(group.group_state), str(group.protocol_data)
        yield GroupInfo(name, state, "classic", assignor, link.address, members)


def describe_consumer(link: Link, names: Sequence[str]) -> Iterator[GroupInfo | RequestFailed]:
    """Groups of the consumer protocol, or why one of them can't be described."""
    fields = {"group_ids": names, "include_authorized_operations": False}
    for group in link.request(CONSUMER_GROUP_DESCRIBE, fields, 0).groups:
        if group.error_code:
            yield refused(int(group.error_code), f"group {str(group.group_id)!r}")
            continue
        yield GroupInfo(
            str(group.group_id),
            str(group.group_state),
            "consumer",
            str(group.assignor_name),
            link.address,
            tuple(_consumer_member(member) for member in sorted(group.members, key=_by_client)),
            int(group.group_epoch),
            int(group.assignment_epoch),
        )


def describe_share(link: Link, names: Sequence[str]) -> Iterator[GroupInfo | RequestFailed]:
    """Share groups, or why one of them can't be described."""
    fields = {"group_ids": names, "include_authorized_operations": False}
    for group in link.request(SHARE_GROUP_DESCRIBE, fields, 1).groups:
        if group.error_code:
            yield refused(int(group.error_code), f"group {str(group.group_id)!r}")
            continue
        yield GroupInfo(
            str(group.group_id),
            str(group.group_state),
            SHARE,
            str(group.assignor_name),
            link.address,
            tuple(
                _member(member, None, _places(member.assignment), epoch=int(member.member_epoch))
                for member in sorted(group.members, key=_by_client)
            ),
            int(group.group_epoch),
            int(group.assignment_epoch),
        )


def _described(cluster: Cluster, name: str) -> GroupInfo | None:
    """A group of any kind; None if no group has this name."""
    link = cluster.coordinator(name)
    kinds = [describe_classic]
    if link.newest(SHARE_GROUP_DESCRIBE) >= 1:
        kinds.insert(0, describe_share)
    if link.newest(CONSUMER_GROUP_DESCRIBE) >= 0:
        kinds.insert(0, describe_consumer)
    for describe in kinds:
        (found,) = describe(link, [name])
        if isinstance(found, GroupInfo):
            return found
        if found.code != GROUP_ID_NOT_FOUND:
            raise found
    return None


def _listed(link: Link) -> Iterator[GroupListing]:
    """The groups of consumers that a broker coordinates, without groups of Kafka Connect and the like."""
    answer = link.request(LIST_GROUPS, {}, min(link.newest(LIST_GROUPS), _WITH_TYPES))
    if answer.error_code:
        raise refused(int(answer.error_code), "listing groups")
    for group in answer.groups:
        if group.protocol_type in ("", "consumer", SHARE):
            state = str(getattr(group, "group_state", "Unknown"))
            kind = str(getattr(group, "group_type", "classic"))
            yield GroupListing(str(group.group_id), state, kind.lower())


def _deleted(cluster: Cluster, name: str) -> MillstreamError | None:
    def ask() -> None:
        (outcome,) = cluster.coordinator(name).request(DELETE_GROUPS, {"groups_names": [name]}).results
        if outcome.error_code:
            raise refused(int(outcome.error_code), f"can't delete group {name!r}")

    try:
        cluster.patiently(f"deleting group {name}", ask)
    except MillstreamError as error:
        return error
    return None


def _by_client(member: Any) -> tuple[str, str]:
    return str(member.client_id), str(member.member_id)


def _member(member: Any, instance: str | None, assigned: set[TopicPartition], **more: Any) -> GroupMember:
    return GroupMember(
        str(member.member_id),
        instance,
        str(member.client_id),
        str(member.client_host).lstrip("/"),
        tuple(sorted(assigned)),
        **more,
    )


def _consumer_member(member: Any) -> GroupMember:
    assigned = _places(member.assignment)
    awaited = tuple(sorted(_places(member.target_assignment) - assigned))
    return _member(member, member.instance_id, assigned, epoch=int(member.member_epoch), awaited=awaited)


def _assigned(assignment: bytes) -> set[TopicPartition]:
    """The partitions of an assignment. Bytes of another protocol, such as Kafka Connect's, contain none."""
    found = read_assignment(assignment) or {}
    return {TopicPartition(topic, index) for topic, indexes in found.items() for index in indexes}


def _places(assignment: Any) -> set[TopicPartition]:
    return {
        TopicPartition(str(topic.topic_name), int(index))
        for topic in assignment.topic_partitions
        for index in topic.partitions
    }
