"""The page of one consumer group: members, partitions, lag over time, and the records it missed."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.insight.lag import GroupLoss
from millstream.client.text.position import TopicPartition
from millstream.console.observing.history import Columns, History
from millstream.console.observing.snapshot import GroupPartition, GroupState
from millstream.console.overview.attention import Attention, of_group
from millstream.jobs.owners import Owner
from millstream.jobs.report import DisplayedState

LINES = 8  # in a chart: more can't be told apart


@dataclass(frozen=True, slots=True)
class Reads:
    """The partitions of a topic that a member reads, or ``awaits``: another member has not given them up."""

    topic: str
    partitions: list[int]
    awaits: bool = False


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. ``instance`` is its group.instance.id, if it is a static member. Only members of
    the consumer protocol (KIP-848) have an epoch.
    """

    id: str
    client: str
    instance: str | None
    host: str
    epoch: int | None
    reads: list[Reads]
    lag: int


@dataclass(frozen=True, slots=True)
class MissedRecords:
    """Records of a partition that were deleted before the group had committed them. The offsets and times
    describe the latest loss, and ``in_all`` counts all losses of the partition. Times are those at which the
    records were written, null if not known.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    records: int
    first_ms: int | None
    last_ms: int | None
    in_all: int


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A consumer group with all that its page shows. ``epoch`` and ``assignment_epoch`` exist only in the
    consumer protocol; for a classic group, Kafka reports neither the generation nor the leading member.
    ``missed`` is what millstream's broker recorded. It is null on Apache Kafka, which records nothing and
    only reports what is missing now (``lost``). ``pipeline`` is the job whose ledger this group is: the job
    keeps in its offsets which batches are done, and reads without being a member.
    """

    name: str
    state: str
    kind: str
    assignor: str
    coordinator: str
    epoch: int | None
    assignment_epoch: int | None
    lag: int
    behind_ms: int | None
    lost: int
    read_per_second: float
    loss_ms: int | None
    loss_at: str | None
    topics: list[str]
    members: list[GroupMember]
    partitions: list[GroupPartition]
    attention: list[Attention]
    missed: list[MissedRecords] | None = None
    pipeline: str | None = None
    pipeline_state: DisplayedState | None = None


def group_detail(
    group: GroupState, missed: list[GroupLoss] | None = None, owner: Owner | None = None
) -> GroupDetail:
    info = group.info
    return GroupDetail(
        group.name,
        group.state,
        group.kind,
        "" if info is None else info.assignor,
        "" if info is None else info.coordinator,
        None if info is None else info.epoch,
        None if info is None else info.assignment_epoch,
        group.lag,
        group.behind_ms,
        group.lost,
        group.read_per_second,
        group.loss_ms,
        None if group.loss_at is None else str(group.loss_at),
        list(group.topics),
        _members(group),
        list(group.partitions),
        list(of_group(group)),
        None if missed is None else [_missed(each) for each in missed],
        None if owner is None else owner.job,
        None if owner is None else owner.state,
    )


def _members(group: GroupState) -> list[GroupMember]:
    lags = {TopicPartition(part.topic, part.partition): part.lag or 0 for part in group.partitions}
    return [
        GroupMember(
            member.id,
            member.client,
            member.instance,
            member.host,
            member.epoch,
            [*_reads(member.assigned, awaits=False), *_reads(member.awaited, awaits=True)],
            sum(lags.get(place, 0) for place in member.assigned),
        )
        for member in (() if group.info is None else group.info.members)
    ]


def _reads(places: tuple[TopicPartition, ...], *, awaits: bool) -> list[Reads]:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return [Reads(topic, sorted(indexes), awaits) for topic, indexes in sorted(topics.items())]


def _missed(each: GroupLoss) -> MissedRecords:
    return MissedRecords(
        each.partition.topic,
        each.partition.partition,
        each.first_offset,
        each.next_offset,
        each.records,
        each.first_ms if each.first_ms >= 0 else None,
        each.last_ms if each.last_ms >= 0 else None,
        each.total,
    )


def lag_over_time(group: GroupState, history: History | None, most: int = LINES) -> Columns:
    """The lag over time of the partitions that are furthest behind now. Ties go to those listed first."""
    ranked = sorted(group.partitions, key=lambda part: -(part.lag or 0))[:most]
    shown = {part.place for part in ranked}
    names = [part.place for part in group.partitions if part.place in shown]
    return Columns([], {name: [] for name in names}) if history is None else history.columns(*names)
