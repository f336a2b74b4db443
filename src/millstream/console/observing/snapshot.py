"""The state of a cluster at one moment, from which all screens are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.client.insight.horizon import NONE_STOPPED, DiskHorizon, StoppedPartitions
from millstream.client.librdkafka.admin import BrokerNode, PartitionInfo
from millstream.client.librdkafka.groups import GroupInfo
from millstream.client.text.position import TopicPartition
from millstream.console.observing.job_topic import LastReport


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic. What is not known (yet, or to this broker) is None.

    ``kept_seconds`` is how far back the topic reaches at the present rate (None: no limit, or not known).
    ``leaderless`` and ``under_replicated`` list partitions. ``retention_ms`` and ``retention_bytes`` apply to
    each partition, with -1 for no limit. ``overload`` is what the policy of millstream's broker is doing, if
    anything. ``stopped`` lists partitions that no longer take writes, and ``uncompacted`` those that are no
    longer compacted.
    """

    name: str
    internal: bool
    partitions: int
    replicas: int
    records: int | None
    bytes: int | None
    records_per_second: float
    bytes_per_second: float | None
    kept_seconds: float | None
    oldest_ms: int | None
    leaderless: tuple[int, ...] = ()
    under_replicated: tuple[int, ...] = ()
    retention_ms: int | None = None
    retention_bytes: int | None = None
    overload: str = ""
    stopped: StoppedPartitions = NONE_STOPPED
    uncompacted: StoppedPartitions = NONE_STOPPED


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition of a group. ``committed`` and ``lag`` are None if the group has committed nothing.
    ``lag`` counts unread records that still exist, and ``lost`` those that were deleted unread.
    ``behind_ms`` is the time from the oldest unread record (written at ``oldest_ms``) to the newest.
    ``loss_ms`` is how soon retention overtakes the group at the present rates. ``member`` is the client that
    reads the partition now, and ``metadata`` came with the last commit.
    """

    topic: str
    partition: int
    committed: int | None
    start: int
    end: int
    lag: int | None
    lost: int
    behind_ms: int | None
    oldest_ms: int | None
    read_per_second: float
    loss_ms: int | None
    member: str | None
    metadata: str

    @property
    def place(self) -> str:
        return str(TopicPartition(self.topic, self.partition))


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group, with its partitions summed up: ``loss_ms`` is the soonest of them, in partition ``loss_at``,
    and ``behind_ms`` the longest.
    """

    name: str
    state: str
    kind: str
    topics: tuple[str, ...]
    lag: int
    lost: int
    read_per_second: float
    loss_ms: int | None = None
    loss_at: TopicPartition | None = None
    behind_ms: int | None = None
    info: GroupInfo | None = None
    partitions: tuple[GroupPartition, ...] = ()

    @property
    def members(self) -> int:
        return 0 if self.info is None else len(self.info.members)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at one moment. ``detailed`` is true once sizes, retention and groups are known, which takes
    longer than the rest.
    """

    at_ms: int
    address: str
    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerNode, ...]
    topics: Mapping[str, TopicState]
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    disks: tuple[DiskHorizon, ...] = ()
    detailed: bool = False
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    places: Mapping[str, tuple[PartitionInfo, ...]] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    oldest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    jobs: Mapping[str, LastReport] = field(default_factory=dict)
    unreadable_jobs: frozenset[str] = frozenset()
