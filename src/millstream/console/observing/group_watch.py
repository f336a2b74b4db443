"""Watches consumer groups: how far they are behind, how fast they read, when they will lose records.

Rules. A look takes few requests, however many groups there are. Only the time at which a record was written
has to be looked up for each partition. Those times are remembered, and looked up again only where a group has
moved on.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from millstream.client.insight.group_survey import SurveyedGroup, survey
from millstream.client.insight.horizon import NOT_WRITTEN, Horizon
from millstream.client.insight.lag import Lag
from millstream.client.insight.times import PartitionOffset, times_at
from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import Committed
from millstream.client.text.position import Bounds, TopicPartition
from millstream.console.observing.history import History
from millstream.console.observing.snapshot import GroupPartition, GroupState
from millstream.core.clock import Clock

HISTORY_SECONDS = 10.0
RATE_SECONDS = 30.0  # consumers commit every five seconds by default: over a shorter time, rates would jump
MOST_SERIES = 20_000  # partitions of groups whose lag is remembered: 30 MB
MOST_TIMES = 500  # records whose times are looked up in one look; the others follow in the next

_Commits = Mapping[TopicPartition, Committed]


class _Observation(NamedTuple):
    at: float  # by the monotonic clock
    commits: Mapping[str, _Commits]


class GroupWatch:
    """Watches all groups of a cluster. ``states`` is what was seen last. ``lag`` is the lag of each group
    over the last hour, and ``partitions`` has that of each partition of a group, by ``str(TopicPartition)``.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: deque[_Observation] = deque()
        self._times: dict[PartitionOffset, int | None] = {}
        self._remembered_at: float | None = None
        self.states: dict[str, GroupState] = {}
        self.lag = History(int(3600 / HISTORY_SECONDS))
        self.partitions: dict[str, History] = {}

    @property
    def looked(self) -> bool:
        return bool(self._looks)

    def look(self, admin: Admin, horizon: Horizon, ends: Mapping[TopicPartition, int]) -> None:
        """Look at every group. ``ends`` has the partitions that have a leader."""
        listed = admin.groups()
        found = survey(admin.connection, listed)
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self._looks.append(_Observation(now, {name: group.commits for name, group in found.items()}))
        while len(self._looks) > 2 and self._looks[1].at <= now - RATE_SECONDS:
            self._looks.popleft()
        # Lag is measured up to the last stable offset, as in `group lag` and in pipelines.
        topics = {topic for group in found.values() for topic in group.topics}
        asked = [place for place in ends if place.topic in topics]
        by_topic = _by_topic(horizon, admin.ends(asked, committed_only=True) if asked else {})
        lags = {name: list(self._lags(name, group, by_topic)) for name, group in found.items()}
        unread = {lag.partition for group in lags.values() for lag in group if lag.records}
        self._learn_times(admin, [lag for group in lags.values() for lag in group if lag.records])
        newest = admin.newest_if_told(sorted(unread)) if unread else {}
        states = {}
        for group in listed:
            if group.name in found:
                known = (self._known(lag, horizon, newest) for lag in lags[group.name])
                states[group.name] = _state(found[group.name], list(known), now_ms)
            elif group.name in self.states:  # it can't be described at the moment: keep the last state
                states[group.name] = self.states[group.name]
        self.states = states
        self._remember(now, now_ms)

    def _lags(
        self, name: str, group: SurveyedGroup, by_topic: Mapping[str, Mapping[TopicPartition, Bounds]]
    ) -> Iterator[Lag]:
        """The lag of every partition of the topics that the group has committed offsets for, or that its
        members read.
        """
        holders = {place: member.client for member in group.info.members for place in member.assigned}
        rates = self._rates(name)
        for topic in sorted(group.topics):
            for place, bounds in by_topic.get(topic, {}).items():
                commit = group.commits.get(place)
                yield Lag(
                    place,
                    None if commit is None else commit.offset,
                    bounds,
                    holders.get(place),
                    None,
                    read_per_second=rates.get(place, 0.0),
                    unfinished=group.unfinished.get(place),
                )

    def _rates(self, name: str) -> dict[TopicPartition, float]:
        """Records per second that a group has committed, by partition, within ``RATE_SECONDS``."""
        last = self._looks[-1]
        rates = {}
        for place, commit in last.commits[name].items():
            # The first look that has a committed offset: a new group has none at first.
            first = next(look for look in self._looks if place in look.commits.get(name, {}))
            if first is not last:
                grown = max(0, commit.offset - first.commits[name][place].offset)
                rates[place] = grown / max(0.001, last.at - first.at)
        return rates

    def _learn_times(self, admin: Admin, unread: list[Lag]) -> None:
        """Look up when the oldest unread records were written, at most ``MOST_TIMES`` at a time."""
        spots = {_first_unread(lag) for lag in unread}
        self._times = {spot: at for spot, at in self._times.items() if spot in spots}
        asked = list(itertools.islice((spot for spot in spots if spot not in self._times), MOST_TIMES))
        told = times_at(admin.connection, asked)
        self._times |= {spot: told.get(spot) for spot in asked}

    def _known(self, lag: Lag, horizon: Horizon, newest: Mapping[TopicPartition, int | None]) -> Lag:
        if not lag.records:
            return lag
        place = lag.partition
        return dataclasses.replace(
            lag,
            oldest_ms=self._times.get(_first_unread(lag)),
            newest_ms=newest.get(place),
            keeping=horizon.keepings[place.topic],
            writing=horizon.writing.get(place, NOT_WRITTEN),
        )

    def _remember(self, now: float, now_ms: int) -> None:
        for gone in self.partitions.keys() - self.states.keys():
            del self.partitions[gone]
        if self._remembered_at is not None and now - self._remembered_at < HISTORY_SECONDS:
            return
        self._remembered_at = now
        self.lag.add(now_ms, {state.name: float(state.lag) for state in self.states.values()})
        series = 0
        for state in self.states.values():
            series += len(state.partitions)
            if series > MOST_SERIES:
                self.partitions.pop(state.name, None)
                continue
            history = self.partitions.setdefault(state.name, History(int(3600 / HISTORY_SECONDS)))
            history.add(now_ms, {part.place: part.lag for part in state.partitions})


