"""The event time of an operator: each partition's clock, and the watermark that follows from the clocks.

Rules:

- Every partition of a source has a clock: the latest time that its rows have shown. The partition's
  watermark is that time less the lateness that its source allows.
- A row is judged by its own partition: it is late if what it would count in ends at or before the
  watermark that the partition had reached before the row. A log is ordered only within a partition, so
  this is the one judgement that does not depend on how the input was cut into batches.
- The operator's watermark is the minimum over its partitions: no row that is still to come and is on time
  is older. It closes windows and releases waiting rows.
- A partition counts from its first row on, so a partition that never had a row holds nothing back. A source
  that has shown no rows yet is waited for, as long as ``idle_after`` says or forever, because when several
  topics meet, one of them starts first.
- A partition that has shown nothing for ``idle_after`` does not hold the others back. When all are idle,
  event time advances with the wall clock, so that open windows close. A row that comes afterwards and is
  older than the watermark is late, whatever its own partition says.
- Rows that a user's function has made have no position in a log. The partitions that the function reads
  report their times past it, and its rows hold time back as one more partition would, because a function
  may give older times than it takes. Such a row is late if it is older than the operator's watermark
  before the batch.
- A time further in the future than ``ahead`` is not believed: the row does not move its partition's clock.

All times are microseconds since 1970, as in Spark. The processing time is passed in, never read from a
clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

NEVER = -(1 << 62)  # before all time
ALWAYS = 1 << 62  # after all time
# Used in place of a source's number: results of another operator, and rows that a user's function has made.
RESULT, MADE = -1, -2

Times = Any  # numpy arrays of int64; numpy's own types can't say that more precisely


class SourcePartition(NamedTuple):
    """Where rows come from: an input of the operator, one of that input's sources, and a partition."""

    input: int
    source: int
    partition: int


@dataclass(frozen=True, slots=True)
class TimeRules:
    """A source's rules about time, in microseconds."""

    lateness: int = 0
    idle_after: int | None = None
    ahead: int | None = None


class BatchTime(NamedTuple):
    """The time of a batch. ``finish``: the input has ended, and event time advances to this."""

    now: int
    finish: int | None = None


class ObservedTime(NamedTuple):
    """What a task saw of a partition in this batch: the first offset and the latest time."""

    origin: SourcePartition
    first_offset: int
    latest: int  # NEVER if there were rows, but none with a time that is believed


@dataclass(slots=True)
class PartitionClock:
    latest: int
    arrived: int  # when it last showed a row, by the wall clock


