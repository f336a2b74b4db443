"""Decides where a read starts and ends, how much of it is one micro-batch, and which task reads what.

Spark's checkpoint stores offsets as ``{"topic": {"0": 23}}``: the next offset to read of every partition, as
with Spark's own Kafka source. Spark logs only where a batch ends, because a batch starts where the previous
one ended. Partitions that no earlier batch has read (all of them in batch 0, new ones later) have their start
stored next to their end, as ``{"start topic": {"0": 0}}``. A batch that is run again then reads what it was
planned to read, whatever ``startingOffsets`` means by that time. The topics' ids are stored too, because
offsets of one topic say nothing about a later topic of the same name. Everything except ``resolve`` is pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.text.position import END, START, Bounds, Position, TopicPartition, parse_position
from millstream.core.errors import ConfigError
from millstream.core.subscription import included, pattern_in

Offsets = dict[TopicPartition, int]

# Ranges shorter than this share a task, because a task costs more than reading them.
SMALL_RANGE = 10_000


# These replace a topic's name. No topic can have such a name.
_TICK = ""
_IDS = "/ids"
_START = "start "


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, Any]]:
    """Offsets in the form that Spark stores."""
    found: dict[str, dict[str, Any]] = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def from_json(value: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Offsets from the form that Spark stores."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        if topic not in (_TICK, _IDS) and not topic.startswith(_START)
        for partition, offset in partitions.items()
    }


def starts_in(value: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """The starts of the partitions that this batch is the first to read."""
    return from_json(
        {topic.removeprefix(_START): each for topic, each in value.items() if topic.startswith(_START)}
    )


def with_starts(
    value: dict[str, dict[str, Any]], starts: Mapping[TopicPartition, int]
) -> dict[str, dict[str, Any]]:
    """The same offsets, plus the starts of partitions that were not read before."""
    return {**value, **{_START + topic: each for topic, each in to_json(starts).items()}}


def finish_in(value: Mapping[str, Mapping[str, Any]]) -> int | None:
    """The event time, in microseconds, to which a batch carries a query whose input has ended; None if the
    batch carries it nowhere."""
    return value.get(_TICK, {}).get("finish")


def tick_in(value: Mapping[str, Mapping[str, Any]]) -> int:
    """The time, in milliseconds, of the last micro-batch that was made only because time had passed."""
    return int(value.get(_TICK, {}).get("0", 0))


def with_tick(
    value: dict[str, dict[str, Any]], tick: int, finish: int | None = None
) -> dict[str, dict[str, Any]]:
    """The same offsets at another time. Spark takes them for different offsets, and makes a micro-batch."""
    times = ({"0": tick} if tick else {}) | ({} if finish is None else {"finish": finish})
    return {**value, _TICK: times} if times else value


def ids_in(value: Mapping[str, Mapping[str, Any]]) -> Mapping[str, str]:
    """The ids of the offsets' topics, if known."""
    return value.get(_IDS, {})


