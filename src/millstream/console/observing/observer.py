"""Looks at a cluster repeatedly, and remembers enough to work out rates, lag and forecasts.

Rules. A look takes few requests, however many topics and groups there are. The quick look (the leaders, and
where partitions end) takes one Metadata and one ListOffsets request. ``look_closer`` asks for what changes
slowly: sizes, retention, and groups (in ``group_watch``). The two may run on two threads at once, because
each writes its own fields.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from millstream.client.insight.horizon import NONE_STOPPED, Horizon, look_ahead
from millstream.client.librdkafka.admin import Admin, ClusterInfo, PartitionInfo
from millstream.client.text.position import TopicPartition
from millstream.console.observing.group_watch import GroupWatch
from millstream.console.observing.history import History
from millstream.console.observing.job_topic import JobTopic
from millstream.console.observing.snapshot import Snapshot, TopicState
from millstream.core.clock import Clock

RATE_SECONDS = 10.0  # rates are averaged over this long, so that the numbers stay readable
LEAST_SECONDS = 0.5  # the least time between two looks that give a rate
HORIZON_SECONDS = 15.0
TOPIC_HISTORY_SECONDS = 10.0


class _Observation(NamedTuple):
    at: float  # by the monotonic clock
    ends: Mapping[TopicPartition, int]
    totals: Mapping[str, int]  # the sum of the ends of each topic


class Observer:
    """Observes one cluster. ``history`` has the series ``in``, ``in_bytes`` and ``out``; ``topics`` has the
    records written per second by topic.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: deque[_Observation] = deque()
        self._horizon: Horizon | None = None
        self._horizon_at = 0.0
        self._topics_at = 0.0
        self._jobs = JobTopic(clock)
        self.history = History()
        self.topics = History(int(3600 / TOPIC_HISTORY_SECONDS))
        self.groups = GroupWatch(clock)

    # The quick look ----------------------------------------------------------------------------------

    def look(self, admin: Admin) -> Snapshot:
        """Look at what changes every second."""
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
        self._looks.append(_Observation(now, ends, totals))
        while len(self._looks) > 2 and self._looks[1].at <= now - RATE_SECONDS:
            self._looks.popleft()
        snapshot = self._snapshot(cluster, admin.connection.address)
        self._remember(snapshot, now)
        jobs = self._jobs.look(admin.connection, ends)
        return replace(snapshot, jobs=jobs, unreadable_jobs=self._jobs.unreadable)

    def close(self) -> None:
        self._jobs.close()

    def _snapshot(self, cluster: ClusterInfo, address: str) -> Snapshot:
        ends = self._looks[-1].ends
        horizon = self._horizon
        records: dict[str, int] = {}
        measured: dict[str, int] = {}  # the number of records when the sizes were reported
        sizes: dict[str, int] = {}
        if horizon is not None:
            for place, bounds in horizon.bounds.items():
                left = ends.get(place, bounds.end) - bounds.start
                records[place.topic] = records.get(place.topic, 0) + max(0, left)
                measured[place.topic] = measured.get(place.topic, 0) + bounds.end - bounds.start
            for place, size in horizon.sizes.items():
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
            self.groups.states,
            () if horizon is None else tuple(horizon.disks),
            horizon is not None and self.groups.looked,
            ends,
            cluster.topics,
            {} if horizon is None else {place: bounds.start for place, bounds in horizon.bounds.items()},
            {} if horizon is None else horizon.sizes,
            {} if horizon is None else horizon.oldest_ms,
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
        ahead = None if self._horizon is None else self._horizon.topics.get(name)
        keeping = None if self._horizon is None else self._horizon.keepings.get(name)
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
            None if keeping is None else keeping.retention_ms,
            None if keeping is None else keeping.retention_bytes,
            "" if ahead is None else ahead.overload,
            NONE_STOPPED if ahead is None else ahead.stopped,
            NONE_STOPPED if ahead is None else ahead.uncompacted,
        )

    def _rate(self, topic: str) -> float:
        """Records written per second. Never negative: a topic that was created again counts as 0 at first."""
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
            # Topics that nothing is written to are left out: a gap means the same as zero, and costs nothing.
            written = {t.name: t.records_per_second for t in snapshot.topics.values() if t.records_per_second}
            self.topics.add(snapshot.at_ms, written)

    # The closer look ---------------------------------------------------------------------------------

    def expire(self) -> None:
        """Make the next closer look ask for everything, however recent the last one was."""
        self._horizon_at = -HORIZON_SECONDS

    def look_closer(self, admin: Admin) -> None:
        """Look at what changes slowly or takes long to find out. The next snapshot shows it."""
        now = self._clock.monotonic()
        topics = self._looks[-1].totals.keys() if self._looks else set()
        if (
            self._horizon is None
            or now - self._horizon_at >= HORIZON_SECONDS
            or topics != self._horizon.topics.keys()  # a new topic should get its numbers soon
        ):
            self._horizon = look_ahead(admin, self._clock.now_ms())
            self._horizon_at = now
        self.groups.look(admin, self._horizon, self._looks[-1].ends if self._looks else {})
