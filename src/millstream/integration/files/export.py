"""Write a topic out as files, with each record in exactly one of them.

The name of a file says what is in it:

    payments.XnUYN3GQTkK0Zb2mOp9r_A-0-00000000000000000000-00000000000000004711.jsonl
    topic, its id, partition, the first and the last offset it covers

A file is there whole or not at all (``integration.files.store``). It covers every offset of its range,
including those that no reader sees (transaction markers, records compacted away). So the names alone say
how far the topic was written out. A new run continues after the last file of each partition, and what was
being written when the last run was killed is written again. No other state is kept, and a directory can be
moved.

The id tells a topic from a later one of the same name. A topic that was deleted and created again starts at
offset 0, so its records go to other files. Readers request a topic by its name. To be certain which one
they read, the id is looked up after each batch of records is read and before it is written. A batch that
came with another id is dropped, because its records may belong to either topic.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any, NamedTuple

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import Gap, PartitionReader
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import Bounds, TopicPartition
from millstream.core.errors import MillstreamError, RequestFailed
from millstream.integration.files.formats import Writer
from millstream.integration.files.store import UNFINISHED, FileStore

_BATCH = 2000
_LOOK_FOR_NEW_EVERY = 5.0  # seconds between two checks for new partitions
_WAIT_FOR_TOPIC = 0.5  # seconds between two checks for a topic that was deleted
# The id is missing if the broker is too old to report it.
_NAME = re.compile(
    r"(?P<topic>.+?)(?:\.(?P<id>[\w-]{22}))?-(?P<partition>\d+)-(?P<first>\d{20})-(?P<last>\d{20})"
    r"(?P<suffix>\.[a-z]+)",
    re.ASCII,
)


def file_name(place: TopicPartition, id: str, first: int, last: int, suffix: str) -> str:
    topic = f"{place.topic}.{id}" if id else place.topic
    return f"{topic}-{place.partition}-{first:020}-{last:020}{suffix}"


class Exported(NamedTuple):
    """What a directory holds of a topic."""

    after: dict[TopicPartition, int]  # the offset after the last one that files of this topic cover
    others: frozenset[str]  # the ids in files of other topics that had the same name


def written(store: FileStore, topic: str, id: str, suffix: str) -> Exported:
    """What a store holds of a topic; removes files that are not whole.

    Raises MillstreamError if two files cover the same offset, because no export leaves that behind, and if
    files with the topic's name have no id although the topic has one."""
    ranges: dict[TopicPartition, list[tuple[int, int, str]]] = {}
    others = set()
    for name in list(store.names()):
        found = _NAME.fullmatch(name.removeprefix(UNFINISHED))
        if found is None or found["topic"] != topic or found["suffix"] != suffix:
            continue
        if name.startswith(UNFINISHED):
            store.remove(name)
            continue
        if (found["id"] or "") != id:
            if not found["id"]:
                raise MillstreamError(
                    f"{name} does not say which topic {topic!r} it was written from: its name has no id."
                    " If the files are of the present topic, rename them to begin with"
                    f" {topic}.{id}-; otherwise export to another directory"
                )
            others.add(found["id"])
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
    return Exported(after, frozenset(others))


@dataclass(slots=True)
class ExportCounters:
    """What complete files hold, since the start."""

    records: int = 0
    files: int = 0


@dataclass(slots=True)
class _Open:
    """A file that is being written: it covers ``first`` up to, not including, ``next``."""

    name: str
    file: IO[bytes]
    writer: Writer
    first: int
    next: int
    records: int
    begun: float


