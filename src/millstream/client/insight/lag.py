"""How far a consumer group is behind, in records and in time, and when retention will overtake it.

Lag has one definition here, for groups and for pipelines whose offsets are those of a group: the records
from the committed offset to the current end of the log, as seen by readers of committed records (``unread``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.client.insight.horizon import NOT_WRITTEN, WriteRate, retention_of, writing
from millstream.client.insight.times import PartitionOffset, times_at
from millstream.client.librdkafka.admin import Admin, Problems
from millstream.client.librdkafka.groups import SHARE, GroupInfo
from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.protocol.share_groups import ShareOffsets
from millstream.client.protocol.sizes import log_dirs, partition_sizes
from millstream.client.text.position import Bounds, TopicPartition
from millstream.core.errors import RequestFailed
from millstream.core.horizon import ReaderPace, TopicRetention, seconds_to_loss

_LOSSES = "millstream.losses"
_NO_RETENTION = TopicRetention()
UNKNOWN = Bounds(-1, -1)  # of a partition that could not be queried


def unread(committed: int, bounds: Bounds) -> int:
    """The number of records of a partition that still exist and are unread."""
    return max(0, bounds.end - max(committed, bounds.start))


def lag_by_topic(cluster: Cluster, committed: Mapping[TopicPartition, int]) -> dict[str, int]:
    """The lag behind the current ends of the partitions, added up by topic."""
    starts = cluster.ends(committed, EARLIEST)
    ends = cluster.ends(committed, LATEST, read_committed=True)
    lags: dict[str, int] = {}
    for place, offset in committed.items():
        if place in starts and place in ends:
            behind = unread(offset, Bounds(starts[place], ends[place]))
            lags[place.topic] = lags.get(place.topic, 0) + behind
    return lags


def lag_of_group(cluster: Cluster, group: str) -> dict[str, int]:
    """By topic, how far the committed offsets of a group are behind."""
    commits = cluster.commits(group, require_stable=False)
    return lag_by_topic(cluster, {place: commit.offset for place, commit in commits.items()})


@dataclass(frozen=True, slots=True)
class Lag:
    """One partition of a group. Values that are not known are None.

    ``records`` counts the unread records that still exist; ``lost`` counts those that were deleted unread.
    ``oldest_ms`` is the time of the oldest unread record, ``newest_ms`` that of the newest record of all.
    """

    partition: TopicPartition
    committed: int | None
    bounds: Bounds
    member: str | None
    oldest_ms: int | None
    newest_ms: int | None = None
    keeping: TopicRetention = _NO_RETENTION
    writing: WriteRate = NOT_WRITTEN
    read_per_second: float = 0.0
    problem: str = ""  # why some of it is not known
    unfinished: int | None = None  # of a share group, whose ``committed`` is its start offset

    @property
    def records(self) -> int | None:
        if self.unfinished is not None:
            return self.unfinished
        if self.committed is None or self.bounds is UNKNOWN:
            return None
        return unread(self.committed, self.bounds)

    @property
    def lost(self) -> int:
        if self.unfinished is not None:
            return 0  # Kafka tells the start offset late: what is before it may all be finished
        is_known = self.committed is not None and self.bounds is not UNKNOWN
        return max(0, self.bounds.start - self.committed) if is_known else 0  # type: ignore[operator]

    def age_ms(self, now_ms: int) -> int | None:
        """The age of the oldest unread record; 0 if everything is read."""
        if self.records == 0:
            return 0
        return None if self.oldest_ms is None else max(0, now_ms - self.oldest_ms)

    @property
    def behind_ms(self) -> int | None:
        """The time from the oldest unread record to the newest one; 0 if everything is read."""
        if self.records == 0:
            return 0
        if self.oldest_ms is None or self.newest_ms is None:
            return None
        return max(0, self.newest_ms - self.oldest_ms)

    def loss_ms(self, now_ms: int) -> int | None:
        """How long until retention overtakes the group at these rates; None if it does not."""
        if not self.records:
            return None
        age, behind = self.age_ms(now_ms), self.behind_ms
        seconds = seconds_to_loss(
            self.keeping,
            ReaderPace(
                self.records,
                self.records * (self.writing.bytes_per_record or 0.0),
                None if age is None else age / 1000,
                None if behind is None else behind / 1000,
                self.writing.records_per_second,
                self.read_per_second,
            ),
        )
        return None if seconds is None else round(seconds * 1000)


def positions(admin: Admin, group: GroupInfo) -> dict[TopicPartition, int]:
    """The offset that a group has committed in each partition; of a share group, its start offset."""
    if group.kind == SHARE:
        return _starts(admin.share_offsets(group.name))
    return admin.committed(group.name)


def _starts(shares: ShareOffsets) -> dict[TopicPartition, int]:
    return {place: at.start for place, at in sorted(shares.items())}


def group_lag(admin: Admin, group: str, now_ms: int) -> list[Lag]:
    """The lag of every partition of the topics that a group has committed offsets for, or that its members
    read. The group is assumed to make no progress: see ``with_progress``."""
    info = admin.group(group)
    holders = {partition: member.client for member in info.members for partition in member.assigned}
    shares = admin.share_offsets(group) if info.kind == SHARE else {}
    committed = _starts(shares) if info.kind == SHARE else admin.committed(group)
    existing = admin.topics()
    places = [
        TopicPartition(topic, index)
        for topic in sorted({place.topic for place in (*committed, *holders)})
        for index in range(existing.get(topic, 0))
    ]
    problems: Problems = {}
    bounds = admin.bounds(places, committed_only=True, problems=problems)
    unread = {
        place: PartitionOffset(place, max(committed[place], bounds[place].start))
        for place in places
        if place in committed and place in bounds and committed[place] < bounds[place].end
    }
    oldest = times_at(admin.connection, unread.values(), problems)
    newest = admin.newest_if_told(unread)
    keepings = retention_of(admin, {place.topic for place in unread})
    sizes = partition_sizes(log_dirs(admin.connection)) if unread else {}
    written = writing(admin, {place: bounds[place] for place in unread}, sizes, now_ms, problems)
    return [
        Lag(
            place,
            committed.get(place),
            bounds.get(place, UNKNOWN),
            holders.get(place),
            oldest.get(unread[place]) if place in unread else None,
            newest.get(place),
            keepings.get(place.topic, _NO_RETENTION),
            written.get(place, NOT_WRITTEN),
            problem=problems.get(place, ""),
            unfinished=shares[place].unfinished if place in shares else None,
        )
        for place in places
    ]


def with_progress(admin: Admin, group: str, lags: list[Lag], passed: float) -> list[Lag]:
    """The same lags with the group's read rate: what it has committed in the ``passed`` seconds since."""
    now = positions(admin, admin.group(group))

    def rate(lag: Lag) -> float:
        return max(0, now.get(lag.partition, 0) - (lag.committed or 0)) / passed

    return [dataclasses.replace(lag, read_per_second=rate(lag)) for lag in lags]