def with_ids(value: dict[str, dict[str, Any]], ids: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {**value, _IDS: dict(sorted(ids.items()))} if ids else value


def created_again(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Topics whose id differs from the one before."""
    return sorted(name for name, id in before.items() if after.get(name, id) != id)


@dataclass(frozen=True, slots=True)
class Positions:
    """A parsed startingOffsets or endingOffsets: one place for all partitions, or one for each."""

    everywhere: Position | None = None
    each: Mapping[TopicPartition, Position] | None = None
    group: bool = False  # the group's committed offsets; ``everywhere`` applies where it has none


def parse_positions(text: str, option: str, now_ms: int) -> Positions:
    """Parse startingOffsets or endingOffsets."""
    by_time = text.startswith("times:")
    if by_time:
        text = text.removeprefix("times:")
    if text.lstrip().startswith("{"):
        return Positions(each=_parse_each(text, option, by_time, now_ms))
    word, _, fallback = text.partition(":")
    if word == "group":
        if fallback not in ("", "earliest", "latest"):
            raise ConfigError(f"option {option}: {text!r}; write group, group:earliest or group:latest")
        return Positions(
            START if fallback == "earliest" else END if fallback == "latest" else None, group=True
        )
    try:
        return Positions(parse_position(text, now_ms))
    except ConfigError:
        raise ConfigError(
            f"option {option}: {text!r} is not earliest, latest, group, a time (@-1h, @2026-01-01) or JSON"
            ' ({"topic": {"0": 23}})'
        ) from None


def mentioned(text: str, option: str, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions for which startingOffsets or endingOffsets says something: all, unless it is JSON."""
    each = parse_positions(text, option, 0).each
    return [partition for partition in partitions if each is None or partition in each]


def existing_topics(cluster: Cluster, subscriptions: Collection[str]) -> dict[str, int]:
    """The topics that subscriptions include at the moment, with their number of partitions."""
    if any(pattern_in(one) is not None for one in subscriptions):
        return included(subscriptions, cluster.topics())
    return cluster.topics(subscriptions)


def _parse_each(text: str, option: str, by_time: bool, now_ms: int) -> dict[TopicPartition, Position]:
    shape = ConfigError(f'option {option}: {text} is not JSON of the form {{"topic": {{"0": 23, "1": -2}}}}')
    try:
        document = json.loads(text)
    except ValueError:
        raise shape from None
    places: dict[TopicPartition, Position] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise shape
        for number, value in partitions.items():
            if not number.isdigit():
                raise shape
            place = _parse_one(value, by_time, now_ms)
            if place is None:
                raise ConfigError(
                    f"option {option}: {value!r} for {topic}[{number}] is neither an offset nor a time"
                )
            places[TopicPartition(topic, int(number))] = place
    return places


def _parse_one(value: Any, by_time: bool, now_ms: int) -> Position | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        if by_time:
            return Position("time", value) if value >= 0 else None
        if value in (EARLIEST, LATEST):
            return START if value == EARLIEST else END
        return Position("offset", value) if value >= 0 else None
    try:
        return parse_position(value, now_ms) if isinstance(value, str) else None
    except ConfigError:
        return None


def parse_assign(text: str) -> dict[str, list[int]]:
    """Parse the option ``assign``."""
    try:
        document = json.loads(text)
        chosen = {topic: [int(number) for number in numbers] for topic, numbers in document.items()}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f'option assign: {text} is not JSON of the form {{"topic": [0, 2]}}') from None
    return chosen


def resolve(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    places: Positions,
    option: str,
    *,
    group: str | None,
    read_committed: bool,
    strict: bool,
) -> Offsets:
    """The offset that ``places`` means now in each partition. With ``strict``, an offset outside of the
    partition's log is refused."""
    if not partitions:
        return {}
    starts = cluster.ends(partitions, EARLIEST)
    ends = cluster.ends(partitions, LATEST, read_committed=read_committed)
    committed: Offsets = {}
    if places.group:
        if group is None:
            raise ConfigError(f"option {option}: group requires the option groupId")
        committed = cluster.committed(group, partitions)
    wanted: dict[TopicPartition, Position] = {}
    for partition in partitions:
        if partition in committed:
            wanted[partition] = Position("offset", committed[partition])
        elif places.everywhere is not None:
            wanted[partition] = places.everywhere
        elif places.each is not None and partition in places.each:
            wanted[partition] = places.each[partition]
    missing = sorted(set(partitions) - set(wanted))
    if missing:
        why = f"group {group} has no offset for" if places.group else "it does not mention"
        also = "; write group:earliest or group:latest" if places.group else ""
        raise ConfigError(f"option {option}: {why} {', '.join(map(str, missing))}{also}")
    extra = sorted(set(places.each or ()) - set(partitions))
    if extra:
        raise ConfigError(
            f"option {option}: {', '.join(map(str, extra))} is not among the partitions to read"
        )
    times = {p: place.value for p, place in wanted.items() if place.kind == "time"}
    by_time = cluster.offsets(times) if times else {}
    found: Offsets = {}
    for partition, place in wanted.items():
        bounds = Bounds(starts[partition], ends[partition])
        if strict and place.kind == "offset" and not bounds.start <= place.value <= bounds.end:
            raise ConfigError(
                f"option {option}: {partition} has offsets {bounds.start} to {bounds.end}, not {place.value};"
                " with failOnDataLoss=false, the nearest offset is used"
            )
        at = by_time.get(partition)
        found[partition] = place.resolve(bounds, time_offset=None if at is None else at.offset)
    return found


def at_most(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], records: int) -> Offsets:
    """End offsets that include at most ``records`` in total. Each partition's share is proportional to what
    is waiting in it."""
    waiting = {p: max(0, offset - start.get(p, offset)) for p, offset in end.items()}
    total = sum(waiting.values())
    if total <= records:
        return dict(end)
    shares = {p: records * size // total for p, size in waiting.items()}
    # The rounding remainder goes to the partitions with the most waiting, so at least one record moves.
    left = records - sum(shares.values())
    for partition in sorted(waiting, key=lambda p: (-waiting[p], p))[:left]:
        shares[partition] += 1
    return {p: start.get(p, offset) + min(shares[p], waiting[p]) for p, offset in end.items()}


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition, from ``first`` up to ``end``, which is not included."""

    partition: TopicPartition
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


def divide(
    spans: Iterable[Span], *, min_tasks: int | None = None, max_records: int | None = None
) -> list[list[Span]]:
    """Which spans each task reads: large spans are split, small ones share a task. Deterministic."""
    spans = [span for span in spans if span.size > 0]
    if max_records is not None:
        spans = [piece for span in spans for piece in _pieces(span, -(-span.size // max_records))]
    if min_tasks is not None:
        total = sum(span.size for span in spans)
        if len(spans) < min_tasks:
            spans = [
                piece
                for span in spans
                for piece in _pieces(span, max(1, round(min_tasks * span.size / total)))
            ]
        return [[span] for span in spans]
    tasks: list[list[Span]] = []
    room = 0
    for span in sorted(spans, key=lambda span: (span.size, span.partition, span.first)):
        if span.size <= room:
            tasks[-1].append(span)
            room -= span.size
        else:
            tasks.append([span])
            room = min(SMALL_RANGE, max_records or SMALL_RANGE) - span.size
    return tasks


def _pieces(span: Span, count: int) -> list[Span]:
    count = max(1, min(count, span.size))
    bounds = [span.first + span.size * i // count for i in range(count + 1)]
    return [Span(span.partition, first, end) for first, end in pairwise(bounds) if first < end]