@dataclass(slots=True)
class Export:
    """Exports one topic to one store. A file is complete after ``most_bytes`` or ``most_seconds``.
    ``decoded`` turns a record into what is written of it."""

    connection: Connection
    topic: str
    store: FileStore
    shape: Callable[[IO[bytes]], Writer]
    suffix: str
    most_bytes: int
    most_seconds: float
    decoded: Callable[[Any], Any] | None = None
    complain: Callable[[str], None] = print
    counters: ExportCounters = field(default_factory=ExportCounters)
    _id: str = ""
    _files: dict[TopicPartition, _Open] = field(default_factory=dict)
    _next: dict[TopicPartition, int] = field(default_factory=dict)
    _gaps: list[Gap] = field(default_factory=list)  # met since the last batch

    def run(
        self, ended: Callable[[], bool], *, follow: bool = False, shown: Callable[[], None] = lambda: None
    ) -> None:
        """Write what exists at the start, or with ``follow`` everything until ``ended``. Files that are
        open at the end are completed, unless an error ends the run."""
        with contextlib.closing(Cluster(self.connection)) as cluster:
            while not self._export(cluster, ended, follow, shown):
                if not self._created_again(cluster, ended, follow):
                    break
            shown()

    def _export(
        self, cluster: Cluster, ended: Callable[[], bool], follow: bool, shown: Callable[[], None]
    ) -> bool:
        """Export the topic that has the name now. False if it was deleted in the meantime."""
        with Admin(self.connection) as admin:
            places = admin.partitions([self.topic])
            self._id = cluster.topic_id(self.topic) or ""
            bounds = admin.bounds(places, committed_only=True)
        self._begin(places, bounds)
        stops = None if follow else {place: bounds[place].end for place in places}
        with PartitionReader(self.connection, dict(self._next), stops, on_gap=self._gaps.append) as reader:
            same = self._read(reader, cluster, ended, follow, shown) and self._is_same(cluster)
        if same and stops is not None and not ended():
            for place, end in stops.items():
                self._cover(place, end)
        for place in list(self._files):
            self._complete(place)
        return same

    def _begin(self, places: Sequence[TopicPartition], bounds: Mapping[TopicPartition, Bounds]) -> None:
        done = written(self.store, self.topic, self._id, self.suffix)
        if done.others and not done.after:
            self.complain(
                f"{self.topic} was deleted and created again since it was exported to this directory; the new"
                f" topic is exported from its start, to files named {self.topic}.{self._id}-..."
            )
        self._next.clear()
        self._gaps.clear()
        for place in places:
            start, end = bounds[place]
            self._next[place] = done.after.get(place, start)
            if self._next[place] > end:
                raise self._cut(place, end)
            if self._next[place] < start:
                self._skip(place, start)

    def _read(
        self,
        reader: PartitionReader,
        cluster: Cluster,
        ended: Callable[[], bool],
        follow: bool,
        shown: Callable[[], None],
    ) -> bool:
        """True if it was the same topic until the end."""
        look_again = time.monotonic() + _LOOK_FOR_NEW_EVERY
        while not ended() and not reader.finished:
            by_place: dict[tuple[str, int], list[Any]] = {}
            try:
                records = reader.read(_BATCH, 0.2)
            except RequestFailed:
                if self._is_same(cluster):
                    raise
                return False
            now = time.monotonic()
            if (records or self._gaps or now > look_again) and not self._is_same(cluster):
                return False
            for record in records:
                by_place.setdefault((record.topic(), record.partition()), []).append(record)
            for gap in self._gaps:
                place = gap.partition
                came = by_place.pop(place, [])
                before = [record for record in came if record.offset() < gap.first]
                if before:
                    self._write(place, before)
                self._gap(gap)
                by_place[place] = came[len(before) :]
            self._gaps.clear()
            for key, came in by_place.items():
                if came:
                    self._write(TopicPartition(*key), came)
            for place, opened in list(self._files.items()):
                if opened.writer.size >= self.most_bytes or now - opened.begun >= self.most_seconds:
                    self._complete(place)
                    shown()
            if follow and now > look_again:
                self._follow_new(reader)
                look_again = now + _LOOK_FOR_NEW_EVERY
        return True

    def _is_same(self, cluster: Cluster) -> bool:
        return cluster.topic_id(self.topic) == self._id

    def _created_again(self, cluster: Cluster, ended: Callable[[], bool], follow: bool) -> bool:
        """True if there is a topic to continue with after the last one was deleted. Waits for it with
        ``follow``, else raises."""
        places = ", ".join(f"{place} up to offset {offset - 1}" for place, offset in self._next.items())
        gone = f"{self.topic} was deleted while it was exported; exported so far: {places}"
        if not follow:
            raise MillstreamError(f"{gone}. Run the export again if it was created again")
        self.complain(f"{gone}. Waiting until it is created again")
        while cluster.topic_id(self.topic) is None:
            if ended():
                return False
            time.sleep(_WAIT_FOR_TOPIC)
        return True

    def _follow_new(self, reader: PartitionReader) -> None:
        count = reader.topics(timeout=2.0).get(self.topic, 0)
        fresh = {TopicPartition(self.topic, index): 0 for index in range(count)}
        fresh = {place: 0 for place in fresh if place not in self._next}
        if fresh:
            self._next.update(fresh)
            reader.add(fresh)

    def _cut(self, place: TopicPartition, end: int) -> MillstreamError:
        return MillstreamError(
            f"{place} ends at offset {end}, but there are files up to {self._next[place] - 1}: the log was"
            " truncated, or it is on another broker; export to another directory"
        )

    def _gap(self, gap: Gap) -> None:
        if gap.until < gap.first:
            raise self._cut(gap.partition, gap.until)
        if gap.partition in self._files:
            self._complete(gap.partition)  # a file's name must not cover records that were lost
        self._skip(gap.partition, gap.until)

    def _skip(self, place: TopicPartition, until: int) -> None:
        first = self._next[place]
        self.complain(f"{place}: offsets {first} to {until - 1} were deleted before they were exported")
        self._next[place] = until

    def _write(self, place: TopicPartition, records: list[Any]) -> None:
        opened = self._files.get(place)
        if opened is None:
            first = self._next[place]
            name = file_name(place, self._id, first, 0, self.suffix)
            file = self.store.create(name)
            opened = _Open(name, file, self.shape(file), first, first, 0, time.monotonic())
            self._files[place] = opened
        opened.writer.write(records if self.decoded is None else list(map(self.decoded, records)))
        opened.records += len(records)
        opened.next = self._next[place] = records[-1].offset() + 1

    def _cover(self, place: TopicPartition, end: int) -> None:
        """The partition was read up to ``end``: what is left before that holds no records."""
        opened = self._files.get(place)
        if opened is not None:
            opened.next = self._next[place] = max(end, opened.next)

    def _complete(self, place: TopicPartition) -> None:
        opened = self._files.pop(place)
        opened.writer.end()
        final = file_name(place, self._id, opened.first, opened.next - 1, self.suffix)
        self.store.finish(opened.name, opened.file, final)
        self.counters.records += opened.records
        self.counters.files += 1
