"""How long a log is, when a disk is full, when a reader loses records: for broker and client alike.

A log is a ring buffer, cut by time (``retention.ms``) and by size (``retention.bytes``, and the size of a
ring under ``millstream.overload=drop``), whichever comes first. Together with the rate at which it is
written, that determines

- how far back it reaches at the present rate (``kept_seconds``),
- how soon all logs of a disk together fill it (``seconds_until_full``),
- how soon its tail overtakes a reader (``seconds_to_loss``).

Rates are per second and assumed to stay as they are. None means "never", or "not while it stays like this".
A log is cut by whole segments, so it reaches back at least as far as stated here, and is larger by up to a
segment. What is promised to readers leaves that segment out; what is needed of the disk includes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from millstream.core.topic_config import TopicConfig, ring_segment_bytes

NO_LIMIT = -1
_AS_RETENTION = -2  # of local.retention.*: the same as retention.*


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """The retention of each partition of a topic."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    segment_bytes: int = 0
    segment_ms: int = 0
    ring_bytes: int = NO_LIMIT  # the most a ring takes; enforced at any moment, retention only now and then

    @classmethod
    def by(cls, config: TopicConfig) -> TopicRetention:
        deletes = "delete" in config.cleanup_policy
        return cls(
            config.retention_ms if deletes else NO_LIMIT,
            config.retention_bytes if deletes else NO_LIMIT,
            config.segment_bytes,
            config.segment_ms,
            config.millstream_overload_bytes if config.millstream_overload == "drop" else NO_LIMIT,
        )

    @classmethod
    def on_disk(cls, config: TopicConfig) -> TopicRetention:
        """What stays on the broker's own disk: less, if a topic is archived."""
        whole = cls.by(config)
        if not config.remote_storage_enable or config.remote_log_copy_disable:
            return whole
        by_time, by_size = config.local_retention_ms, config.local_retention_bytes
        return replace(
            whole,
            retention_ms=whole.retention_ms if by_time == _AS_RETENTION else by_time,
            retention_bytes=whole.retention_bytes if by_size == _AS_RETENTION else by_size,
        )

    @classmethod
    def of(cls, settings: Mapping[str, str | None]) -> TopicRetention:
        """From a topic's settings as a broker reports them. Compaction without deletion has no limit."""
        deletes = "delete" in (settings.get("cleanup.policy") or "delete")
        return cls(
            int(settings.get("retention.ms") or NO_LIMIT) if deletes else NO_LIMIT,
            int(settings.get("retention.bytes") or NO_LIMIT) if deletes else NO_LIMIT,
            int(settings.get("segment.bytes") or 0),
            int(settings.get("segment.ms") or 0),
            int(settings.get("millstream.overload.bytes") or NO_LIMIT)
            if settings.get("millstream.overload") == "drop"
            else NO_LIMIT,
        )

    @property
    def kept_bytes(self) -> int:
        """The newest bytes of a partition that are kept whatever is written; -1 if there is no limit."""
        limits = [self.retention_bytes] if self.retention_bytes >= 0 else []
        if self.ring_bytes >= 0:
            # When a segment is started, room is made for it and for the next.
            segment = ring_segment_bytes(self.ring_bytes, self.segment_bytes or self.ring_bytes)
            limits.append(self.ring_bytes - 2 * segment)
        return min(limits, default=NO_LIMIT)

    def kept_seconds(self, bytes_per_second: float) -> float | None:
        """How far back in time a partition reaches that is written at this rate."""
        by_time = self.retention_ms / 1000 if self.retention_ms >= 0 else inf
        by_size = inf
        if self.kept_bytes >= 0 and bytes_per_second > 0:
            by_size = self.kept_bytes / bytes_per_second
        return _finite(min(by_time, by_size))

    def room(self, size: int, bytes_per_second: float) -> float:
        """How many more bytes a partition of ``size`` may grow before retention holds it."""
        by_time = by_size = inf
        if self.retention_ms >= 0:
            segment = min(self.segment_bytes, bytes_per_second * self.segment_ms / 1000)
            by_time = bytes_per_second * self.retention_ms / 1000 + segment
        if self.retention_bytes >= 0:
            by_size = self.retention_bytes + self.segment_bytes
        if self.ring_bytes >= 0:
            by_size = min(by_size, self.ring_bytes)
        return max(0.0, min(by_time, by_size) - size)


class LogGrowth(NamedTuple):
    """A log that is written: its bytes per second, and how much it may grow before retention holds it."""

    rate: float
    room: float


def seconds_until_full(free: float, logs: Iterable[LogGrowth]) -> float | None:
    """When logs that share ``free`` bytes of a disk will have used them up.

    Each grows at its rate until its retention holds it: together a line that bends once for each log."""
    growing = sorted((log for log in logs if log.rate > 0), key=lambda log: log.room / log.rate)
    rate = sum(log.rate for log in growing)
    passed = 0.0
    for log in growing:
        held_at = log.room / log.rate
        if free <= rate * (held_at - passed):
            break
        free -= rate * (held_at - passed)
        passed = held_at
        rate -= log.rate
    else:
        return None
    return passed + max(0.0, free) / rate


class ReaderPace(NamedTuple):
    """Where a reader is in one partition, and how fast it and the partition's writers are."""

    unread: int  # records
    unread_bytes: float
    age: float | None  # seconds since the oldest unread record was written; None: unknown
    behind: float | None  # seconds between that record and the newest one
    written_per_second: float  # records
    read_per_second: float = 0.0  # 0: it makes no progress


def seconds_to_loss(keeping: TopicRetention, reader: ReaderPace) -> float | None:
    """When retention overtakes a reader. 0: at the next check, because it is already beyond retention."""
    if reader.unread <= 0:
        return None
    gaining = reader.read_per_second - reader.written_per_second
    caught_up = reader.unread / gaining if gaining > 0 else inf
    soonest = min(_lost_by_time(keeping, reader), _lost_by_size(keeping, reader))
    return _finite(soonest) if soonest < caught_up else None


def _lost_by_time(keeping: TopicRetention, reader: ReaderPace) -> float:
    if keeping.retention_ms < 0 or reader.age is None:
        return inf
    left = keeping.retention_ms / 1000 - reader.age
    if left <= 0:
        return 0.0
    # The tail advances by one second each second. The reader advances by ``pace`` seconds: the time that its
    # unread records span, spread evenly over them.
    pace = reader.read_per_second * (reader.behind or 0.0) / reader.unread
    return left / (1 - pace) if pace < 1 else inf


def _lost_by_size(keeping: TopicRetention, reader: ReaderPace) -> float:
    if keeping.kept_bytes < 0:
        return inf
    left = keeping.kept_bytes - reader.unread_bytes
    if left <= 0:
        return 0.0
    nearing = (reader.written_per_second - reader.read_per_second) * reader.unread_bytes / reader.unread
    return left / nearing if nearing > 0 else inf


def _finite(seconds: float) -> float | None:
    return None if seconds == inf else seconds
