"""A topic written out as files, each record in exactly one of them.

The name of a file says what is in it:

    payments-0-00000000000000000000-00000000000000004711.jsonl
    topic, partition, the first and the last offset it covers

A file is there whole or not at all (``files.store``), and covers every offset of its range, also those that
no reader sees (markers of transactions, records compacted away). So the names alone say how far the topic was
written out: a start goes on after the last file of each partition, and what was being written when the last
run was killed is written again. Nothing else is kept, and a directory can be moved.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any

from millstream.client.admin import Admin
from millstream.client.connect import Connection
from millstream.client.consume import Gap, Reader
from millstream.client.position import TopicPartition
from millstream.errors import MillstreamError
from millstream.files.shapes import Writer
from millstream.files.store import UNFINISHED, Store

_BATCH = 2000
_LOOK_FOR_NEW_EVERY = 5.0  # seconds between two looks for new partitions
_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)-(?P<first>\d{20})-(?P<last>\d{20})(?P<suffix>\.[a-z]+)")


def file_name(place: TopicPartition, first: int, last: int, suffix: str) -> str:
    return f"{place.topic}-{place.partition}-{first:020}-{last:020}{suffix}"


def written(store: Store, topic: str, suffix: str) -> dict[TopicPartition, int]:
    """The offset after the last that files of a topic cover, by partition; removes what is not whole.

    Raises MillstreamError where two files cover the same offset: no run of this leaves that behind."""
    ranges: dict[TopicPartition, list[tuple[int, int, str]]] = {}
    for name in list(store.names()):
        found = _NAME.fullmatch(name.removeprefix(UNFINISHED))
        if found is None or found["topic"] != topic or found["suffix"] != suffix:
            continue
        if name.startswith(UNFINISHED):
            store.remove(name)
            continue
        place = TopicPartition(topic, int(found["partition"]))
        ranges.setdefault(place, []).append((int(found["first"]), int(found["last"]), name))
    after = {}
    for place, files in ranges.items():
        files.sort()
        for (_, last, one), (first, _, other) in pairwise(files):
            if first <= last:
                raise MillstreamError(f"{one} and {other} cover the same offsets; keep one of them")
        after[place] = files[-1][1] + 1
    return after


@dataclass(slots=True)
class Counters:
    """What is in files that are complete, since the start."""

    records: int = 0
    files: int = 0


@dataclass(slots=True)
class _Open:
    """A file that is being written: it covers ``first`` up to ``next``."""

    name: str
    file: IO[bytes]
    writer: Writer
    first: int
    next: int
    records: int
    begun: float


@dataclass(slots=True)
class Export:
    """One topic to one store. A file is complete after ``most_bytes`` or ``most_seconds``; ``decoded`` is
    what is written of a record."""

    connection: Connection
    topic: str
    store: Store
    shape: Callable[[IO[bytes]], Writer]
    suffix: str
    most_bytes: int
    most_seconds: float
    decoded: Callable[[Any], Any] | None = None
    complain: Callable[[str], None] = print
    counters: Counters = field(default_factory=Counters)
    _files: dict[TopicPartition, _Open] = field(default_factory=dict)
    _next: dict[TopicPartition, int] = field(default_factory=dict)

    def run(
        self, ended: Callable[[], bool], *, follow: bool = False, shown: Callable[[], None] = lambda: None
    ) -> None:
        """Write what is there when it starts, or with ``follow`` until ``ended``. What is in no complete file
        then is completed, unless an error ends it."""
        done = written(self.store, self.topic, self.suffix)
        with Admin(self.connection) as admin:
            places = admin.partitions([self.topic])
            bounds = admin.bounds(places, committed_only=True)
        for place in places:
            start, end = bounds[place]
            self._next[place] = done.get(place, start)
            if self._next[place] > end:
                raise MillstreamError(
                    f"{place} ends at offset {end}, but there are files up to {self._next[place] - 1}: the"
                    " topic was made anew, or this is another broker's; export to another directory"
                )
            if self._next[place] < start:
                self._skip(place, start)
        stops = None if follow else {place: bounds[place].end for place in places}
        with Reader(self.connection, dict(self._next), stops, on_gap=self._gap) as reader:
            self._read(reader, ended, follow, shown)
        if stops is not None and not ended():
            for place, end in stops.items():
                self._cover(place, end)
        for place in list(self._files):
            self._complete(place)
        shown()

    def _read(
        self, reader: Reader, ended: Callable[[], bool], follow: bool, shown: Callable[[], None]
    ) -> None:
        look_again = time.monotonic() + _LOOK_FOR_NEW_EVERY
        while not ended() and not reader.finished:
            by_place: dict[tuple[str, int], list[Any]] = {}
            for record in reader.read(_BATCH, 0.2):
                by_place.setdefault((record.topic(), record.partition()), []).append(record)
            for key, records in by_place.items():
                self._write(TopicPartition(*key), records)
            now = time.monotonic()
            for place, opened in list(self._files.items()):
                if opened.writer.size >= self.most_bytes or now - opened.begun >= self.most_seconds:
                    self._complete(place)
                    shown()
            if follow and now > look_again:
                self._follow_new(reader)
                look_again = now + _LOOK_FOR_NEW_EVERY

    def _follow_new(self, reader: Reader) -> None:
        count = reader.topics(timeout=2.0).get(self.topic, 0)
        fresh = {TopicPartition(self.topic, index): 0 for index in range(count)}
        fresh = {place: 0 for place in fresh if place not in self._next}
        if fresh:
            self._next.update(fresh)
            reader.add(fresh)

    def _gap(self, gap: Gap) -> None:
        if gap.partition in self._files:
            self._complete(gap.partition)  # a file's name covers no records that nobody could read
        self._skip(gap.partition, gap.until)

    def _skip(self, place: TopicPartition, until: int) -> None:
        first = self._next[place]
        self.complain(f"{place}: offsets {first} to {until - 1} were deleted before they were exported")
        self._next[place] = until

    def _write(self, place: TopicPartition, records: list[Any]) -> None:
        opened = self._files.get(place)
        if opened is None:
            first = self._next[place]
            name = file_name(place, first, 0, self.suffix)
            file = self.store.create(name)
            opened = _Open(name, file, self.shape(file), first, first, 0, time.monotonic())
            self._files[place] = opened
        opened.writer.write(records if self.decoded is None else list(map(self.decoded, records)))
        opened.records += len(records)
        opened.next = self._next[place] = records[-1].offset() + 1

    def _cover(self, place: TopicPartition, end: int) -> None:
        """The partition was read to ``end``: what is left of it holds no records."""
        opened = self._files.get(place)
        if opened is not None:
            opened.next = self._next[place] = max(end, opened.next)

    def _complete(self, place: TopicPartition) -> None:
        opened = self._files.pop(place)
        opened.writer.end()
        final = file_name(place, opened.first, opened.next - 1, self.suffix)
        self.store.finish(opened.name, opened.file, final)
        self.counters.records += opened.records
        self.counters.files += 1
