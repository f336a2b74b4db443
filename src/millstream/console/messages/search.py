"""Searches a topic for records, newest or oldest first, and bounds the work of each request.

Rules. Every search is bounded in records, in bytes and in time. It says how far it got, and returns a cursor
from which the next search continues. Between two pages no record is left out, and none is returned twice.
Memory holds one stretch of one partition, and at most a page of found records for each partition. The client
may disconnect, so ``ended`` is checked before each fetch.

Theory of operation. Each partition is a side. A side is read forwards in stretches, or backwards in windows:
each window is read forwards and then reversed. Windows grow while they hold little. The sides are merged by
the times of the records. A side is read further only when it has nothing left to return, so a page costs
about what it shows. When a bound is reached, the next page begins, for each side, at the first found record
that was not returned, or where reading stopped if there is none.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from millstream.client.insight.peek import FETCH_BYTES, PeekedRange
from millstream.client.text.position import Bounds, TopicPartition, parse_position
from millstream.console.messages.decoding import Decoding
from millstream.console.messages.message import Filter, Message, MessageQuery, message
from millstream.core.errors import ConfigError, MillstreamError, RequestFailed

_FIRST_BYTES = 64 * 1024
_UNKNOWN_TOPIC_OR_PARTITION = 3
_WIDEST = 20_000  # offsets in a window
_LIGHT, _HEAVY = 1 << 21, 1 << 23  # bytes in a window: below the first it grows, above the second it shrinks
CURSOR = r"[0-9]{1,9}:[0-9]{1,19}(,[0-9]{1,9}:[0-9]{1,19})*"

HasEnded = Callable[[], bool]
Stopped = Literal["", "records", "bytes", "time"]


class ClientGone(MillstreamError):
    """The client has disconnected."""


class Log(Protocol):
    """The log that is searched, as ``client.peek.Peek`` offers it."""

    def partitions(self, topic: str) -> list[TopicPartition]: ...
    def bounds(self, places: list[TopicPartition]) -> dict[TopicPartition, Bounds]: ...
    def since(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]: ...
    def stretch(
        self, place: TopicPartition, first: int, until: int, most_bytes: int = FETCH_BYTES
    ) -> PeekedRange: ...


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The bounds at which a search ends, whatever it has found."""

    records: int = 200_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 4.0


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page of a search. ``looked`` is the number of records examined, and ``bytes`` their size as
    received. ``left`` is the number of offsets left in this direction. ``stopped`` names the bound that ended
    the search, if one did. ``next`` is the cursor to continue from, empty at the end. ``reached_ms`` is the
    time up to which all partitions were searched. ``ends`` is a cursor too: where the partitions end, to
    follow them from here on. ``unreadable`` says which of the examined offsets can't be read, and why.
    """

    messages: list[Message]
    looked: int
    bytes: int
    seconds: float
    stopped: Stopped
    left: int
    next: str
    reached_ms: int | None
    ends: str
    unreadable: list[str]


def cursor_of(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def parse_cursor(text: str) -> dict[int, int]:
    if not re.fullmatch(CURSOR, text):
        raise ConfigError("cursor: it does not come from another page; leave it out to start over")
    pairs = (part.split(":") for part in text.split(","))
    return {int(partition): min(int(offset), 2**63 - 1) for partition, offset in pairs}


@dataclass(slots=True)
class _Side:
    """One partition. Offsets from ``first`` up to ``until`` are not searched yet. ``found`` has the records
    that are not returned yet.
    """

    place: TopicPartition
    first: int
    until: int
    step: int
    found: deque[Message] = field(default_factory=deque)
    seen_ms: int | None = None

    @property
    def at_end(self) -> bool:
        return self.first >= self.until


class _Search:
    def __init__(
        self, log: Log, query: MessageQuery, decoding: Decoding, limits: SearchLimits, ended: HasEnded
    ) -> None:
        self._log = log
        self._query = query
        self._decoding = decoding
        self._filter = Filter(query, decoding)
        self._limits = limits
        self._ended = ended
        self._began = time.monotonic()
        self.looked = 0
        self.bytes = 0
        self.unreadable: list[str] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def stopped(self) -> Stopped:
        if self.looked >= self._limits.records:
            return "records"
        if self.bytes >= self._limits.bytes:
            return "bytes"
        return "time" if self.seconds >= self._limits.seconds else ""

    def fill(self, sides: list[_Side]) -> None:
        """Search on until each side has something to return. Sides take turns, so that none takes all the
        time.
        """
        look = self._back if self._query.backwards else self.on
        empty = [side for side in sides if not side.found and not side.at_end]
        while empty and not self.stopped():
            for side in empty:
                look(side)
                if self.stopped():
                    break
            empty = [side for side in empty if not side.found and not side.at_end]

    def _stretch(
        self, side: _Side, first: int, until: int, most_bytes: int
    ) -> tuple[PeekedRange, list[Message]]:
        if self._ended():
            raise ClientGone("the client has disconnected")
        stretch = self._log.stretch(side.place, first, until, most_bytes)
        self.bytes += stretch.size
        if stretch.unreadable is not None and str(stretch.unreadable) not in self.unreadable:
            self.unreadable.append(str(stretch.unreadable))
        partition = side.place.partition
        accepts = self._filter.accepts
        found = []
        for batch in stretch.batches:
            self.looked += len(batch.records)
            found += [
                message(partition, batch, record, self._decoding)
                for record in batch.records
                if accepts(partition, record)
            ]
        if stretch.batches:
            edge = 0 if self._query.backwards else -1
            side.seen_ms = stretch.batches[edge].records[edge].timestamp
        return stretch, found

    def on(self, side: _Side) -> None:
        """Search the next stretch."""
        size = _FIRST_BYTES if side.step else FETCH_BYTES
        stretch, found = self._stretch(side, side.first, side.until, size)
        side.step = 0  # only the first fetch is small
        side.first = stretch.next_offset
        if len(found) > self._query.limit:
            side.first = found[self._query.limit].offset
            del found[self._query.limit :]
        side.found.extend(found)

    def _back(self, side: _Side) -> None:
        low = max(side.first, side.until - side.step)
        at, size, before = low, _FIRST_BYTES, self.bytes
        found: deque[Message] = deque(maxlen=self._query.limit)
        missed = False  # True if more were found than a page holds
        seen_ms = None
        while at < side.until:
            stretch, some = self._stretch(side, at, side.until, size)
            missed = missed or len(found) + len(some) > self._query.limit
            found.extend(some)
            seen_ms = side.seen_ms if seen_ms is None else min(seen_ms, side.seen_ms or seen_ms)
            at, size = stretch.next_offset, FETCH_BYTES
        side.seen_ms = seen_ms
        side.until = found[0].offset if missed else low
        side.found.extend(reversed(found))
        weight = self.bytes - before
        if weight > _HEAVY:
            side.step = max(1, side.step // 4)
        elif weight < _LIGHT:
            side.step = min(_WIDEST, 2 * side.step)


def search(
    log: Log,
    topic: str,
    query: MessageQuery,
    decoding: Decoding,
    *,
    now_ms: int,
    limits: SearchLimits | None = None,
    ended: HasEnded = bool,
) -> MessagePage:
    """One page of a topic's records."""
    looking = _Search(log, query, decoding, limits or SearchLimits(), ended)
    places = chosen(log.partitions(topic), query.partition)
    bounds = log.bounds(places)
    sides = _sides(log, query, places, bounds, now_ms)
    looking.fill(sides)
    given: list[Message] = []
    while len(given) < query.limit:
        ready = [side for side in sides if side.found]
        if not ready:
            break
        pick = max if query.backwards else min
        side = pick(ready, key=lambda side: (side.found[0].timestamp_ms or 0, -side.place.partition))
        given.append(side.found.popleft())
        if not side.found and len(given) < query.limit:
            looking.fill([side])
    stopped = looking.stopped()
    following = _following(sides, backwards=query.backwards)
    times = [side.seen_ms for side in sides if side.seen_ms is not None and not side.at_end]
    return MessagePage(
        given,
        looking.looked,
        looking.bytes,
        round(looking.seconds, 3),
        stopped if following and len(given) < query.limit else "",
        sum(
            abs(at - (bounds[side.place].start if query.backwards else side.until))
            for side in sides
            if (at := following.get(side.place.partition)) is not None
        ),
        cursor_of(following),
        (max if query.backwards else min)(times, default=None),
        cursor_of({place.partition: bounds[place].end for place in places}),
        looking.unreadable,
    )


