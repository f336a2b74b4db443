"""Checks whether a log could have behaved as many clients observed it, without I/O.

It works like Jepsen's Kafka workload. Every record has a unique value, so that what is read can be traced to
the write that it came from. Writers note what they are about to write before they write it, when they are
about to request a commit, and the outcome. A writer that is killed in between leaves an *unknown* outcome:
its transaction may be in the log as a whole, or not at all. A write outside of transactions counts as a
transaction of one record, and sending it requests its commit.

The checks, each an :class:`Anomaly` of that name:

- **lost write**: a committed record is not in the log at the end, or not where it was acknowledged.
- **duplicate**: a value is at two offsets, even if in an aborted transaction.
- **aborted read**: a reader of committed records received a record that was aborted, or whose commit was
  never requested.
- **early read**: such a reader received a record before its commit was requested.
- **vanished read**: such a reader received a record that is not in the committed log at the end.
- **torn transaction**: some records of a transaction are in the log, but not all.
- **reordered poll**: a reader received the same or a lower offset after a higher one.
- **skipped poll**: a reader passed an offset that holds a record for it.
- **contradiction**: two observers saw different values at the same offset.
- **reordered write**: a writer's records are in a different order than it wrote them.
- **unknown value**: a record that nobody wrote.
- **went back**: an end of the log, a last stable offset or a group's offset decreased.
- **hanging transaction**: when nobody writes any more, the last stable offset is not the log's end.
- **copied twice**, **not copied**: the output of a consume-transform-produce job does not match the committed
  input.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Partition = tuple[str, int]
Place = tuple[Partition, int]
Outcome = Literal["committed", "aborted", "unknown"]


@dataclass(frozen=True)
class Write:
    partition: Partition
    value: str
    source: Place | None = None
    """The input record that this one copies."""


@dataclass
class Transaction:
    writer: str
    """The writer, whose writes have an order: a transactional id, or one life of an idempotent producer."""
    writes: list[Write]
    outcome: Outcome = "unknown"
    commit_asked_at: float | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    """The acknowledged offset of each record, by value."""


@dataclass(frozen=True)
class Poll:
    """Records that a reader received together. A reader is one life of a consumer, starting at offset 0."""

    reader: str
    at: float
    committed_only: bool
    records: list[tuple[Partition, int, str]]


@dataclass(frozen=True)
class Mark:
    """One observation of a number that only grows. Marks of one name and partition are in the order seen."""

    name: str
    partition: Partition
    value: int


@dataclass(frozen=True)
class Copying:
    """A job that copies the committed records of one topic to another."""

    source: str
    target: str


@dataclass
class History:
    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    copying: list[Copying] = field(default_factory=list)
    everything: dict[Partition, dict[int, str]] = field(default_factory=dict)
    """The log at the end, as read_uncommitted shows it: value by offset."""
    committed: dict[Partition, dict[int, str]] = field(default_factory=dict)
    """The log at the end, as read_committed shows it."""
    ends: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    """The last stable offset and the end of each partition, at the end of the run."""


@dataclass(frozen=True)
class Anomaly:
    kind: str
    detail: str


def check(history: History) -> list[Anomaly]:
    """All anomalies in a history; empty if a log could have behaved that way."""
    return [
        *_writes(history),
        *_values(history),
        *_order_of_writes(history),
        *_polls(history),
        *_contradictions(history),
        *_marks(history),
        *_copies(history),
    ]


def _places(log: Mapping[Partition, Mapping[int, str]]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = defaultdict(list)
    for partition, records in log.items():
        for offset, value in records.items():
            found[value].append((partition, offset))
    return found


def _origins(history: History) -> dict[str, Transaction]:
    return {write.value: transaction for transaction in history.transactions for write in transaction.writes}


def _writes(history: History) -> Iterator[Anomaly]:
    """A committed transaction must be there as a whole, an unknown one as a whole or not at all, and any
    other not at all.
    """
    there = _places(history.committed)
    for transaction in history.transactions:
        present = [write.value for write in transaction.writes if write.value in there]
        missing = [write.value for write in transaction.writes if write.value not in there]
        who = f"{transaction.writer} ({len(transaction.writes)} records)"
        if transaction.outcome == "committed":
            for value in missing:
                yield Anomaly("lost write", f"{who} committed {value}")
        if transaction.outcome == "aborted" or transaction.commit_asked_at is None:
            for value in present:
                yield Anomaly("aborted read", f"{who} never committed {value}, which is there at the end")
        elif present and missing:
            yield Anomaly("torn transaction", f"{who}: {present} are there and {missing} are not")
        for value, offset in transaction.offsets.items():
            stands = [at for _, at in there.get(value, [])]
            if transaction.outcome == "committed" and stands and offset not in stands:
                yield Anomaly(
                    "lost write", f"{who}: {value} was acknowledged at {offset}, stands at {stands}"
                )


def _values(history: History) -> Iterator[Anomaly]:
    origins = _origins(history)
    for value, places in _places(history.everything).items():
        if len(places) > 1:
            yield Anomaly("duplicate", f"{value} stands at {places}")
        if value not in origins:
            yield Anomaly("unknown value", f"{value} at {places}")


def _order_of_writes(history: History) -> Iterator[Anomaly]:
    places = _places(history.everything)
    last: dict[tuple[str, Partition], tuple[int, str]] = {}
    for transaction in history.transactions:
        for write in transaction.writes:
            for partition, offset in places.get(write.value, [])[:1]:
                before = last.get((transaction.writer, partition), (-1, ""))
                if offset < before[0]:
                    detail = f"{write.value} at {offset}, written after {before[1]} at {before[0]}"
                    yield Anomaly("reordered write", f"{transaction.writer} in {partition}: {detail}")
                last[transaction.writer, partition] = (offset, write.value)


def _polls(history: History) -> Iterator[Anomaly]:
    origins = _origins(history)
    positions: dict[tuple[str, Partition], int] = {}
    in_order = {
        committed_only: {partition: sorted(records) for partition, records in log.items()}
        for committed_only, log in ((True, history.committed), (False, history.everything))
    }
    for poll in history.polls:
        for partition, offset, value in poll.records:
            who = f"{poll.reader} in {partition}"
            before = positions.get((poll.reader, partition), -1)
            if offset <= before:
                yield Anomaly("reordered poll", f"{who}: {offset} after {before}")
            else:
                for passed in _between(in_order[poll.committed_only].get(partition, []), before, offset):
                    yield Anomaly("skipped poll", f"{who}: {before}, {offset}, and {passed} was not given")
            positions[poll.reader, partition] = max(offset, before)
            if poll.committed_only:
                yield from _committed_read(history, origins, poll, partition, offset, value)


def _committed_read(
    history: History,
    origins: Mapping[str, Transaction],
    poll: Poll,
    partition: Partition,
    offset: int,
    value: str,
) -> Iterator[Anomaly]:
    """Anomalies in a record that a reader of committed records received."""
    detail = f"{poll.reader} was given {value} at {partition} {offset}"
    transaction = origins.get(value)
    if transaction is None:
        yield Anomaly("unknown value", detail)
    elif transaction.outcome == "aborted" or transaction.commit_asked_at is None:
        yield Anomaly("aborted read", detail)
    elif poll.at < transaction.commit_asked_at:
        early = transaction.commit_asked_at - poll.at
        yield Anomaly("early read", f"{detail}, {early:.3f} s before its commit was asked for")
    if offset not in history.committed.get(partition, {}):
        yield Anomaly("vanished read", detail)


def _between(offsets: list[int], low: int, high: int) -> list[int]:
    """The offsets strictly between ``low`` and ``high``; ``offsets`` is sorted."""
    return offsets[bisect_right(offsets, low) : bisect_left(offsets, high)]


def _observations(history: History) -> Iterator[tuple[Place, str, str]]:
    for name, log in (("the log", history.everything), ("the committed log", history.committed)):
        for partition, records in log.items():
            for offset, value in records.items():
                yield (partition, offset), value, name
    for transaction in history.transactions:
        for write in transaction.writes:
            if write.value in transaction.offsets:
                place = (write.partition, transaction.offsets[write.value])
                yield place, write.value, f"{transaction.writer}'s acknowledgement"
    for poll in history.polls:
        for partition, offset, value in poll.records:
            yield (partition, offset), value, poll.reader


def _contradictions(history: History) -> Iterator[Anomaly]:
    first: dict[Place, tuple[str, str]] = {}
    for place, value, observer in _observations(history):
        known, by = first.setdefault(place, (value, observer))
        if known != value:
            yield Anomaly("contradiction", f"{place}: {known} by {by}, {value} by {observer}")


def _marks(history: History) -> Iterator[Anomaly]:
    highest: dict[tuple[str, Partition], int] = {}
    at_the_end = (
        Mark(name, partition, value)
        for partition, (stable, end) in history.ends.items()
        for name, value in (("last stable offset", stable), ("end", end))
    )
    for mark in [*history.marks, *at_the_end]:
        before = highest.get((mark.name, mark.partition), -1)
        if mark.value < before:
            yield Anomaly("went back", f"{mark.name} of {mark.partition}: {mark.value} after {before}")
        highest[mark.name, mark.partition] = max(mark.value, before)
    for partition, (stable, end) in history.ends.items():
        if stable != end:
            yield Anomaly("hanging transaction", f"{partition}: stable up to {stable}, ends at {end}")


def _copies(history: History) -> Iterator[Anomaly]:
    sources = {write.value: write.source for t in history.transactions for write in t.writes if write.source}
    for copying in history.copying:
        copies: dict[Place, list[Place]] = defaultdict(list)
        for place, value in _records_of(copying.target, history.committed):
            if value in sources:
                copies[sources[value]].append(place)
        for place, value in _records_of(copying.source, history.committed):
            if len(copies[place]) > 1:
                yield Anomaly("copied twice", f"{value} at {place}: {copies[place]}")
            if not copies[place]:
                yield Anomaly("not copied", f"{value} at {place} to {copying.target}")


def _records_of(topic: str, log: Mapping[Partition, Mapping[int, str]]) -> Iterable[tuple[Place, str]]:
    for partition, records in log.items():
        if partition[0] == topic:
            for offset, value in records.items():
                yield (partition, offset), value