def _first_unread(lag: Lag) -> PartitionOffset:
    return PartitionOffset(lag.partition, max(lag.committed or 0, lag.bounds.start))


def _by_topic(
    horizon: Horizon, ends: Mapping[TopicPartition, int]
) -> dict[str, dict[TopicPartition, Bounds]]:
    """The bounds of partitions by topic. Starts come from the horizon, which is older; ends are fresh."""
    found: dict[str, dict[TopicPartition, Bounds]] = {}
    for place, bounds in horizon.bounds.items():
        end = max(bounds.start, ends.get(place, bounds.end))
        found.setdefault(place.topic, {})[place] = Bounds(bounds.start, end)
    return found


def _state(group: SurveyedGroup, lags: list[Lag], now_ms: int) -> GroupState:
    partitions = []
    losses = []
    for lag in lags:
        loss_ms = lag.loss_ms(now_ms)
        if loss_ms is not None:
            losses.append((loss_ms, lag.partition))
        commit = group.commits.get(lag.partition)
        partitions.append(
            GroupPartition(
                lag.partition.topic,
                lag.partition.partition,
                lag.committed,
                lag.bounds.start,
                lag.bounds.end,
                lag.records,
                lag.lost,
                lag.behind_ms,
                lag.oldest_ms,
                lag.read_per_second,
                loss_ms,
                lag.member,
                "" if commit is None else commit.metadata,
            )
        )
    soonest = min(losses, default=None)
    behind = [part.behind_ms for part in partitions if part.behind_ms is not None]
    return GroupState(
        group.info.name,
        group.info.state,
        group.info.kind,
        tuple(sorted({part.topic for part in partitions})),
        sum(part.lag or 0 for part in partitions),
        sum(part.lost for part in partitions),
        sum(part.read_per_second for part in partitions),
        None if soonest is None else soonest[0],
        None if soonest is None else soonest[1],
        max(behind, default=None),
        group.info,
        tuple(partitions),
    )
