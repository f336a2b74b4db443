"""Two streams joined: rows with equal keys whose times are near to each other.

Rules:

- A row of the left at time l and one of the right at r match if their keys are equal and r - l is within
  ``lower`` and ``upper``. A null key matches nothing.
- A row that comes later than its partition's watermark goes to the channel of late rows and matches nothing.
  So which pairs there are does not depend on how the input was cut.
- A row is kept as long as a row that is not late could still match it: the left's until the watermark is past
  l + upper, the right's until it is past r - lower. That is all the memory there is.
- A row of a side whose every row counts (outer joins) that has found no match by then is given alone, once.
- A match is given as soon as both are there, or, in the order of time, when the watermark has passed both.
  Its time is the later of the two; what is alone keeps its own, which is older than the watermark by as long
  as it was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millstream.pipeline.expressions import duration_text
from millstream.pipeline.kernel.channels import MAIN
from millstream.pipeline.kernel.clock import Clock
from millstream.pipeline.kernel.naming import JOIN_TIME, TIME_BASIS, Kept, joined
from millstream.pipeline.kernel.plain import Row, rows_of
from millstream.pipeline.kernel.program import TIMESTAMP, Events, Out, Rows
from millstream.pipeline.kernel.state import Keyed, Store

LEFT, RIGHT = 0, 1
OWN = (JOIN_TIME, TIME_BASIS)
ALONE = {"inner": (False, False), "left": (True, False), "right": (False, True), "outer": (True, True)}


@dataclass(frozen=True)
class JoinWithin:
    """Streams joined within a time, matches at once. Times in microseconds."""

    how: str
    keys: int
    lower: int
    upper: int
    basis: str
    results: tuple[bool, bool] = (False, False)  # whether the sides are results of other operators
    in_order: ClassVar[bool] = False

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        columns = [pa.field(field.name, field.type) for field in list(inputs[LEFT])[: self.keys]]
        for schema, names in zip(inputs, self._kept(inputs), strict=True):
            columns += [pa.field(name, schema.field(of).type) for of, name in names]
        columns += [pa.field(JOIN_TIME, TIMESTAMP), pa.field(TIME_BASIS, pa.string())]
        return {MAIN: pa.schema(columns)}

    def program(self, inputs: Sequence[pa.Schema]) -> Within:
        names = [
            [*schema.names[: self.keys], *(of for of, _ in columns)]
            for schema, columns in zip(inputs, self._kept(inputs), strict=True)
        ]
        return Within(self, names)

    def _kept(self, inputs: Sequence[pa.Schema]) -> tuple[Kept, Kept]:
        left, right = (schema.names for schema in inputs)
        return joined(left[: self.keys], left[self.keys :], right[self.keys :], OWN, self.results)

    def shape(self) -> Mapping[str, object]:
        return {"join": self.how, "within_us": [self.lower, self.upper], "in_order": self.in_order}

    def describe(self) -> str:
        if self.lower == -self.upper:
            near = f"within {duration_text(self.upper // 1000)}"
        else:
            near = f"right - left from {_signed(self.lower)} to {_signed(self.upper)}"
        return f"{self.how} join, {near}{', in order of time' if self.in_order else ''}"


@dataclass(frozen=True)
class JoinWithinInOrder(JoinWithin):
    """The same, given in the order of time."""

    in_order: ClassVar[bool] = True


def _signed(us: int) -> str:
    return f"-{duration_text(-us // 1000)}" if us < 0 else duration_text(us // 1000)


class _Side:
    """The rows of one side that may still match: by number, and for every key its numbers.

    A row is its key, its time, its columns, and whether it has found a match."""

    def __init__(self, rows: Keyed[int, tuple[Row | None, int, Row, bool]], alone: bool) -> None:
        self.rows = rows
        self.alone = alone  # whether a row without a match is given too
        self.by_key: dict[Row, dict[int, tuple[Row | None, int, Row, bool]]] = {}
        self.next = 0
        for number, row in rows.items():
            self.next = max(self.next, number + 1)
            if row[0] is not None:
                self.by_key.setdefault(row[0], {})[number] = row

    def keep(self, key: Row | None, row: tuple[Row | None, int, Row, bool], due: int) -> None:
        self.rows.put(self.next, row, due)
        if key is not None:
            of_key = self.by_key.get(key)
            if of_key is None:
                self.by_key[key] = {self.next: row}
            else:
                of_key[self.next] = row
        self.next += 1

    def take_due(self, until: int) -> list[tuple[int, int, tuple[Row | None, int, Row, bool]]]:
        gone = self.rows.take_due(until)
        for _, number, (key, *_rest) in gone:
            if key is not None:
                of_key = self.by_key[key]
                del of_key[number]
                if not of_key:
                    del self.by_key[key]
        return gone


class Within:
    """The program: of rows as they come, and of events in order."""

    def __init__(self, plan: JoinWithin, names: Sequence[Sequence[str]]) -> None:
        self._plan = plan
        self._names = names
        self._nothing = tuple((None,) * (len(own) - plan.keys) for own in names)

    def open(self, store: Store) -> None:
        alone = ALONE[self._plan.how]
        left, right = (store.in_memory(side) for side in ("left", "right"))  # indexed by key
        self._sides = (_Side(left, alone[LEFT]), _Side(right, alone[RIGHT]))
        self._outer = any(alone)

    def rows(self, rows: Rows, clock: Clock, out: Out) -> None:
        late = rows.time < rows.watermark
        if late.any():
            old = rows.take(late)
            out.late(old, old.watermark - old.time)
            rows = rows.take(~late)
        meet, number = self._meet, rows.input
        for time, row in zip(
            rows.time.tolist(), rows_of(rows.table.select(self._names[number])), strict=True
        ):
            meet(number, time, row, out)

    def events(self, events: Events, clock: Clock, out: Out) -> None:
        rows = [rows_of(table.select(names)) for table, names in zip(events.tables, self._names, strict=True)]
        meet, outer = self._meet, self._outer
        for time, number, at in zip(
            events.time.tolist(), events.input.tolist(), events.index.tolist(), strict=True
        ):
            if outer:
                self._let_go(time - 1, out)
            meet(number, time, rows[number][at], out)

    def advance(self, clock: Clock, out: Out) -> None:
        self._let_go(clock.watermark - 1, out)

    def next_due(self) -> int | None:
        """Only what is given alone is waited for."""
        dues = [side.rows.next_due() for side in self._sides if side.alone]
        first = min((due for due in dues if due is not None), default=None)
        return None if first is None else first + 1

    def next_timer(self) -> int | None:
        return None

    def _meet(self, number: int, time: int, row: Row, out: Out) -> None:
        """A row of a side: all its matches on the other, and then it is kept."""
        plan = self._plan
        key, values = row[: plan.keys], row[plan.keys :]
        side, other = self._sides[number], self._sides[1 - number]
        if number == LEFT:
            low, high, due = time + plan.lower, time + plan.upper, time + plan.upper
        else:
            low, high, due = time - plan.upper, time - plan.lower, time - plan.lower
        if None in key:
            if side.alone:
                side.keep(None, (None, time, row, False), due)
            return
        matched = False
        found = other.by_key.get(key)
        if found is not None:
            basis = plan.basis
            for at, there in found.items():
                when = there[1]
                if low <= when <= high:
                    matched = True
                    both = values + there[2] if number == LEFT else there[2] + values
                    out.row(MAIN, (*key, *both, time if time > when else when, basis))
                    if other.alone and not there[3]:
                        matching = (key, when, there[2], True)
                        found[at] = matching
                        other.rows.put(at, matching, other.rows.due_of(at))
        side.keep(key, (key, time, values, matched), due)

    def _let_go(self, until: int, out: Out) -> None:
        """What can't match any more: given alone, where that is wanted and nothing has matched."""
        gone: list[tuple[int, int, int, Any]] = []
        for number, side in enumerate(self._sides):
            let_go = side.take_due(until)
            if side.alone:
                gone += [(due, number, at, row) for due, at, row in let_go if not row[3]]
        gone.sort(key=lambda one: one[:3])
        keys, basis = self._plan.keys, self._plan.basis
        for _, number, _, (key, time, values, _) in gone:
            if key is None:
                key, values = values[:keys], values[keys:]
            nothing = self._nothing[1 - number]
            both = values + nothing if number == LEFT else nothing + values
            out.row(MAIN, (*key, *both, time, basis))
