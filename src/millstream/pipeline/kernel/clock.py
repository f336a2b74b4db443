"""How far time has come.

Rules:

- Every partition of a source has a clock: the latest time that its rows have shown. Its watermark is that,
  less the lateness its source allows.
- A row is judged by its own partition: it is late if what it would count in ends at or before the watermark
  that its partition had reached before it. A log is ordered within a partition only, so this is the one
  judgement that does not depend on how the input was cut into batches.
- The operator's watermark is the least over its partitions: of rows that are still to come, none that is on
  time is older. Windows close by it, and waiting rows are let go.
- A partition counts from its first row on: one in which there never was anything holds nobody back. A whole
  source is waited for, as long as ``idle_after`` says or for ever: of several topics that meet, one begins.
- A partition that has shown nothing for ``idle_after`` does not hold the others back. Where all are idle,
  time goes on as the clock on the wall does, so that what is open closes. What comes afterwards and is older
  than the watermark is late, whatever its own partition says.
- Rows that a function of the user's has made stand in no log. The partitions that it made them of tell the
  time past it, and its rows hold time back as one more partition does: a function may give older times than
  it takes. Such a row is late if it is older than the operator's watermark before the batch.
- A time further in the future than ``ahead`` is no time: the row does not move its partition's clock.

All times are microseconds since 1970, as Spark has them. The time of processing is given, never asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

NEVER = -(1 << 62)  # before all time
ALWAYS = 1 << 62  # after all time
# In place of a source's number: results of another operator, and rows that a function of the user's has made.
RESULT, MADE = -1, -2

Times = Any  # numpy arrays of int64; numpy's own types say no more than this


class Place(NamedTuple):
    """Where rows come from: an input of the operator, a source among those it is made of, a partition."""

    input: int
    source: int
    partition: int


@dataclass(frozen=True, slots=True)
class TimeRules:
    """What a source says about its time. In microseconds."""

    lateness: int = 0
    idle_after: int | None = None
    ahead: int | None = None


class At(NamedTuple):
    """The time of a batch. ``finish``: the input has ended, and event time goes on to this."""

    now: int
    finish: int | None = None


class Seen(NamedTuple):
    """What a task saw of a partition in this batch: from which offset on, and the latest time."""

    place: Place
    first_offset: int
    latest: int  # NEVER: rows, but none whose time is to be believed


@dataclass(slots=True)
class PartitionClock:
    latest: int
    arrived: int  # when it last showed a row, by the clock on the wall


@dataclass(slots=True)
class Clock:
    """The clock of one operator in one bucket. All buckets see the same, so all agree."""

    rules: Mapping[tuple[int, int], TimeRules]  # by input and source
    inputs: int = 1
    now: int = NEVER  # the time of processing
    began: int = NEVER
    watermark: int = NEVER
    before: int = NEVER  # the watermark when this batch began
    partitions: dict[Place, PartitionClock] = field(default_factory=dict)
    _starts: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)

    def observe(self, seen: Sequence[Seen], now: int) -> None:
        """Take in what a batch shows."""
        self.now = max(self.now, now)  # clocks on walls go back at times
        if self.began == NEVER:
            self.began = self.now
        self.before = self.watermark
        self._starts = {}
        for place, first, latest in sorted(seen, key=lambda one: (one.place, one.first_offset)):
            clock = self.partitions.get(place)
            if clock is None:
                clock = self.partitions[place] = PartitionClock(NEVER, self.now)
            self._starts.setdefault(place, []).append((first, clock.latest))
            clock.latest = max(clock.latest, latest)
            clock.arrived = self.now
        self.watermark = max(self.watermark, self._reached())

    def watermarks(self, place: Place, offsets: Times, latest_before: Times) -> Times:
        """The watermark by which each row of a partition is judged. ``latest_before`` is the latest time that
        the row's own task had seen of the partition before it."""
        if place.source == MADE:
            return np.full(len(offsets), self.before, np.int64)
        starts = self._starts.get(place) or [(0, NEVER)]
        firsts = np.array([first for first, _ in starts])
        reached = np.array([latest for _, latest in starts])
        # Rows without an offset have no order among them: what was known before the batch is what counts.
        span = np.where(offsets < 0, 0, np.maximum(np.searchsorted(firsts, offsets, side="right") - 1, 0))
        latest = np.maximum(reached[span], latest_before)
        lateness = self._rules(place).lateness
        return np.maximum(np.where(latest == NEVER, NEVER, latest - lateness), self.before)

    def carried_to(self, event_time: int) -> list[Seen]:
        """Every partition of every source at a time that none of them has shown."""
        found: list[Seen] = []
        for (number, source), rules in self.rules.items():
            known = [place for place in self.partitions if place[:2] == (number, source)]
            latest = event_time + rules.lateness
            found += [Seen(place, ALWAYS, latest) for place in known or [Place(number, source, 0)]]
        return found

    def input_watermark(self, number: int) -> int:
        """How far one input has come."""
        return self._least(self._inputs_clocks(number))

    def _reached(self) -> int:
        shown = [self._inputs_clocks(number) for number in range(self.inputs)]
        if any(not clocks and not self._sources(number) for number, clocks in enumerate(shown)):
            return NEVER  # results of another operator: they come when it says how far it is
        if any(not self._may_be_missing(source) for source in self._unseen()):
            return NEVER
        active = [self._active(clocks) for clocks in shown if clocks]
        held = [self._least(clocks) for clocks in active if clocks]
        if held:
            return min(held)
        if not any(shown):
            return NEVER
        return self._moved_on([pair for clocks in shown for pair in clocks])

    def _inputs_clocks(self, number: int) -> list[tuple[Place, PartitionClock]]:
        return [(place, clock) for place, clock in self.partitions.items() if place.input == number]

    def _sources(self, number: int) -> list[tuple[int, int]]:
        """The sources of an input."""
        return [source for source in self.rules if source[0] == number]

    def _unseen(self) -> list[tuple[int, int]]:
        """The sources that have shown nothing yet. Time waits for each, or the first rows of a topic that
        starts later than another would all be late."""
        seen = {(place.input, place.source) for place in self.partitions}
        return [source for source in self.rules if source not in seen]

    def _may_be_missing(self, source: tuple[int, int]) -> bool:
        """Whether a source that has shown nothing yet has been waited for long enough."""
        after = self.rules[source].idle_after
        return after is not None and self.now - self.began >= after

    def _active(self, clocks: list[tuple[Place, PartitionClock]]) -> list[tuple[Place, PartitionClock]]:
        return [(place, clock) for place, clock in clocks if not self._idle(place, clock)]

    def _idle(self, place: Place, clock: PartitionClock) -> bool:
        after = self._rules(place).idle_after
        return after is not None and self.now - clock.arrived >= after

    def _least(self, clocks: list[tuple[Place, PartitionClock]]) -> int:
        return min((self._own(place, clock) for place, clock in clocks), default=NEVER)

    def _own(self, place: Place, clock: PartitionClock) -> int:
        return NEVER if clock.latest == NEVER else clock.latest - self._rules(place).lateness

    def _moved_on(self, clocks: list[tuple[Place, PartitionClock]]) -> int:
        """All is quiet: as far as the furthest had come, and as long as nothing has been heard since."""
        furthest = max(self._own(place, clock) for place, clock in clocks)
        heard = max(clock.arrived for _, clock in clocks)
        return NEVER if furthest == NEVER else furthest + self.now - heard

    def _rules(self, place: Place) -> TimeRules:
        return self.rules.get((place.input, place.source)) or TimeRules()

    def may_move(self, due: int) -> int:
        """When, by the clock on the wall, the watermark may have moved on without rows for something that is
        due at an event time; ALWAYS if only rows can move it."""
        missing = [
            self.began + after
            for source in self._unseen()
            if (after := self.rules[source].idle_after) is not None
        ]
        active = self._active(list(self.partitions.items()))
        falls = [
            clock.arrived + after
            for place, clock in active
            if (after := self._rules(place).idle_after) is not None
        ]
        if active or missing:
            return min([*missing, *falls], default=ALWAYS)
        if not self.partitions:
            return ALWAYS
        clocks = list(self.partitions.items())
        furthest = max(self._own(place, clock) for place, clock in clocks)
        heard = max(clock.arrived for _, clock in clocks)
        return ALWAYS if furthest == NEVER else heard + due - furthest

    # ---- kept with the state --------------------------------------------------------------------------

    def save(self) -> tuple[int, int, int, dict[tuple[int, int, int], tuple[int, int]]]:
        places = {
            (place.input, place.source, place.partition): (clock.latest, clock.arrived)
            for place, clock in self.partitions.items()
        }
        return self.now, self.began, self.watermark, places

    def load(self, saved: tuple[int, int, int, dict[tuple[int, int, int], tuple[int, int]]]) -> None:
        self.now, self.began, self.watermark, places = saved
        self.before = self.watermark
        self.partitions = {Place(*place): PartitionClock(*clock) for place, clock in places.items()}
