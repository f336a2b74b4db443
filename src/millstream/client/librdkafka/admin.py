"""Administer a cluster: topics, their settings and offsets, and (in ``groups``) consumer groups.

Requests go through confluent-kafka, so they work with any Kafka. Calls block until they are answered, and
one request covers many partitions. Errors are RequestFailed with Kafka's code, or BrokerUnavailable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.client.connect import from_librdkafka, to_librdkafka
from millstream.client.librdkafka.groups import Groups
from millstream.client.text.position import Bounds, Position, TopicPartition
from millstream.core.errors import MillstreamError, RequestFailed
from millstream.core.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from millstream.core.units import did_you_mean

TOPIC_EXISTS = 36
NO_LEADER = "it has no leader, so it can be neither read nor written; its broker's log says why"

Problems = dict[TopicPartition, str]  # why a partition could not be queried

_FOR_URLS = str.maketrans("+/", "-_")


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
    """One setting as a broker reports it. ``own`` is True if it was set for this topic and not inherited."""

    name: str
    value: str | None
    own: bool
    read_only: bool
    sensitive: bool


@dataclass(frozen=True, slots=True)
class BrokerNode:
    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Brokers and topics, as one Metadata request reports them: without the topics' ids."""

    id: str
    controller: int | None
    brokers: tuple[BrokerNode, ...]
    topics: Mapping[str, tuple[PartitionInfo, ...]]


