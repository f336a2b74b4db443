"""Joins two streams: rows with equal keys whose times are close to each other.

Rules:

- A left row at time l and a right row at time r match if their keys are equal and r - l is between
  ``lower`` and ``upper``. A null key matches nothing.
- A row that is older than its partition's watermark goes to the channel of late rows and matches nothing.
  So the set of pairs does not depend on how the input was cut.
- A row is kept as long as a row that is not late could still match it: a left row until the watermark has
  passed l + upper, a right row until it has passed r - lower. Nothing else is kept in memory.
- In an outer join, a row of a side whose rows must all appear is emitted alone, once, if it has found no
  match by then.
- A match is emitted as soon as both rows are there or, in time order, when the watermark has passed both.
  Its time is the later of the two. A row emitted alone keeps its own time, which is behind the watermark
  by as long as the row was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.units import exact_duration
from millstream.pipeline.kernel.channels import MAIN
from millstream.pipeline.kernel.clock import OperatorClock
from millstream.pipeline.kernel.joins.lookup import Lookup, hashes
from millstream.pipeline.kernel.joins.naming import JOIN_TIME, TIME_BASIS, KeptColumns, joined
from millstream.pipeline.kernel.late import split_late
from millstream.pipeline.kernel.program import TIMESTAMP, Events, ProgramOutput, Rows
from millstream.pipeline.kernel.state.containers import OFFSET, TIME, WaitingRows
from millstream.pipeline.kernel.state.store import StateStore

LEFT, RIGHT = 0, 1
OWN = (JOIN_TIME, TIME_BASIS)
_OWN = "own "  # prefix of the names of a row's own columns
_BESIDE = (
    len(WaitingRows.ORDER) + 1
)  # columns in front of a kept row's own: until when it is kept, ..., its time
ALONE = {"inner": (False, False), "left": (True, False), "right": (False, True), "outer": (True, True)}


@dataclass(frozen=True)
class JoinWithin:
    """Streams joined within a time; matches are emitted at once. Times are in microseconds."""

    how: str
    keys: int
    lower: int
    upper: int
    basis: str
    results: tuple[bool, bool] = (False, False)  # True for a side that is another operator's result
    in_order: ClassVar[bool] = False

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        columns = [pa.field(field.name, field.type) for field in list(inputs[LEFT])[: self.keys]]
        for schema, names in zip(inputs, self._kept(inputs), strict=True):
            columns += [pa.field(name, schema.field(of).type) for of, name in names]
        columns += [pa.field(JOIN_TIME, TIMESTAMP), pa.field(TIME_BASIS, pa.string())]
        return {MAIN: pa.schema(columns)}

    def program(self, inputs: Sequence[pa.Schema]) -> JoinWithinProgram:
        names = [
            [*schema.names[: self.keys], *(of for of, _ in columns)]
            for schema, columns in zip(inputs, self._kept(inputs), strict=True)
        ]
        own = [[schema.field(name) for name in of] for schema, of in zip(inputs, names, strict=True)]
        return JoinWithinProgram(self, own, self.channels(inputs)[MAIN])

    def _kept(self, inputs: Sequence[pa.Schema]) -> tuple[KeptColumns, KeptColumns]:
        left, right = (schema.names for schema in inputs)
        return joined(left[: self.keys], left[self.keys :], right[self.keys :], OWN, self.results)

    def shape(self) -> Mapping[str, object]:
        return {"join": self.how, "within_us": [self.lower, self.upper], "in_order": self.in_order}

    def describe(self) -> str:
        if self.lower == -self.upper:
            near = f"within {exact_duration(self.upper // 1000)}"
        else:
            near = f"right - left from {_signed(self.lower)} to {_signed(self.upper)}"
        return f"{self.how} join, {near}{', in order of time' if self.in_order else ''}"


@dataclass(frozen=True)
class JoinWithinInOrder(JoinWithin):
    """The same join, with results in time order."""

    in_order: ClassVar[bool] = True


def _signed(us: int) -> str:
    return f"-{exact_duration(-us // 1000)}" if us < 0 else exact_duration(us // 1000)


class _Side:
    """The rows of one side that may still match: in the order in which they expire, and indexed by key."""

    def __init__(self, store: StateStore, name: str, own: Sequence[pa.Field], keys: int, alone: bool) -> None:
        kept = [pa.field("at", pa.int64()), *(field.with_name(_OWN + field.name) for field in own)]
        self.rows = store.waiting(name, pa.schema(kept))
        self.matched = store.keyed(f"{name} matched")  # by number; only if the others are emitted alone
        self.alone = alone
        self.by_key = Lookup(keys)
        self.next = 0
        there = self.rows.rows()
        if there is not None:
            rows = there.select(there.schema.names[_BESIDE:])
            self.next = int(pc.max(there[OFFSET]).as_py()) + 1
            self._index(rows, hashes(rows.columns[:keys]), there)

    def keep(self, rows: pa.Table, hashed: Any, times: Any, until: Any, numbers: Any) -> None:
        """Keep rows until a time. Their numbers say which came first."""
        nothing = pa.array(np.zeros(len(times), np.int8))
        beside = [pa.array(until), nothing, nothing, pa.array(numbers), pa.array(times)]
        names = [*WaitingRows.ORDER, "at", *(_OWN + name for name in rows.column_names)]
        kept = pa.Table.from_arrays([*beside, *rows.columns], names=names)
        self.rows.add(kept)
        self._index(rows.rename_columns(names[_BESIDE:]), hashed, kept)
        self.next = max(self.next, int(numbers.max()) + 1)

    def _index(self, own: pa.Table, hashed: Any, kept: pa.Table) -> None:
        numbered = own.append_column("number", kept[OFFSET]).append_column("until", kept[TIME])
        self.by_key.add(numbered, hashed, kept["at"].to_numpy(), kept[TIME].to_numpy())

    def match(self, numbers: Any, until: Any) -> None:
        """Mark rows as matched, so that they are not emitted alone."""
        if self.alone:
            for number, due in zip(numbers.tolist(), until.tolist(), strict=True):
                self.matched.put(number, True, due)

    def let_go(self, before: int) -> pa.Table | None:
        """Remove the rows that expire before a time. Return, in order, those to be emitted alone."""
        gone = self.rows.let_go(before)
        self.by_key.forget(before)
        if gone is None or not self.alone:
            return None
        matched = self.matched
        alone = [number not in matched for number in gone[OFFSET].to_pylist()]
        matched.take_due(before - 1)
        return gone.filter(pa.array(alone))


class JoinWithinProgram:
    """The program, for rows as they come and for events in order.

    In both cases the rows of a batch are processed side by side. First the left rows look for matches
    among the right rows that are there, then the right rows among the left rows, so every pair is found
    once. In time order, a batch's results are sorted at its end. That is enough, because all earlier
    results are older."""

    def __init__(self, plan: JoinWithin, own: Sequence[Sequence[pa.Field]], schema: pa.Schema) -> None:
        self._plan = plan
        self._own = own  # the columns of each side that are kept
        self._names = [[field.name for field in of] for of in own]
        self._schema = schema
        self._given: list[tuple[pa.Table, tuple[Any, ...]]] = []  # results, and their sort keys

    def open(self, store: StateStore) -> None:
        self._sides = [
            _Side(store, name, own, self._plan.keys, alone)
            for name, own, alone in zip(("left", "right"), self._own, ALONE[self._plan.how], strict=True)
        ]

    def rows(self, rows: Rows, clock: OperatorClock, out: ProgramOutput) -> None:
        on_time = split_late(rows, out)
        if on_time is not None:
            rows = rows.take(on_time)
        if len(rows.time):
            numbers = self._sides[rows.input].next + np.arange(len(rows.time))
            self._meet(rows.input, rows.table, rows.time, numbers)

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        start = max(side.next for side in self._sides)
        for number, table in enumerate(events.tables):
            here = np.flatnonzero(events.input == number)
            if len(here):
                rows = table.take(pa.array(events.index[here]))
                self._meet(number, rows, events.time[here], start + here)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        for number, side in enumerate(self._sides):
            gone = side.let_go(clock.watermark)
            if gone is not None and gone.num_rows:
                self._alone(number, gone)
        given, self._given = self._given, []
        if not given:
            return
        results = pa.concat_tables([table for table, _ in given])
        if self._plan.in_order and results.num_rows > 1:
            order = [np.concatenate(parts) for parts in zip(*(keys for _, keys in given), strict=True)]
            results = results.take(pa.array(np.lexsort(order[::-1])))
        out.table(MAIN, results)

    def next_due(self) -> int | None:
        """Only rows that will be emitted alone have a due time."""
        dues = [side.rows.earliest() for side in self._sides if side.alone]
        first = min((due for due in dues if due is not None), default=None)
        return None if first is None else first + 1

    def next_timer(self) -> int | None:
        return None

    def _meet(self, number: int, table: pa.Table, times: Any, numbers: Any) -> None:
        """Find all matches of one side's rows on the other side, then keep the rows."""
        plan, side, other = self._plan, self._sides[number], self._sides[1 - number]
        rows = table.select(self._names[number]).combine_chunks()
        if number == LEFT:
            low, high = times + plan.lower, times + plan.upper
        else:
            low, high = times - plan.upper, times - plan.lower
        hashed = hashes(rows.columns[: plan.keys])
        for which, found, found_times in other.by_key.find(rows, hashed, low, high):
            mine, theirs = numbers[which], found["number"].to_numpy()
            of_side = rows.take(pa.array(which)).columns
            of_other = found.columns[plan.keys : -2]
            both = [of_side[plan.keys :], of_other] if number == LEFT else [of_other, of_side[plan.keys :]]
            later = np.maximum(times[which], found_times)
            order = later, np.zeros(len(which)), np.maximum(mine, theirs), np.minimum(mine, theirs)
            self._give([*of_side[: plan.keys], *both[0], *both[1]], later, order)
            side.match(mine, high[which])
            other.match(theirs, found["until"].to_numpy())
        side.keep(rows, hashed, times, high, numbers)

    def _alone(self, number: int, gone: pa.Table) -> None:
        """Emit rows that can't match any more."""
        keys, own = self._plan.keys, gone.columns[_BESIDE:]
        others = list(self._schema)[len(own) : -len(OWN)]
        if number == RIGHT:
            others = list(self._schema)[keys : -len(OWN) - (len(own) - keys)]
        nothing = [pa.nulls(gone.num_rows, one.type) for one in others]
        both = [*own[keys:], *nothing] if number == LEFT else [*nothing, *own[keys:]]
        times = gone["at"].to_numpy()
        order = (
            # If both bounds are on one side of zero, a row may expire before its own time.
            np.maximum(gone[TIME].to_numpy(), times),
            np.ones(gone.num_rows),
            np.full(gone.num_rows, number),
            gone[OFFSET].to_numpy(),
        )
        self._give([*own[:keys], *both], times, order)

    def _give(self, columns: list[Any], times: Any, order: tuple[Any, ...]) -> None:
        about = [pa.array(times, TIMESTAMP), pa.repeat(self._plan.basis, len(times))]
        self._given.append((pa.Table.from_arrays([*columns, *about], schema=self._schema), order))
