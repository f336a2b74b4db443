"""Looks at a cluster again and again, and remembers enough to tell rates, lag and what is ahead.

Rules: each look is a fixed number of requests, however many topics there are (and one more for each group);
nothing is asked per topic. The quick look (who leads, where partitions end) is one Metadata and one
ListOffsets request; ``look_closer`` asks for what changes slowly: sizes, retention, groups. The two may run
on two threads at once: each writes fields of its own.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millstream.client.admin import Admin, ClusterInfo, PartitionInfo
from millstream.client.groups import GroupListing
from millstream.client.lag import group_lag
from millstream.client.outlook import Outlook, look_ahead
from millstream.client.position import TopicPartition
from millstream.clock import Clock
from millstream.console.model.history import History
from millstream.console.model.snapshot import GroupState, Snapshot, TopicState
from millstream.errors import RequestFailed

RATE_SECONDS = 10.0  # rates are those of the last seconds, so that numbers can be read
LEAST_SECONDS = 0.5  # one look alone tells no rate, nor do two at almost the same moment
OUTLOOK_SECONDS = 15.0
TOPIC_HISTORY_SECONDS = 10.0


class _Look(NamedTuple):
    at: float  # by a clock that never goes back
    ends: Mapping[TopicPartition, int]
    totals: Mapping[str, int]  # of each topic


@dataclass(frozen=True, slots=True)
class _Commits:
    at: float
    listed: Mapping[str, GroupListing]
    offsets: Mapping[str, Mapping[TopicPartition, int]]


class Observer:
    """One cluster's. ``history`` has the names ``in``, ``in_bytes``, ``out``; ``topics`` has records in per
    second by topic, ``groups`` the lag by group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: deque[_Look] = deque()
        self._outlook: Outlook | None = None
        self._outlook_at = 0.0
        self._commits: _Commits | None = None
        self._groups: dict[str, GroupState] = {}
        self._read: dict[str, dict[TopicPartition, float]] = {}
        self._topics_at = 0.0
        self.history = History()
        self.topics = History(int(3600 / TOPIC_HISTORY_SECONDS))
        self.groups = History(int(3600 / TOPIC_HISTORY_SECONDS))

    # The quick look ----------------------------------------------------------------------------------

    def look(self, admin: Admin) -> Snapshot:
        """What changes every second."""
        cluster = admin.cluster()
        led = [
            TopicPartition(name, partition.index)
            for name, partitions in cluster.topics.items()
            for partition in partitions
            if partition.leader is not None
        ]
        ends = admin.ends(led)
        now = self._clock.monotonic()
        totals: dict[str, int] = {}
        for place, end in ends.items():
            totals[place.topic] = totals.get(place.topic, 0) + end
        self._looks.append(_Look(now, ends, totals))
        while len(self._looks) > 2 and self._looks[1].at <= now - RATE_SECONDS:
            self._looks.popleft()
        snapshot = self._snapshot(cluster, admin.connection.address)
        self._remember(snapshot, now)
        return snapshot

    def _snapshot(self, cluster: ClusterInfo, address: str) -> Snapshot:
        ends = self._looks[-1].ends
        outlook = self._outlook
        records: dict[str, int] = {}
        measured: dict[str, int] = {}  # how many there were when their size was told
        sizes: dict[str, int] = {}
        if outlook is not None:
            for place, bounds in outlook.bounds.items():
                left = ends.get(place, bounds.end) - bounds.start
                records[place.topic] = records.get(place.topic, 0) + max(0, left)
                measured[place.topic] = measured.get(place.topic, 0) + bounds.end - bounds.start
            for place, size in outlook.sizes.items():
                sizes[place.topic] = sizes.get(place.topic, 0) + size
        return Snapshot(
            self._clock.now_ms(),
            address,
            cluster.id,
            cluster.controller,
            cluster.brokers,
            {
                name: self._topic(name, partitions, records.get(name), sizes.get(name), measured.get(name, 0))
                for name, partitions in cluster.topics.items()
            },
            dict(self._groups),
            () if outlook is None else tuple(outlook.disks),
            outlook is not None and self._commits is not None,
            ends,
            cluster.topics,
            {} if outlook is None else {place: bounds.start for place, bounds in outlook.bounds.items()},
            {} if outlook is None else outlook.sizes,
            {} if outlook is None else outlook.oldest_ms,
            {} if self._commits is None else self._commits.offsets,
        )

    def _topic(
        self,
        name: str,
        partitions: tuple[PartitionInfo, ...],
        records: int | None,
        size: int | None,
        measured: int,
    ) -> TopicState:
        rate = self._rate(name)
        ahead = None if self._outlook is None else self._outlook.topics.get(name)
        return TopicState(
            name,
            name.startswith("__"),
            len(partitions),
            max((len(partition.replicas) for partition in partitions), default=0),
            records,
            size,
            rate,
            rate * size / measured if size is not None and measured else None,
            None if ahead is None else ahead.kept_seconds,
            None if ahead is None else ahead.oldest_ms,
            tuple(partition.index for partition in partitions if partition.leader is None),
            tuple(
                partition.index
                for partition in partitions
                if len(partition.in_sync) < len(partition.replicas)
            ),
            None if ahead is None else ahead.keeping.retention_ms,
            None if ahead is None else ahead.keeping.retention_bytes,
            "" if ahead is None else ahead.overload,
        )

    def _rate(self, topic: str) -> float:
        """Records written per second; a topic that was made anew under its name starts from nothing."""
        last = self._looks[-1]
        first = next(look for look in self._looks if topic in look.totals or look is last)
        passed = last.at - first.at
        if passed <= 0:
            return 0.0
        return max(0, last.totals.get(topic, 0) - first.totals[topic]) / passed

    def _remember(self, snapshot: Snapshot, now: float) -> None:
        last = self._looks[-1]
        before = self._looks[-2] if len(self._looks) > 1 else last
        passed = last.at - before.at
        if passed >= LEAST_SECONDS:
            grown = sum(
                max(0, total - before.totals[topic])
                for topic, total in last.totals.items()
                if topic in before.totals
            )
            self.history.add(
                snapshot.at_ms,
                {
                    "in": grown / passed,
                    "in_bytes": sum(topic.bytes_per_second or 0.0 for topic in snapshot.topics.values()),
                    "out": sum(group.read_per_second for group in snapshot.groups.values()),
                },
            )
        if now - self._topics_at >= TOPIC_HISTORY_SECONDS or not self._topics_at:
            self._topics_at = now
            # Those that nothing is written to are left out: a gap is as good as a nought, and is free.
            written = {t.name: t.records_per_second for t in snapshot.topics.values() if t.records_per_second}
            self.topics.add(snapshot.at_ms, written)
            self.groups.add(
                snapshot.at_ms, {group.name: float(group.lag) for group in snapshot.groups.values()}
            )

    # The closer look ---------------------------------------------------------------------------------

    def look_closer(self, admin: Admin) -> None:
        """What changes slowly, or takes long to find out; shows in the next snapshot."""
        now = self._clock.monotonic()
        topics = self._looks[-1].totals.keys() if self._looks else set()
        foresee = (
            self._outlook is None
            or now - self._outlook_at >= OUTLOOK_SECONDS
            or topics != self._outlook.topics.keys()  # one that is new should not stay without numbers
        )
        if foresee:
            self._outlook = look_ahead(admin, self._clock.now_ms())
            self._outlook_at = now
        self._look_at_groups(admin, foresee=foresee)

    def _look_at_groups(self, admin: Admin, *, foresee: bool) -> None:
        listed = {group.name: group for group in admin.groups()}
        commits = _Commits(
            self._clock.monotonic(), listed, {name: admin.committed(name) for name in sorted(listed)}
        )
        before, self._commits = self._commits, commits
        self._read = _read_rates(before, commits)
        groups = {name: self._group(name) for name in listed}
        for name, group in groups.items():
            if not group.lag:
                continue
            known = self._groups.get(name)
            if foresee or known is None:
                groups[name] = self._foreseen(admin, group)
            else:
                groups[name] = dataclasses.replace(group, loss_ms=known.loss_ms, loss_at=known.loss_at)
        self._groups = groups

    def _group(self, name: str) -> GroupState:
        assert self._commits is not None
        assert self._outlook is not None
        ends = self._looks[-1].ends if self._looks else {}
        offsets = self._commits.offsets[name]
        lag = lost = 0
        for place, offset in offsets.items():
            bounds = self._outlook.bounds.get(place)
            if bounds is not None:
                lag += max(0, ends.get(place, bounds.end) - max(offset, bounds.start))
                lost += max(0, bounds.start - offset)
        listed = self._commits.listed[name]
        topics = tuple(sorted({place.topic for place in offsets}))
        rate = sum(self._read.get(name, {}).values())
        return GroupState(name, listed.state, listed.kind, topics, lag, lost, rate)

    def _foreseen(self, admin: Admin, group: GroupState) -> GroupState:
        """When it loses records, at the rate it was seen to read."""
        now_ms = self._clock.now_ms()
        rates = self._read.get(group.name, {})
        try:
            lags = group_lag(admin, group.name, now_ms)
        except RequestFailed:
            return group  # deleted just now
        losses = []
        for lag in lags:
            lag = dataclasses.replace(lag, read_per_second=rates.get(lag.partition, 0.0))
            soon = lag.loss_ms(now_ms)
            if soon is not None:
                losses.append((soon, lag.partition))
        if not losses:
            return group
        soonest, place = min(losses)
        return dataclasses.replace(group, loss_ms=soonest, loss_at=place)


def _read_rates(before: _Commits | None, now: _Commits) -> dict[str, dict[TopicPartition, float]]:
    """Records per second that each group has committed since the last look."""
    if before is None or now.at <= before.at:
        return {}
    passed = now.at - before.at
    return {
        group: {
            place: max(0, offset - before.offsets[group][place]) / passed
            for place, offset in offsets.items()
            if place in before.offsets[group]
        }
        for group, offsets in now.offsets.items()
        if group in before.offsets
    }
