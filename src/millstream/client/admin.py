"""What an administrator asks of a cluster: topics, their settings, offsets, consumer groups.

Over confluent-kafka, so it works with any Kafka. Calls block until answered; many partitions are asked for
in one request. Errors are RequestFailed with Kafka's code, or BrokerUnavailable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from millstream.client.connect import Complaints, Connection, failure
from millstream.client.position import Bounds, Position, TopicPartition
from millstream.errors import BrokerUnavailable, MillstreamError, RequestFailed

UNKNOWN_TOPIC = 3
TOPIC_EXISTS = 36
GROUP_NOT_FOUND = 69


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    index: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    id: str
    internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting as a broker reports it. ``own`` if it was set for this topic, not inherited."""

    name: str
    value: str | None
    own: bool
    read_only: bool
    sensitive: bool


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


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: str
    kind: str
    assignor: str
    coordinator: str
    members: tuple[Member, ...]


class Admin:
    """One administrator's connection. ``timeout`` is how long one request may take, in seconds."""

    def __init__(self, connection: Connection, *, timeout: float = 30.0) -> None:
        from confluent_kafka.admin import AdminClient

        self.connection = connection
        self._timeout = timeout
        self._complaints = Complaints()
        self._client: Any = connection.open(
            AdminClient, connection.properties({"error_cb": self._complaints})
        )
        connection.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._client  # librdkafka ends its threads when the last reference goes

    # topics

    def topics(self) -> dict[str, int]:
        """Every topic, with the number of its partitions. Creates none."""
        metadata = self._metadata()
        return {name: len(topic.partitions) for name, topic in sorted(metadata.topics.items())}

    def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """Topics in the order asked for; an unknown one is an error that suggests those that exist."""
        from confluent_kafka import TopicCollection

        if not names:
            return []
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout)
        found = []
        for name in names:
            try:
                topic = self._result(futures[name], f"topic {name!r}")
            except RequestFailed as error:
                raise self.unknown_topic(name) if error.code == UNKNOWN_TOPIC else error from None
            partitions = tuple(
                PartitionInfo(
                    partition.id,
                    None if partition.leader is None or partition.leader.id < 0 else partition.leader.id,
                    tuple(node.id for node in partition.replicas),
                    tuple(node.id for node in partition.isr),
                )
                for partition in sorted(topic.partitions, key=lambda partition: partition.id)
            )
            found.append(TopicInfo(topic.name, str(topic.topic_id), bool(topic.is_internal), partitions))
        return found

    def partitions(self, names: Sequence[str]) -> list[TopicPartition]:
        """Every partition of some topics."""
        return [
            TopicPartition(topic.name, partition.index)
            for topic in self.describe_topics(names)
            for partition in topic.partitions
        ]

    def unknown_topic(self, name: str) -> RequestFailed:
        """The error for a topic that isn't there, with the names that are nearest to it."""
        near = difflib.get_close_matches(name, self.topics(), n=3, cutoff=0.6)
        hint = (
            f"did you mean {' or '.join(repr(other) for other in near)}?"
            if near
            else f"create it with `millstream topic create {name}`"
        )
        return RequestFailed(
            UNKNOWN_TOPIC,
            "UNKNOWN_TOPIC_OR_PART",
            f"there is no topic {name!r} at {self.connection.address}; {hint}",
        )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Create a topic; -1 leaves a number to the broker. False if it was there and that was allowed."""
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, partitions, replicas, config=dict(config or {}))
        futures = self._client.create_topics(
            [topic], operation_timeout=self._timeout, request_timeout=self._timeout
        )
        try:
            self._result(futures[name], f"can't create topic {name!r}")
        except RequestFailed as error:
            if error.code == TOPIC_EXISTS and if_not_exists:
                return False
            raise
        return True

    def delete_topics(self, names: Sequence[str]) -> dict[str, MillstreamError | None]:
        """Delete topics; each one's error, or None where it is gone."""
        futures = self._client.delete_topics(
            list(names), operation_timeout=self._timeout, request_timeout=self._timeout
        )
        return {name: self._outcome(futures[name], f"can't delete topic {name!r}") for name in names}

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's partitions to ``total``."""
        from confluent_kafka.admin import NewPartitions

        futures = self._client.create_partitions(
            [NewPartitions(name, total)], operation_timeout=self._timeout, request_timeout=self._timeout
        )
        self._result(futures[name], f"can't add partitions to {name!r}")

    # settings

    def topic_config(self, name: str) -> list[ConfigValue]:
        """Every setting of a topic, inherited ones too."""
        from confluent_kafka.admin import ConfigResource, ConfigSource

        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        futures = self._client.describe_configs([resource], request_timeout=self._timeout)
        entries = self._result(futures[resource], f"can't read the settings of topic {name!r}")
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return [
            ConfigValue(
                entry.name,
                entry.value,
                entry.source == own,
                bool(entry.is_read_only),
                bool(entry.is_sensitive),
            )
            for _, entry in sorted(entries.items())
        ]

    def alter_topic(self, name: str, changes: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        """Set some settings of a topic and return others to their defaults; the rest stay."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entries = [
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in changes.items()
        ]
        entries += [
            ConfigEntry(setting, None, incremental_operation=AlterConfigOpType.DELETE) for setting in unset
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        futures = self._client.incremental_alter_configs([resource], request_timeout=self._timeout)
        self._result(futures[resource], f"can't change topic {name!r}")

    # offsets

    def bounds(
        self, partitions: Iterable[TopicPartition], *, committed_only: bool = False
    ) -> dict[TopicPartition, Bounds]:
        """Where partitions start and end. ``committed_only`` ends before an open transaction's records."""
        from confluent_kafka.admin import OffsetSpec

        asked = list(partitions)
        starts = self._list_offsets(dict.fromkeys(asked, OffsetSpec.earliest()), committed_only=False)
        ends = self._list_offsets(dict.fromkeys(asked, OffsetSpec.latest()), committed_only=committed_only)
        return {partition: Bounds(starts[partition][0], ends[partition][0]) for partition in asked}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record at or after a time; None where every record is older."""
        from confluent_kafka.admin import OffsetSpec

        specs = {partition: OffsetSpec.for_timestamp(time) for partition, time in times_ms.items()}
        answers = self._list_offsets(specs, committed_only=False)
        return {partition: offset if offset >= 0 else None for partition, (offset, _) in answers.items()}

    def newest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The largest timestamp in each partition, in milliseconds; None where there is none."""
        from confluent_kafka.admin import OffsetSpec

        answers = self._list_offsets(
            dict.fromkeys(partitions, OffsetSpec.max_timestamp()), committed_only=False
        )
        return {partition: time if time >= 0 else None for partition, (_, time) in answers.items()}

    def resolve(
        self,
        positions: Mapping[TopicPartition, Position],
        *,
        bounds: Mapping[TopicPartition, Bounds] | None = None,
        origins: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, int]:
        """The offsets that positions mean now, within what each partition has."""
        known = self.bounds(positions) if bounds is None else bounds
        times = {
            partition: position.value for partition, position in positions.items() if position.kind == "time"
        }
        found = self.offsets_at(times)
        return {
            partition: position.resolve(
                known[partition],
                time_offset=found.get(partition),
                origin=None if origins is None else origins.get(partition),
            )
            for partition, position in positions.items()
        }

    def trim(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete every record before an offset; where each partition starts afterwards."""
        if not offsets:
            return {}
        futures = self._client.delete_records(
            [_theirs(partition, offset) for partition, offset in offsets.items()],
            operation_timeout=self._timeout,
            request_timeout=self._timeout,
        )
        return {
            _ours(partition): self._result(future, f"can't trim {_ours(partition)}").low_watermark
            for partition, future in futures.items()
        }

    def _list_offsets(
        self, specs: Mapping[TopicPartition, Any], *, committed_only: bool
    ) -> dict[TopicPartition, tuple[int, int]]:
        from confluent_kafka import IsolationLevel

        if not specs:
            return {}
        futures = self._client.list_offsets(
            {_theirs(partition): spec for partition, spec in specs.items()},
            isolation_level=(
                IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
            ),
            request_timeout=self._timeout,
        )
        answers = {}
        for partition, future in futures.items():
            answer = self._result(future, f"can't ask for the offsets of {_ours(partition)}")
            answers[_ours(partition)] = (answer.offset, answer.timestamp)
        return answers

    # groups

    def groups(self) -> list[GroupListing]:
        """Every consumer group."""
        listed = self._result(
            self._client.list_consumer_groups(request_timeout=self._timeout), "can't list the groups"
        )
        for error in listed.errors or ():
            raise failure(error.args[0], self.connection, "can't list the groups")
        return [
            GroupListing(group.group_id, _state(group.state), group.type.name.lower())
            for group in sorted(listed.valid or (), key=lambda group: group.group_id)
        ]

    def group(self, name: str) -> GroupInfo:
        """A group's state and members. A name that no group has is an error with the nearest names."""
        futures = self._client.describe_consumer_groups([name], request_timeout=self._timeout)
        try:
            group = self._result(futures[name], f"group {name!r}")
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
                tuple(sorted(_ours(partition) for partition in member.assignment.topic_partitions)),
            )
            for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id))
        )
        coordinator = group.coordinator
        return GroupInfo(
            group.group_id,
            _state(group.state),
            group.type.name.lower(),
            group.partition_assignor or "",
            f"{coordinator.host}:{coordinator.port}" if coordinator else "",
            members,
        )

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

        futures = self._client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=self._timeout
        )
        answer = self._result(futures[group], f"can't read the offsets of group {group!r}")
        offsets = {}
        for partition in answer.topic_partitions or ():
            if partition.error is not None:
                raise failure(partition.error, self.connection, f"group {group!r}, {_ours(partition)}")
            if partition.offset >= 0:
                offsets[_ours(partition)] = partition.offset
        return dict(sorted(offsets.items()))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set a group's offsets; refused by the broker while the group has members."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        if not offsets:
            return
        request = ConsumerGroupTopicPartitions(
            group, [_theirs(partition, offset) for partition, offset in offsets.items()]
        )
        futures = self._client.alter_consumer_group_offsets([request], request_timeout=self._timeout)
        answer = self._result(futures[group], f"can't set the offsets of group {group!r}")
        for partition in answer.topic_partitions or ():
            if partition.error is not None:
                raise failure(partition.error, self.connection, f"group {group!r}, {_ours(partition)}")

    def delete_groups(self, names: Sequence[str]) -> dict[str, MillstreamError | None]:
        """Delete groups and their offsets; each one's error, or None where it is gone."""
        futures = self._client.delete_consumer_groups(list(names), request_timeout=self._timeout)
        return {name: self._outcome(futures[name], f"can't delete group {name!r}") for name in names}

    # how answers come

    def _metadata(self) -> Any:
        from confluent_kafka import KafkaException

        try:
            return self._client.list_topics(timeout=min(self._timeout, self.connection.patience))
        except KafkaException as error:
            raise failure(error.args[0], self.connection, complaints=self._complaints) from None

    def _result(self, future: Future[Any], what: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return future.result(self._timeout + 5)
        except KafkaException as error:
            raise failure(error.args[0], self.connection, what, complaints=self._complaints) from None
        except FutureTimeout:
            raise BrokerUnavailable(
                f"{what}: {self.connection.address} did not answer within {self._timeout:g} s"
            ) from None

    def _outcome(self, future: Future[Any], what: str) -> MillstreamError | None:
        try:
            self._result(future, what)
        except MillstreamError as error:
            return error
        return None


def _theirs(partition: TopicPartition, offset: int = -1001) -> Any:
    from confluent_kafka import TopicPartition as Theirs

    return Theirs(partition.topic, partition.partition, offset)


def _ours(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _state(state: Any) -> str:
    """Kafka's word for a group's state: ``PreparingRebalance``."""
    return "".join(word.capitalize() for word in state.name.split("_"))
