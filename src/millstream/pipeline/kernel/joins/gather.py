"""Gathers the parts of one event, which took different ways, by their key.

Rules:

- A gathering begins with the first part of its key. It is complete when one row of every part is there.
- Of several rows of one part, the first in time counts. The others go to the channel ``duplicates``. So do
  rows that come after the gathering is complete, because a key is always remembered until its time is over.
- A gathering's time is over ``timeout`` after the time of its first part. A gathering that is not
  complete by then goes to the channel ``incomplete``, with the names of the missing parts. A part at that
  time or later begins a new gathering.
- A part whose key has a null goes to ``incomplete`` at once, alone.

Memory: at most one row of every part per key, for no longer than ``timeout`` of event time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millstream.core.units import exact_duration
from millstream.pipeline.kernel.channels import MAIN
from millstream.pipeline.kernel.clock import ALWAYS, OperatorClock
from millstream.pipeline.kernel.joins.naming import TIME_BASIS
from millstream.pipeline.kernel.program import TIMESTAMP, Events, ProgramOutput
from millstream.pipeline.kernel.python_values import Row, rows_of
from millstream.pipeline.kernel.state.store import StateStore

INCOMPLETE, DUPLICATES = "incomplete", "duplicates"
GATHER_TIME, MISSING, PART = "gather_time", "missing", "part"


@dataclass(frozen=True)
class Gather:
    """The plan: one row of every part per key. ``timeout`` is in microseconds."""

    parts: tuple[str, ...]
    keys: int
    timeout: int
    basis: str
    in_order: ClassVar[bool] = True

    @property
    def positional(self) -> range:
        return range(len(self.parts))

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        keys = [pa.field(field.name, field.type) for field in list(inputs[0])[: self.keys]]
        parts = [
            pa.field(part, pa.struct(_columns(schema, self.keys)))
            for part, schema in zip(self.parts, inputs, strict=True)
        ]
        about = [pa.field(GATHER_TIME, TIMESTAMP), pa.field(TIME_BASIS, pa.string())]
        return {
            MAIN: pa.schema([*keys, *parts, *about]),
            INCOMPLETE: pa.schema([*keys, *parts, pa.field(MISSING, pa.list_(pa.string())), *about]),
            DUPLICATES: pa.schema([*keys, pa.field(PART, pa.string()), *parts, *about]),
        }

    def program(self, inputs: Sequence[pa.Schema]) -> GatherProgram:
        names = [[field.name for field in _columns(schema, self.keys)] for schema in inputs]
        return GatherProgram(self, names)

    def shape(self) -> Mapping[str, object]:
        return {"gather": list(self.parts), "timeout_us": self.timeout}

    def describe(self) -> str:
        return f"gather {', '.join(self.parts)}, within {exact_duration(self.timeout // 1000)}"


def _columns(schema: pa.Schema, keys: int) -> list[pa.Field]:
    """The columns of a part beside its keys: at least one, because a struct can't be empty."""
    columns = [pa.field(field.name, field.type) for field in list(schema)[keys:]]
    return columns or [pa.field("there", pa.bool_())]


class GatherProgram:
    """The program. It keeps the parts of each open key, and which keys are complete."""

    def __init__(self, plan: Gather, names: Sequence[Sequence[str]]) -> None:
        self._plan = plan
        self._names = names

    def open(self, store: StateStore) -> None:
        self._open = store.keyed("open")
        self._complete = store.keyed("complete")

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        plan, gatherings, complete = self._plan, self._open, self._complete
        count, basis = len(plan.parts), plan.basis
        keys = [rows_of(table, 0, plan.keys) for table in events.tables]
        values = [self._values(table) for table in events.tables]
        for container in (gatherings, complete):
            container.fetch(key for of_input in keys for key in of_input)
        soonest = self._soonest()
        for time, number, at in zip(
            events.time.tolist(), events.input.tolist(), events.index.tolist(), strict=True
        ):
            if time >= soonest:
                self._let_go(time, out)
                soonest = self._soonest()
            key, part = keys[number][at], values[number][at]
            there = gatherings.get(key)
            if None in key:
                self._give_up(key, _at(number, part, count), time, out)
            elif key in complete or (there is not None and there[number] is not None):
                alone = self._structs(_at(number, part, count))
                out.row(DUPLICATES, (*key, plan.parts[number], *alone, time, basis))
            elif there is None:
                gatherings.put(key, _at(number, part, count), time + plan.timeout)
                soonest = min(soonest, time + plan.timeout)
            else:
                there = (*there[:number], part, *there[number + 1 :])
                due = gatherings.due_of(key)
                if None in there:
                    gatherings.put(key, there, due)
                else:
                    out.row(MAIN, (*key, *self._structs(there), time, basis))
                    gatherings.remove(key)
                    complete.put(key, True, due)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        self._let_go(clock.watermark, out)

    def next_due(self) -> int | None:
        return self._open.next_due()

    def next_timer(self) -> int | None:
        return None

    def _soonest(self) -> int:
        """The earliest time at which the time of some key is over."""
        dues = self._open.next_due(), self._complete.next_due()
        return min((due for due in dues if due is not None), default=ALWAYS)

    def _let_go(self, until: int, out: ProgramOutput) -> None:
        self._complete.take_due(until)
        for due, key, there in self._open.take_due(until):
            self._give_up(key, there, due, out)

    def _give_up(self, key: Row, there: Row, time: int, out: ProgramOutput) -> None:
        missing = [name for name, part in zip(self._plan.parts, there, strict=True) if part is None]
        out.row(INCOMPLETE, (*key, *self._structs(there), missing, time, self._plan.basis))

    def _values(self, table: pa.Table) -> list[Row]:
        keys = self._plan.keys
        return rows_of(table, keys) if table.num_columns > keys else [(True,)] * table.num_rows

    def _structs(self, there: Row) -> list[dict[str, Any] | None]:
        """The parts as dictionaries, from which Arrow makes structs."""
        return [
            None if part is None else dict(zip(names, part, strict=True))
            for names, part in zip(self._names, there, strict=True)
        ]


def _at(number: int, part: Row, count: int) -> Row:
    """A row with one part at its position, and None for the others."""
    return (*(None,) * number, part, *(None,) * (count - number - 1))