@dataclass(frozen=True, slots=True)
class GroupLoss:
    """Records that were deleted before a group had committed them: from ``first_offset`` up to
    ``next_offset``, written from ``first_ms`` to ``last_ms`` (-1: not known), deleted by ``lost_ms``.
    ``total`` also counts what the group missed in the partition before that."""

    partition: TopicPartition
    first_offset: int
    next_offset: int
    first_ms: int
    last_ms: int
    lost_ms: int
    total: int

    @property
    def records(self) -> int:
        return self.next_offset - self.first_offset


def missed_by(admin: Admin, group: str) -> list[GroupLoss] | None:
    """What a group missed, as millstream's broker has recorded it. None on Apache Kafka, which records
    nothing: there, only what is missing at the moment is known (``Lag.lost``)."""
    try:
        told = admin.group_config(group).get(_LOSSES)
        entries: list[Mapping[str, Any]] | None = json.loads(told or "null")
    except (RequestFailed, ValueError):
        return None  # a broker that keeps no settings of groups, or other ones
    if entries is None:
        return None
    return [
        GroupLoss(
            TopicPartition(entry["topic"], entry["partition"]),
            *(entry[name] for name in GroupLoss.__dataclass_fields__ if name != "partition"),
        )
        for entry in sorted(entries, key=lambda entry: (entry["topic"], entry["partition"]))
    ]
