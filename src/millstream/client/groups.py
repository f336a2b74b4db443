"""Consumer groups: who is in them, what they have committed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.client.connect import failure, ours, theirs
from millstream.client.group_epochs import ConsumerGroupInfo, described, states
from millstream.client.position import TopicPartition
from millstream.client.request import Requests
from millstream.errors import MillstreamError, RequestFailed

GROUP_NOT_FOUND = 69


@dataclass(frozen=True, slots=True)
class GroupListing:
    name: str
    state: str
    kind: str  # "classic" or "consumer" (KIP-848)


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    instance: str | None
    client: str
    host: str
    assigned: tuple[TopicPartition, ...]
    epoch: int | None = None  # of groups of the consumer protocol, as are these:
    awaited: tuple[TopicPartition, ...] = ()  # what it shall have, and another has not given up yet


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: str
    kind: str
    assignor: str
    coordinator: str
    members: tuple[Member, ...]
    epoch: int | None = None  # of groups of the consumer protocol
    assignment_epoch: int | None = None


class Groups(Requests):
    """What can be asked about consumer groups, and done to them."""

    def groups(self) -> list[GroupListing]:
        """Every consumer group."""
        listed = self._result(
            self._client.list_consumer_groups(request_timeout=self._timeout), "can't list the groups"
        )
        for error in listed.errors or ():
            raise failure(error.args[0], self.connection, "can't list the groups")
        groups = sorted(listed.valid or (), key=lambda group: group.group_id)
        named = states(self.connection) if any(_is_unnamed(group.state) for group in groups) else {}
        return [
            GroupListing(
                group.group_id,
                named.get(group.group_id, "Unknown") if _is_unnamed(group.state) else _state(group.state),
                group.type.name.lower(),
            )
            for group in groups
        ]

    def group(self, name: str) -> GroupInfo:
        """A group's state and members. A name that no group has is an error with the nearest names."""

        def ask() -> Any:
            futures = self._client.describe_consumer_groups([name], request_timeout=self._timeout)
            return self._result(futures[name], f"group {name!r}")

        try:
            group = self._once_coordinated(ask)
        except RequestFailed as error:
            raise self.unknown_group(name) if error.code == GROUP_NOT_FOUND else error from None
        if _state(group.state) == "Dead" and not group.members:
            # Kafka before 4 answers so for a group that never was.
            raise self.unknown_group(name)
        members = tuple(
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.host.lstrip("/"),
                tuple(sorted(ours(partition) for partition in member.assignment.topic_partitions)),
            )
            for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id))
        )
        coordinator = group.coordinator
        info = GroupInfo(
            group.group_id,
            _state(group.state),
            group.type.name.lower(),
            group.partition_assignor or "",
            f"{coordinator.host}:{coordinator.port}" if coordinator else "",
            members,
        )
        found = described(self.connection, name) if info.kind == "consumer" else None
        return info if found is None else with_epochs(info, found)

    def unknown_group(self, name: str) -> RequestFailed:
        near = difflib.get_close_matches(name, [group.name for group in self.groups()], n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(repr(other) for other in near)}?" if near else ""
        return RequestFailed(
            GROUP_NOT_FOUND,
            "GROUP_ID_NOT_FOUND",
            f"there is no consumer group {name!r} at {self.connection.address}{hint}",
        )

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Every offset that a group has committed."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        def ask() -> Any:
            futures = self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=self._timeout
            )
            return self._partitions(futures[group], f"can't read the offsets of group {group!r}")

        committed = self._once_coordinated(ask)
        offsets = {ours(partition): partition.offset for partition in committed if partition.offset >= 0}
        return dict(sorted(offsets.items()))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set a group's offsets; refused by the broker while the group has members."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        if not offsets:
            return
        request = ConsumerGroupTopicPartitions(
            group, [theirs(partition, offset) for partition, offset in offsets.items()]
        )

        def ask() -> Any:
            futures = self._client.alter_consumer_group_offsets([request], request_timeout=self._timeout)
            return self._partitions(futures[group], f"can't set the offsets of group {group!r}")

        self._once_coordinated(ask)

    def delete_groups(self, names: Sequence[str]) -> dict[str, MillstreamError | None]:
        """Delete groups and their offsets; each one's error, or None where it is gone."""
        futures = self._client.delete_consumer_groups(list(names), request_timeout=self._timeout)
        return {name: self._outcome(futures[name], f"can't delete group {name!r}") for name in names}


def with_epochs(info: GroupInfo, found: ConsumerGroupInfo) -> GroupInfo:
    """What librdkafka does not tell of a group of the consumer protocol."""
    epochs = {member.member_id: member for member in found.members}
    members = tuple(
        replace(member, epoch=epochs[member.id].epoch, awaited=epochs[member.id].awaited)
        if member.id in epochs
        else member
        for member in info.members
    )
    return replace(
        info,
        state=found.state,
        assignor=found.assignor,
        members=members,
        epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
    )


def _is_unnamed(state: Any) -> bool:
    """Whether it is a state that librdkafka has no name for: those of the consumer protocol."""
    return str(state.name) == "UNKNOWN"


def _state(state: Any) -> str:
    """Kafka's word for a group's state: ``PreparingRebalance``."""
    return "".join(word.capitalize() for word in state.name.split("_"))
