"""How far back topics reach and when disks will be full, for any Kafka, over the protocol.

Rates come from timestamps: ListOffsets gives the offset of ten minutes ago, and the records of the last ten
minutes are those from there on. So one look is enough, and nothing has to run in between. (Producers that
write times other than the present into their records spoil that. The broker's own metrics count arrivals.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.client.librdkafka.admin import Admin, Problems
from millstream.client.protocol.sizes import LogDir, log_dirs, partition_sizes
from millstream.client.text.position import Bounds, TopicPartition
from millstream.core.horizon import LogGrowth, TopicRetention, seconds_until_full

WINDOW_MS = 10 * 60 * 1000
_OVERLOAD = "millstream.overload.state"
_STOPPED = "millstream.stopped.state"
_UNCOMPACTED = "millstream.uncompacted.state"


class WriteRate(NamedTuple):
    """How fast a partition is written, and how large its records are; None if no broker reports sizes.
    ``sustained`` is the rate that held through both halves of the window, which a forecast of days may be
    based on. A single burst has none."""

    records_per_second: float
    bytes_per_record: float | None
    sustained: float = 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.records_per_second * (self.bytes_per_record or 0.0)

    @property
    def sustained_bytes_per_second(self) -> float:
        return self.sustained * (self.bytes_per_record or 0.0)


class StoppedPartitions(NamedTuple):
    """Partitions in which something stopped by itself, and the reason in the first of them."""

    partitions: tuple[int, ...] = ()
    why: str = ""

    @classmethod
    def of(cls, told: str | None) -> StoppedPartitions:
        """Parses what millstream's broker reports: ``0,3: why``."""
        numbers, _, why = (told or "").partition(": ")
        return cls(tuple(int(number) for number in numbers.split(",") if number.isdigit()), why)


NONE_STOPPED = StoppedPartitions()
NOT_WRITTEN = WriteRate(0.0, None)


@dataclass(frozen=True, slots=True)
class TopicHorizon:
    """``kept_seconds`` is how far back the fullest partition reaches at these rates; None: no limit.
    ``oldest_ms`` is the time of the oldest record there is now. ``overload`` is what millstream's broker
    says its policy is doing, empty if nothing. ``stopped`` are partitions that no longer take writes, and
    ``uncompacted`` those that are no longer compacted."""

    records_per_second: float
    bytes_per_second: float | None
    kept_seconds: float | None
    oldest_ms: int | None
    overload: str = ""
    stopped: StoppedPartitions = NONE_STOPPED
    uncompacted: StoppedPartitions = NONE_STOPPED


@dataclass(frozen=True, slots=True)
class DiskHorizon:
    """``full_seconds`` is None if retention bounds all logs before the disk is full, at sustained rates."""

    broker: str
    path: str
    free_bytes: int
    full_seconds: float | None


@dataclass(frozen=True, slots=True)
class Horizon:
    topics: Mapping[str, TopicHorizon]
    disks: list[DiskHorizon]
    sizes: Mapping[TopicPartition, int]
    bounds: Mapping[TopicPartition, Bounds]
    writing: Mapping[TopicPartition, WriteRate]
    keepings: Mapping[str, TopicRetention]
    oldest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)  # only partitions that have records
    problems: Mapping[TopicPartition, str] = field(default_factory=dict)  # why some of it is not known


def look_ahead(admin: Admin, now_ms: int) -> Horizon:
    """Forecast all topics and disks of a cluster."""
    places = [TopicPartition(name, index) for name, count in admin.topics().items() for index in range(count)]
    dirs = log_dirs(admin.connection)
    sizes = partition_sizes(dirs)
    problems: Problems = {}
    bounds = admin.bounds(places, problems=problems)
    written = writing(admin, bounds, sizes, now_ms, problems)
    oldest = admin.first_since(dict.fromkeys(bounds, 0), problems=problems)
    settings = _settings(admin, {place.topic for place in places})
    keepings = {name: TopicRetention.of(values) for name, values in settings.items()}
    by_topic: dict[str, list[TopicPartition]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place)
    topics: dict[str, TopicHorizon] = {}
    for name, partitions in by_topic.items():
        rates = [written.get(place, NOT_WRITTEN) for place in partitions]
        kept = [keepings[name].kept_seconds(rate.bytes_per_second) for rate in rates]
        times = [found[1] for place in partitions if (found := oldest.get(place)) is not None]
        topics[name] = TopicHorizon(
            sum(rate.records_per_second for rate in rates),
            sum(rate.bytes_per_second for rate in rates)
            if any(place in sizes for place in partitions)
            else None,
            min((seconds for seconds in kept if seconds is not None), default=None),
            min(times, default=None),
            settings[name].get(_OVERLOAD) or "",
            StoppedPartitions.of(settings[name].get(_STOPPED)),
            StoppedPartitions.of(settings[name].get(_UNCOMPACTED)),
        )
    disks = [_disk(directory, written, keepings) for directory in dirs if directory.free is not None]
    first_ms = {place: found[1] for place, found in oldest.items() if found is not None}
    return Horizon(topics, disks, sizes, bounds, written, keepings, first_ms, problems)


def writing(
    admin: Admin,
    bounds: Mapping[TopicPartition, Bounds],
    sizes: Mapping[TopicPartition, int],
    now_ms: int,
    problems: Problems,
) -> dict[TopicPartition, WriteRate]:
    """How fast partitions were written in the last ten minutes, or since their first record if that is
    less. ``problems`` says why a partition that seems idle could not be queried."""
    recent = admin.first_since(dict.fromkeys(bounds, now_ms - WINDOW_MS), problems=problems)
    written = [place for place, first in recent.items() if first is not None]
    later = admin.first_since(dict.fromkeys(written, now_ms - WINDOW_MS // 2), problems=problems)
    found = {}
    for place, (start, end) in bounds.items():
        rate = sustained = 0.0
        first = recent.get(place)
        if first is not None:
            offset, time_ms = first
            span_ms = WINDOW_MS if offset > start else min(WINDOW_MS, max(1000, now_ms - time_ms))
            rate = max(0, end - offset) * 1000 / span_ms
            half = later.get(place)
            middle = end if half is None else half[0]
            sustained = max(0, min(middle - offset, end - middle)) * 1000 / (WINDOW_MS // 2)
        size = sizes.get(place)
        found[place] = WriteRate(rate, None if size is None else size / max(1, end - start), sustained)
    return found


def retention_of(admin: Admin, topics: set[str]) -> dict[str, TopicRetention]:
    """The retention of each topic."""
    return {name: TopicRetention.of(values) for name, values in _settings(admin, topics).items()}


def _settings(admin: Admin, topics: set[str]) -> dict[str, dict[str, str | None]]:
    return {
        name: {value.name: value.value for value in values}
        for name, values in admin.topic_configs(sorted(topics)).items()
    }


def _disk(
    directory: LogDir, written: Mapping[TopicPartition, WriteRate], keepings: Mapping[str, TopicRetention]
) -> DiskHorizon:
    growing = []
    for place, size in directory.sizes.items():
        rate = written[place].sustained_bytes_per_second if place in written else 0.0
        if rate:
            growing.append(LogGrowth(rate, keepings[place.topic].room(size, rate)))
    free = directory.free or 0
    return DiskHorizon(directory.broker, directory.path, free, seconds_until_full(free, growing))