@dataclass(slots=True)
class OperatorClock:
    """The clock of one operator in one bucket. All buckets see the same times, so their clocks agree."""

    rules: Mapping[tuple[int, int], TimeRules]  # by input and source
    inputs: int = 1
    now: int = NEVER  # the processing time
    began: int = NEVER
    watermark: int = NEVER
    before: int = NEVER  # the watermark when this batch began
    partitions: dict[SourcePartition, PartitionClock] = field(default_factory=dict)
    _starts: dict[SourcePartition, list[tuple[int, int]]] = field(default_factory=dict)

    def observe(self, seen: Sequence[ObservedTime], now: int) -> None:
        """Advance the clock by the times that a batch has shown."""
        self.now = max(self.now, now)  # wall clocks sometimes go back
        if self.began == NEVER:
            self.began = self.now
        self.before = self.watermark
        self._starts = {}
        for origin, first, latest in sorted(seen, key=lambda one: (one.origin, one.first_offset)):
            clock = self.partitions.get(origin)
            if clock is None:
                clock = self.partitions[origin] = PartitionClock(NEVER, self.now)
            self._starts.setdefault(origin, []).append((first, clock.latest))
            clock.latest = max(clock.latest, latest)
            clock.arrived = self.now
        self.watermark = max(self.watermark, self._reached())

    def watermarks(self, origin: SourcePartition, offsets: Times, latest_before: Times) -> Times:
        """The watermark by which each row of a partition is judged. ``latest_before`` is the latest time
        that the row's own task had seen in the partition before the row."""
        if origin.source == MADE:
            return np.full(len(offsets), self.before, np.int64)
        starts = self._starts.get(origin) or [(0, NEVER)]
        firsts = np.array([first for first, _ in starts])
        reached = np.array([latest for _, latest in starts])
        # Rows without an offset have no order, so they are judged by what was known before the batch.
        span = np.where(offsets < 0, 0, np.maximum(np.searchsorted(firsts, offsets, side="right") - 1, 0))
        latest = np.maximum(reached[span], latest_before)
        lateness = self._rules(origin).lateness
        return np.maximum(np.where(latest == NEVER, NEVER, latest - lateness), self.before)

    def carried_to(self, event_time: int) -> list[ObservedTime]:
        """What would be seen if every partition of every source advanced its watermark to an event time."""
        found: list[ObservedTime] = []
        for (number, source), rules in self.rules.items():
            known = [origin for origin in self.partitions if origin[:2] == (number, source)]
            latest = event_time + rules.lateness
            found += [
                ObservedTime(origin, ALWAYS, latest)
                for origin in known or [SourcePartition(number, source, 0)]
            ]
        return found

    def input_watermark(self, number: int) -> int:
        """The watermark of one input alone."""
        return self._least(self._inputs_clocks(number))

    def _reached(self) -> int:
        shown = [self._inputs_clocks(number) for number in range(self.inputs)]
        if any(not clocks and not self._sources(number) for number, clocks in enumerate(shown)):
            return NEVER  # another operator's results, and it has not said yet how far it has come
        if any(not self._may_be_missing(source) for source in self._unseen()):
            return NEVER
        active = [self._active(clocks) for clocks in shown if clocks]
        held = [self._least(clocks) for clocks in active if clocks]
        if held:
            return min(held)
        if not any(shown):
            return NEVER
        return self._moved_on([pair for clocks in shown for pair in clocks])

    def _inputs_clocks(self, number: int) -> list[tuple[SourcePartition, PartitionClock]]:
        return [(origin, clock) for origin, clock in self.partitions.items() if origin.input == number]

    def _sources(self, number: int) -> list[tuple[int, int]]:
        """The sources of an input."""
        return [source for source in self.rules if source[0] == number]

    def _unseen(self) -> list[tuple[int, int]]:
        """The sources without rows so far. Time waits for each of them. Otherwise the first rows
        of a topic that starts later than another would all be late."""
        seen = {(origin.input, origin.source) for origin in self.partitions}
        return [source for source in self.rules if source not in seen]

    def _may_be_missing(self, source: tuple[int, int]) -> bool:
        """True if a source that has shown nothing yet has been waited for long enough."""
        after = self.rules[source].idle_after
        return after is not None and self.now - self.began >= after

    def _active(
        self, clocks: list[tuple[SourcePartition, PartitionClock]]
    ) -> list[tuple[SourcePartition, PartitionClock]]:
        return [(origin, clock) for origin, clock in clocks if not self._idle(origin, clock)]

    def _idle(self, origin: SourcePartition, clock: PartitionClock) -> bool:
        after = self._rules(origin).idle_after
        return after is not None and self.now - clock.arrived >= after

    def _least(self, clocks: list[tuple[SourcePartition, PartitionClock]]) -> int:
        return min((self._own(origin, clock) for origin, clock in clocks), default=NEVER)

    def _own(self, origin: SourcePartition, clock: PartitionClock) -> int:
        return NEVER if clock.latest == NEVER else clock.latest - self._rules(origin).lateness

    def _moved_on(self, clocks: list[tuple[SourcePartition, PartitionClock]]) -> int:
        """The watermark when everything is idle: the furthest one, plus the time since the last row."""
        furthest = max(self._own(origin, clock) for origin, clock in clocks)
        heard = max(clock.arrived for _, clock in clocks)
        return NEVER if furthest == NEVER else furthest + self.now - heard

    def _rules(self, origin: SourcePartition) -> TimeRules:
        return self.rules.get((origin.input, origin.source)) or TimeRules()

    def may_move(self, due: int) -> int:
        """The wall-clock time at which the watermark may have advanced without rows, for something that
        is due at an event time. ALWAYS if only rows can advance it."""
        missing = [
            self.began + after
            for source in self._unseen()
            if (after := self.rules[source].idle_after) is not None
        ]
        active = self._active(list(self.partitions.items()))
        falls = [
            clock.arrived + after
            for origin, clock in active
            if (after := self._rules(origin).idle_after) is not None
        ]
        if active or missing:
            return min([*missing, *falls], default=ALWAYS)
        if not self.partitions:
            return ALWAYS
        clocks = list(self.partitions.items())
        furthest = max(self._own(origin, clock) for origin, clock in clocks)
        heard = max(clock.arrived for _, clock in clocks)
        return ALWAYS if furthest == NEVER else heard + due - furthest

    # ---- kept with the state --------------------------------------------------------------------------

    def save(self) -> tuple[int, int, int, dict[tuple[int, int, int], tuple[int, int]]]:
        origins = {
            (origin.input, origin.source, origin.partition): (clock.latest, clock.arrived)
            for origin, clock in self.partitions.items()
        }
        return self.now, self.began, self.watermark, origins

    def load(self, saved: tuple[int, int, int, dict[tuple[int, int, int], tuple[int, int]]]) -> None:
        self.now, self.began, self.watermark, origins = saved
        self.before = self.watermark
        self.partitions = {
            SourcePartition(*origin): PartitionClock(*clock) for origin, clock in origins.items()
        }