def _sides(
    log: Log,
    query: MessageQuery,
    places: list[TopicPartition],
    bounds: Mapping[TopicPartition, Bounds],
    now_ms: int,
) -> list[_Side]:
    step = max(1, query.limit)
    if query.cursor:
        offsets = parse_cursor(query.cursor)
        going = [place for place in places if place.partition in offsets]
        if query.backwards:
            ends = {place: min(offsets[place.partition], bounds[place].end) for place in going}
            return [_Side(place, bounds[place].start, ends[place], step) for place in going]
        return [
            _Side(place, max(offsets[place.partition], bounds[place].start), bounds[place].end, step)
            for place in going
        ]
    if query.seek == "offset":
        return [
            _Side(place, max(bounds[place].start, query.offset), bounds[place].end, step) for place in places
        ]
    if query.seek == "time":
        moment = time_ms(query.time, now_ms)
        since = log.since(dict.fromkeys(places, moment))
        starts = {place: since[place] for place in places}
        return [
            _Side(place, bounds[place].end if (at := starts[place]) is None else at, bounds[place].end, step)
            for place in places
        ]
    return [_Side(place, bounds[place].start, bounds[place].end, step) for place in places]


def _following(sides: list[_Side], *, backwards: bool) -> dict[int, int]:
    """Where the next page begins: at found records that were not returned, or where reading stopped."""
    offsets = {}
    for side in sides:
        if side.found:
            offset = side.found[0].offset
            offsets[side.place.partition] = offset + 1 if backwards else offset
        elif not side.at_end:
            offsets[side.place.partition] = side.until if backwards else side.first
    return offsets


