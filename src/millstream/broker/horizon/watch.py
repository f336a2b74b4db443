"""Forecasts: how far back topics reach, when the disk is full, which groups are about to lose records.

Every few seconds the watch reads the offsets and sizes of logs and the committed offsets of groups. It
derives rates from the change since the last time, and keeps the forecasts (``millstream.core.horizon``) for
the metrics. It logs one warning when a disk is about to fill or a group is about to lose records, and warns
again only after the danger has passed. Nothing is counted on the way of a record.

The only read from a log is the batch header at a group's committed offset, for the group's lag in time, and
only after that offset has moved. ``look`` is a generator, so that its caller can let other tasks run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.horizon.rates import Rate
from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig
from millstream.core.horizon import LogGrowth, ReaderPace, TopicRetention, seconds_to_loss, seconds_until_full
from millstream.log.times import times_at

_log = logging.getLogger(__name__)

LOOK_EVERY = 10.0  # seconds
_SAFE_AGAIN = 2  # the danger has passed once more than this many times the warning time is left

ReaderKey = tuple[str, str, int]  # group, topic, partition


class TopicRates(NamedTuple):
    """A topic's rates. ``kept_seconds`` is how far back the topic reaches at these rates, in its fullest
    partition; None if retention has no limit."""

    records_per_second: float
    bytes_per_second: float
    kept_seconds: float | None


class ReaderHorizon(NamedTuple):
    """The lag in seconds (None if the records have no timestamp), and the seconds until a loss (None if none
    is expected)."""

    lag_seconds: float | None
    loss_seconds: float | None


class HorizonWatch:
    """One broker's forecasts. Its attributes have the latest results."""

    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self.topics: dict[str, TopicRates] = {}
        self.readers: dict[ReaderKey, ReaderHorizon] = {}
        self.disk_free: int | None = None
        self.disk_full_seconds: float | None = None
        self._records: dict[Partition, Rate] = {}
        self._bytes: dict[LocalTopic, Rate] = {}
        self._read: dict[ReaderKey, Rate] = {}
        self._times: dict[ReaderKey, tuple[int, int]] = {}  # committed offset, time of the record there
        self._warned: set[ReaderKey | None] = set()  # what was warned about; None is the disk

    def look(
        self,
        config: BrokerConfig,
        topics: Iterable[LocalTopic],
        free_bytes: Callable[[], int | None],
    ) -> Iterator[None]:
        """Update all forecasts once, in short steps."""
        now = self._clock.monotonic()
        records: dict[Partition, Rate] = {}
        received: dict[LocalTopic, Rate] = {}
        horizons: dict[str, TopicRates] = {}
        growing: list[LogGrowth] = []
        by_name: dict[str, LocalTopic] = {}
        for topic in topics:
            by_name[topic.name] = topic
            rate = received[topic] = self._bytes.get(topic) or Rate()
            rate.sample(topic.bytes_in, now)
            for partition in topic.partitions:
                of_partition = records[partition] = self._records.get(partition) or Rate()
                of_partition.sample(partition.log.end_offset, now)
            horizons[topic.name], logs = _horizon(topic, rate, records)
            growing += logs
            yield
        self._records, self._bytes, self.topics = records, received, horizons
        self.disk_free = free_bytes()
        self.disk_full_seconds = None
        if self.disk_free is not None:
            self.disk_full_seconds = seconds_until_full(self.disk_free, growing)
        self._warn_of_disk(config.millstream_disk_full_warning_ms / 1000)
        yield
        yield from self._look_at_readers(by_name, now, config.millstream_group_loss_warning_ms / 1000)

    def _look_at_readers(self, topics: dict[str, LocalTopic], now: float, warn_at: float) -> Iterator[None]:
        read: dict[ReaderKey, Rate] = {}
        times: dict[ReaderKey, tuple[int, int]] = {}
        readers: dict[ReaderKey, ReaderHorizon] = {}
        for group in self._catalogue.groups_with_offsets():
            for name, partitions in list(self._catalogue.offsets_of(group).items()):
                topic = topics.get(name)
                for index, committed in list(partitions.items()):
                    if topic is None or index >= len(topic.partitions):
                        continue
                    key = (group, name, index)
                    rate = read[key] = self._read.get(key) or Rate()
                    rate.sample(committed.offset, now)
                    partition = topic.partitions[index]
                    readers[key] = self._reader(key, partition, committed.offset, rate, times)
                    self._warn_of_loss(key, readers[key].loss_seconds, warn_at)
                    yield
        self._read, self._times, self.readers = read, times, readers
        self._warned.intersection_update([None, *readers])

    def _reader(
        self,
        key: ReaderKey,
        partition: Partition,
        committed: int,
        rate: Rate,
        times: dict[ReaderKey, tuple[int, int]],
    ) -> ReaderHorizon:
        log = partition.log
        at = max(committed, log.log_start_offset)
        unread = log.written_offset - at
        if unread <= 0:
            return ReaderHorizon(0.0, None)
        known = self._times.get(key)
        times[key] = known if known is not None and known[0] == at else (at, times_at(log, at).first_ms)
        first_ms = times[key][1]
        age = behind = None
        if first_ms >= 0:
            now_ms = self._clock.now_ms()
            newest_ms = log.segments.last.max_timestamp or 0
            age = max(0, now_ms - first_ms) / 1000
            behind = (newest_ms - first_ms if newest_ms >= first_ms else max(0, now_ms - first_ms)) / 1000
        kept = max(1, log.written_offset - log.log_start_offset)
        reader = ReaderPace(
            unread,
            unread * log.retention.total_bytes / kept,
            age,
            behind,
            self._records[partition].per_second if partition in self._records else 0.0,
            rate.per_second,
        )
        return ReaderHorizon(behind, seconds_to_loss(TopicRetention.by(log.config), reader))

    def _warn_of_loss(self, key: ReaderKey, seconds: float | None, warn_at: float) -> None:
        if self._newly_near(key, seconds, warn_at):
            _log.warning(
                "group %s will lose records of %s-%d in %s at present rates: retention overtakes it",
                *key,
                _words(seconds or 0.0),
            )

    def _warn_of_disk(self, warn_at: float) -> None:
        if self._newly_near(None, self.disk_full_seconds, warn_at):
            _log.warning(
                "the disk is full in %s at present rates, with %d MB free: lower retention.bytes or "
                "retention.ms, or add space",
                _words(self.disk_full_seconds or 0.0),
                (self.disk_free or 0) // 1_000_000,
            )

    def _newly_near(self, key: ReaderKey | None, seconds: float | None, warn_at: float) -> bool:
        left = inf if seconds is None else seconds
        if key in self._warned:
            if left > _SAFE_AGAIN * warn_at:
                self._warned.discard(key)
            return False
        if left >= warn_at:
            return False
        self._warned.add(key)
        return True


def _horizon(
    topic: LocalTopic, received: Rate, records: dict[Partition, Rate]
) -> tuple[TopicRates, list[LogGrowth]]:
    rates = [records[partition].per_second for partition in topic.partitions]
    in_all = sum(rates)
    per_record = received.per_second / in_all if in_all else 0.0
    kept = inf
    growing = []
    for partition, rate in zip(topic.partitions, rates, strict=True):
        log = partition.log
        keeping = TopicRetention.by(log.config)
        seconds = keeping.kept_seconds(rate * per_record)
        kept = min(kept, inf if seconds is None else seconds)
        if rate and not partition.in_memory:
            room = TopicRetention.on_disk(log.config).room(log.size_bytes, rate * per_record)
            growing.append(LogGrowth(rate * per_record, room))
    return TopicRates(in_all, received.per_second, None if kept == inf else kept), growing


def _words(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