class Admin(Groups):
    """One administrator's connection."""

    def cluster(self) -> ClusterInfo:
        """Every broker and every topic with its partitions, from one request. Creates no topic."""
        metadata = self._metadata()
        return ClusterInfo(
            metadata.cluster_id or "",
            metadata.controller_id if metadata.controller_id >= 0 else None,
            tuple(
                BrokerNode(node, broker.host, broker.port)
                for node, broker in sorted(metadata.brokers.items())
            ),
            {
                name: tuple(
                    PartitionInfo(
                        index,
                        partition.leader if partition.leader >= 0 else None,
                        tuple(partition.replicas),
                        tuple(partition.isrs),
                    )
                    for index, partition in sorted(topic.partitions.items())
                )
                for name, topic in sorted(metadata.topics.items())
            },
        )

    def _leaderless(self) -> set[TopicPartition]:
        """Partitions that have no leader at the moment: a request for one of them would wait in vain."""
        return {
            TopicPartition(name, index)
            for name, topic in self._metadata().topics.items()
            for index, partition in topic.partitions.items()
            if partition.leader < 0
        }

    # topics

    def topics(self) -> dict[str, int]:
        """Every topic, with its number of partitions. Creates no topic."""
        metadata = self._metadata()
        return {name: len(topic.partitions) for name, topic in sorted(metadata.topics.items())}

    def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """Topics in the order given. An unknown name is an error that suggests names that exist."""
        from confluent_kafka import TopicCollection

        if not names:
            return []
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout)
        found = []
        for name in names:
            try:
                topic = self._result(futures[name], f"topic {name!r}")
            except RequestFailed as error:
                raise (
                    self.unknown_topic(name) if error.code == UNKNOWN_TOPIC_OR_PARTITION else error
                ) from None
            partitions = tuple(
                PartitionInfo(
                    partition.id,
                    None if partition.leader is None or partition.leader.id < 0 else partition.leader.id,
                    tuple(node.id for node in partition.replicas),
                    tuple(node.id for node in partition.isr),
                )
                for partition in sorted(topic.partitions, key=lambda partition: partition.id)
            )
            # confluent-kafka writes ids in plain base64; Kafka's own tools use the URL-safe variant.
            id = str(topic.topic_id).translate(_FOR_URLS)
            found.append(TopicInfo(topic.name, id, bool(topic.is_internal), partitions))
        return found

    def partitions(self, names: Sequence[str]) -> list[TopicPartition]:
        """Every partition of the given topics."""
        return [
            TopicPartition(topic.name, partition.index)
            for topic in self.describe_topics(names)
            for partition in topic.partitions
        ]

    def unknown_topic(self, name: str) -> RequestFailed:
        """The error for a topic that does not exist, with the nearest names that do."""
        hint = did_you_mean(name, self.topics(), most=3) or "`millstream topic list` shows all topics"
        return RequestFailed(
            UNKNOWN_TOPIC_OR_PARTITION,
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
        """Create a topic; -1 lets the broker choose. False if it exists and ``if_not_exists`` is set."""
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
        self._until_seen(lambda: self._exists(name))
        return True

    def _exists(self, name: str) -> bool:
        from confluent_kafka import TopicCollection

        futures = self._client.describe_topics(TopicCollection([name]), request_timeout=self._timeout)
        try:
            self._result(futures[name], f"topic {name!r}")
        except RequestFailed as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        return True

    def delete_topics(self, names: Sequence[str]) -> dict[str, MillstreamError | None]:
        """Delete topics. Returns each one's error, or None if it was deleted."""
        futures = self._client.delete_topics(
            list(names), operation_timeout=self._timeout, request_timeout=self._timeout
        )
        outcomes = {name: self._outcome(futures[name], f"can't delete topic {name!r}") for name in names}
        gone = [name for name, error in outcomes.items() if error is None]
        self._until_seen(lambda: not any(self._exists(name) for name in gone))
        return outcomes

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's partitions to ``total``."""
        from confluent_kafka.admin import NewPartitions

        futures = self._client.create_partitions(
            [NewPartitions(name, total)], operation_timeout=self._timeout, request_timeout=self._timeout
        )
        self._result(futures[name], f"can't add partitions to {name!r}")
        self._until_seen(lambda: len(self.partitions([name])) >= total)

    # settings

    def topic_config(self, name: str) -> list[ConfigValue]:
        """Every setting of a topic, including inherited ones."""
        return self.topic_configs([name])[name]

    def topic_configs(self, names: Sequence[str]) -> dict[str, list[ConfigValue]]:
        """Every setting of several topics."""
        from confluent_kafka.admin import ConfigResource, ConfigSource

        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        return {
            resource.name: [
                ConfigValue(
                    entry.name,
                    entry.value,
                    entry.source == own,
                    bool(entry.is_read_only),
                    bool(entry.is_sensitive),
                )
                for _, entry in sorted(entries.items())
            ]
            for resource, entries in self._described(resources, "topic")
        }

    def group_config(self, group: str) -> dict[str, str | None]:
        """The settings of a consumer group, if the broker keeps any."""
        from confluent_kafka.admin import ConfigResource

        (described,) = self._described([ConfigResource(ConfigResource.Type.GROUP, group)], "group")
        return {name: entry.value for name, entry in described[1].items()}

    def _described(self, resources: Sequence[Any], kind: str) -> list[tuple[Any, Mapping[str, Any]]]:
        if not resources:
            return []
        futures = self._client.describe_configs(list(resources), request_timeout=self._timeout)
        return [
            (
                resource,
                self._result(futures[resource], f"can't read the settings of {kind} {resource.name!r}"),
            )
            for resource in resources
        ]

    def alter_topic(self, name: str, changes: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        """Set some settings of a topic and reset others to their defaults. The rest stay as they are."""
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

        def seen() -> bool:
            own = {value.name: value.value for value in self.topic_config(name) if value.own}
            changed = all(own.get(setting) == value for setting, value in changes.items())
            return changed and not any(setting in own for setting in unset)

        self._until_seen(seen, patience=1.0)  # a broker may also report a value in another form

    # offsets

    def bounds(
        self,
        partitions: Iterable[TopicPartition],
        *,
        committed_only: bool = False,
        problems: Problems | None = None,
    ) -> dict[TopicPartition, Bounds]:
        """Where partitions start and end. With ``committed_only``, a partition ends before the first record
        of an open transaction. Partitions that can't be queried are reported in ``problems`` and left out;
        without ``problems`` they are an error."""
        from confluent_kafka.admin import OffsetSpec

        asked = list(partitions)
        starts = self._list_offsets(
            dict.fromkeys(asked, OffsetSpec.earliest()), committed_only=False, problems=problems
        )
        ends = self._list_offsets(
            dict.fromkeys(starts, OffsetSpec.latest()), committed_only=committed_only, problems=problems
        )
        return {partition: Bounds(starts[partition][0], ends[partition][0]) for partition in ends}

    def ends(
        self, partitions: Iterable[TopicPartition], *, committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        """Where partitions end, with one request to each broker that leads any of them."""
        from confluent_kafka.admin import OffsetSpec

        latest = dict.fromkeys(partitions, OffsetSpec.latest())
        answers = self._list_offsets(latest, committed_only=committed_only)
        return {partition: offset for partition, (offset, _) in answers.items()}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record at or after a time; None if every record is older."""
        return {place: found and found[0] for place, found in self.first_since(times_ms).items()}

    def first_since(
        self, times_ms: Mapping[TopicPartition, int], *, problems: Problems | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Offset and time of the first record at or after a time; None if every record is older. As in
        ``bounds``, ``problems`` collects what can't be answered, for example because the records are in an
        archive that is not reachable."""
        from confluent_kafka.admin import OffsetSpec

        specs = {partition: OffsetSpec.for_timestamp(moment) for partition, moment in times_ms.items()}
        answers = self._list_offsets(specs, committed_only=False, problems=problems)
        return {partition: found if found[0] >= 0 else None for partition, found in answers.items()}

    def newest(
        self, partitions: Iterable[TopicPartition], *, problems: Problems | None = None
    ) -> dict[TopicPartition, int | None]:
        """The largest timestamp in each partition, in milliseconds; None if it has no records."""
        from confluent_kafka.admin import OffsetSpec

        answers = self._list_offsets(
            dict.fromkeys(partitions, OffsetSpec.max_timestamp()), committed_only=False, problems=problems
        )
        return {
            partition: timestamp if timestamp >= 0 else None for partition, (_, timestamp) in answers.items()
        }

    def newest_if_told(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Like ``newest``, for a broker that may not support the request: Kafka does since 3.0. Partitions
        without an answer are left out."""
        return self.newest(partitions, problems={})

    def resolve(
        self,
        positions: Mapping[TopicPartition, Position],
        *,
        bounds: Mapping[TopicPartition, Bounds] | None = None,
        origins: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, int]:
        """The offsets that positions mean now, within the bounds of each partition."""
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
        """Delete every record before an offset. Returns where each partition starts afterwards."""
        if not offsets:
            return {}
        futures = self._client.delete_records(
            [to_librdkafka(partition, offset) for partition, offset in offsets.items()],
            operation_timeout=self._timeout,
            request_timeout=self._timeout,
        )
        return {
            from_librdkafka(partition): self._result(
                future, f"can't trim {from_librdkafka(partition)}"
            ).low_watermark
            for partition, future in futures.items()
        }

    def _list_offsets(
        self, specs: Mapping[TopicPartition, Any], *, committed_only: bool, problems: Problems | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        from confluent_kafka import IsolationLevel

        if specs and problems is not None:
            leaderless = self._leaderless()
            problems.update({place: NO_LEADER for place in specs if place in leaderless})
            specs = {place: spec for place, spec in specs.items() if place not in leaderless}
        if not specs:
            return {}
        futures = self._client.list_offsets(
            {to_librdkafka(partition): spec for partition, spec in specs.items()},
            isolation_level=(
                IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
            ),
            request_timeout=self._timeout,
        )
        answers = {}
        for partition, future in futures.items():
            try:
                answer = self._result(future, f"can't look up the offsets of {from_librdkafka(partition)}")
            except RequestFailed as error:
                if problems is None:
                    raise
                problems[from_librdkafka(partition)] = str(error)
                continue
            answers[from_librdkafka(partition)] = (answer.offset, answer.timestamp)
        return answers
