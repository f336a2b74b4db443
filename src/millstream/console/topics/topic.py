"""The pages of one topic: its partitions, its consumers, and what deleting it would lose."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.text.position import TopicPartition
from millstream.console.observing.history import Columns, History
from millstream.console.observing.snapshot import GroupState, Snapshot
from millstream.console.pipelines.listing import PipelineUse, uses_of


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition. ``start`` is the oldest offset that is kept, and ``end`` the next to be assigned.
    ``leader`` is a broker's id, and ``address`` its address. What is not known yet is None. ``problem`` is
    empty if all is well.
    """

    partition: int
    leader: int | None
    address: str
    replicas: list[int]
    in_sync: list[int]
    start: int | None
    end: int | None
    records: int | None
    bytes: int | None
    oldest_ms: int | None
    problem: str


def partitions_of(snapshot: Snapshot, topic: str) -> list[PartitionState]:
    brokers = {broker.id: f"{broker.host}:{broker.port}" for broker in snapshot.brokers}
    state = snapshot.topics.get(topic)
    stopped = () if state is None else state.stopped.partitions
    uncompacted = () if state is None else state.uncompacted.partitions
    shown = []
    for info in snapshot.places.get(topic, ()):
        place = TopicPartition(topic, info.index)
        start, end = snapshot.starts.get(place), snapshot.ends.get(place)
        missing = [replica for replica in info.replicas if replica not in info.in_sync]
        problem = ""
        if info.leader is None:
            problem = "no leader: it can be neither read nor written"
        elif info.index in stopped:
            problem = "stopped: it accepts no writes"
        elif missing:
            problem = f"out of sync: {', '.join(f'broker {replica}' for replica in missing)}"
        elif info.index in uncompacted:
            problem = "no longer compacted"
        shown.append(
            PartitionState(
                info.index,
                info.leader,
                "" if info.leader is None else brokers.get(info.leader, ""),
                list(info.replicas),
                list(info.in_sync),
                start,
                end,
                None if start is None or end is None else max(0, end - start),
                snapshot.sizes.get(place),
                snapshot.oldest_ms.get(place),
                problem,
            )
        )
    return shown


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer group, with only its partitions of this topic. ``lag`` counts unread records that still
    exist, and ``lost`` those that were deleted unread. ``loss_ms`` is how soon retention overtakes the group
    at the present rates.
    """

    group: str
    state: str
    members: int
    partitions: int
    lag: int
    lost: int
    read_per_second: float
    behind_ms: int | None
    loss_ms: int | None


def consumers_of(snapshot: Snapshot, topic: str) -> list[Consumer]:
    """The groups that read a topic. Those that will lose records soonest come first."""
    found = [_consumer(group, topic) for group in snapshot.groups.values() if topic in group.topics]
    return sorted(
        found,
        key=lambda each: (each.loss_ms is None, each.loss_ms or 0, -each.lost, -each.lag, each.group),
    )


def _consumer(group: GroupState, topic: str) -> Consumer:
    mine = [partition for partition in group.partitions if partition.topic == topic]
    losses = [partition.loss_ms for partition in mine if partition.loss_ms is not None]
    behind = [partition.behind_ms for partition in mine if partition.behind_ms is not None]
    readers = {partition.member for partition in mine if partition.member is not None}
    return Consumer(
        group.name,
        group.state,
        len(readers),
        len([partition for partition in mine if partition.committed is not None]),
        sum(partition.lag or 0 for partition in mine),
        sum(partition.lost for partition in mine),
        sum(partition.read_per_second for partition in mine),
        max(behind, default=None),
        min(losses, default=None),
    )


@dataclass(frozen=True, slots=True)
class TopicLoss:
    """What is lost when a topic is deleted. ``readers`` are the groups that read it now or have read it,
    active ones first; their offsets for it are deleted too. ``pipelines`` are the jobs that read it or write
    to it, as far as jobs report, running ones first.
    """

    topic: str
    records: int
    bytes: int | None
    partitions: int
    readers: list[Consumer]
    pipelines: list[PipelineUse]
    written_per_second: float


def loss_of(snapshot: Snapshot, topic: str) -> TopicLoss:
    state = snapshot.topics[topic]
    partitions = partitions_of(snapshot, topic)
    readers = consumers_of(snapshot, topic)
    return TopicLoss(
        topic,
        sum(partition.records or 0 for partition in partitions),
        state.bytes,
        state.partitions,
        sorted(readers, key=lambda reader: (not reader.members, reader.group)),
        uses_of(snapshot, topic),
        state.records_per_second,
    )


def rate_of(history: History, topic: str) -> Columns:
    """Records written per second over the last hour. A gap means zero: nothing was written then."""
    found = history.columns(topic)
    return Columns(found.times, {"in": [value or 0.0 for value in found.series[topic]]})