def time_ms(text: str, now_ms: int) -> int:
    """A time in the syntax of the command line: a date, a date and time, an age such as -1h, or
    milliseconds.
    """
    if not text.strip():
        raise ConfigError("time: give one, such as 2026-01-01T10:30, -1h or milliseconds since 1970")
    return parse_position(f"@{text.strip().lstrip('@')}", now_ms).value


def chosen(places: list[TopicPartition], partition: int | None) -> list[TopicPartition]:
    """All partitions, or only the requested one."""
    if partition is None:
        return places
    if not 0 <= partition < len(places):
        raise RequestFailed(
            _UNKNOWN_TOPIC_OR_PARTITION,
            "UNKNOWN_TOPIC_OR_PART",
            f"there is no partition {partition}; the topic has 0 to {len(places) - 1}",
        )
    return [places[partition]]


# Following -------------------------------------------------------------------------------------------

AT_ONCE = SearchLimits(records=20_000, bytes=8 * 1024 * 1024, seconds=1.0)


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records that arrived since the last look, the newest first. ``skipped`` counts those left out because
    they came too fast to be shown or examined. ``offsets`` is where to continue.
    """

    messages: list[Message]
    skipped: int
    offsets: dict[int, int]


def follow(
    log: Log,
    topic: str,
    query: MessageQuery,
    decoding: Decoding,
    offsets: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    limits: SearchLimits = AT_ONCE,
    ended: HasEnded = bool,
) -> Arrived:
    """The records between ``offsets`` and ``ends``, within limits: if there are too many, the newest."""
    looking = _Search(log, query, decoding, limits, ended)
    most = limits.records if query.filters else query.limit
    share = max(1, most // max(1, len(ends)))
    found: list[Message] = []
    reached, skipped = dict(offsets), 0
    for partition, end in ends.items():
        first = offsets.get(partition, end)
        side = _Side(TopicPartition(topic, partition), max(first, end - share), end, 0)
        skipped += side.first - first
        while not side.at_end and not looking.stopped():
            looking.on(side)
            found += side.found
            side.found.clear()
            skipped += max(0, len(found) - query.limit)
            del found[: -query.limit]
        skipped += max(0, side.until - side.first)
        reached[partition] = max(first, end)
    found.sort(key=lambda each: (each.timestamp_ms or 0, each.offset), reverse=True)
    return Arrived(found, skipped, reached)
