"""Follows the topic in which jobs report their status, so that every snapshot has the latest reports.

There is one consumer for all viewers, without a group. A cluster without the topic has no jobs that report,
and following it costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from millstream.client.connect import Connection
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.text.position import TopicPartition
from millstream.core.clock import Clock
from millstream.core.errors import MillstreamError
from millstream.jobs.report import TOPIC, JobStatus

_log = logging.getLogger(__name__)
_CATCH_UP_S = 1.0  # seconds of reading in one look; the rest of a long topic is read in the next looks
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class LastReport:
    """The last report of a job. ``heard_ms`` is when it arrived, by the console's clock, because the job's
    clock may be wrong. For a report read before the console had caught up, it is the time in the report.
    """

    status: JobStatus
    heard_ms: int


class JobTopic:
    """Reads the reports. ``jobs`` has the last report of each job. ``unreadable`` has the keys of records
    that are not a status, or are of a newer version.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reader: PartitionReader | None = None
        self._places: frozenset[TopicPartition] = frozenset()
        self._next: dict[TopicPartition, int] = {}
        self._caught_up = False
        self.jobs: dict[str, LastReport] = {}
        self.unreadable: frozenset[str] = frozenset()

    def look(self, connection: Connection, ends: Mapping[TopicPartition, int]) -> dict[str, LastReport]:
        """Read new reports, up to the given ends of the partitions."""
        own = {place: end for place, end in ends.items() if place.topic == TOPIC}
        # An end that has moved back: the topic was deleted and created again under its name.
        ended = any(end < self._next.get(place, 0) for place, end in own.items())
        if frozenset(own) != self._places or ended:
            self.close()
            self._places = frozenset(own)
        try:
            if own:
                self._read(connection, own)
        except MillstreamError as error:
            _log.warning("the status of jobs can't be read: %s", error)
            self.close()
        return self.jobs

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        self._places, self._next, self._caught_up = frozenset(), {}, False
        self.jobs, self.unreadable = {}, frozenset()

    def _read(self, connection: Connection, ends: Mapping[TopicPartition, int]) -> None:
        if self._reader is None:
            self._reader = PartitionReader(connection, dict.fromkeys(ends, 0))
        deadline = self._clock.monotonic() + _CATCH_UP_S
        newest: dict[str, bytes | None] = {}
        while any(self._next.get(place, 0) < end for place, end in ends.items()):
            for message in self._reader.read(_AT_ONCE, 0.05):
                self._next[TopicPartition(message.topic(), message.partition())] = message.offset() + 1
                newest[(message.key() or b"").decode(errors="replace")] = message.value()
            if self._clock.monotonic() > deadline:
                break
        else:
            self._caught_up, before = True, self._caught_up
            self._take(newest, live=before)
            return
        self._take(newest, live=False)

    def _take(self, newest: Mapping[str, bytes | None], *, live: bool) -> None:
        jobs, unreadable = dict(self.jobs), set(self.unreadable)
        for key, value in newest.items():
            jobs.pop(key, None)
            unreadable.discard(key)
            if value is None:
                continue
            status = read_status(value)
            if status is None:
                unreadable.add(key)
            else:
                jobs[key] = LastReport(status, self._clock.now_ms() if live else status.at_ms)
        self.jobs, self.unreadable = jobs, frozenset(unreadable)


def read_status(value: bytes) -> JobStatus | None:
    """The status in a record's value; None if it is not a status."""
    try:
        return msgspec.json.decode(value, type=JobStatus)
    except msgspec.MsgspecError:
        return None
