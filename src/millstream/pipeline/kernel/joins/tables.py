"""Joins with tables, which are topics of changes: a stream that looks rows up, and two tables joined.

Rules:

- A table has one row per key: that of the change with the latest time. A change may be a deletion.
- A late change counts from the watermark by which it was judged. If there is a later change already, the
  late one goes to the channel of late rows instead. Nothing that was emitted before is retracted.
- A deletion is remembered for a day of event time, so that an older change that comes late does not bring
  the row back.
- A lookup *as of* an event's time: events wait for the watermark, and see all changes up to and including
  their own time. So only the present rows and the changes that still wait are kept.
- A lookup of the *latest* row: an event sees what is known of the table when the event comes. It waits for
  nothing, and what it sees depends on when it comes.
- Two tables joined are a table. Its changes are emitted as the changes of both sides come, in time order.
  Changes of one instant are one change.

Memory: the present row of every key of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from millstream.pipeline.kernel.channels import MAIN, late_channel
from millstream.pipeline.kernel.clock import OperatorClock
from millstream.pipeline.kernel.joins.naming import (
    CHANGE_TIME,
    DELETED,
    JOIN_TIME,
    TIME_BASIS,
    KeptColumns,
    joined,
)
from millstream.pipeline.kernel.joins.streams import ALONE, LEFT, OWN, RIGHT
from millstream.pipeline.kernel.program import TIMESTAMP, Events, ProgramOutput, Rows
from millstream.pipeline.kernel.python_values import Row, rows_of
from millstream.pipeline.kernel.state.layouts import Layouts
from millstream.pipeline.kernel.state.store import StateStore

REMEMBERED = 24 * 3600 * 1_000_000  # for how long a deletion is remembered, in microseconds
CHANGE_COLUMNS = (DELETED, CHANGE_TIME, TIME_BASIS)
TABLE, STREAM = 0, 1  # at the same time, the table's change comes first


class JoinedTable:
    """One table in a bucket. A change is a row of an input: its keys and columns, of which ``kept`` stay."""

    def __init__(self, number: int, schema: pa.Schema, keys: int, time: str, kept: Sequence[str]) -> None:
        self._channel = late_channel(number)
        self._keys = keys
        self._time = schema.names.index(time)
        self._deleted = schema.names.index(DELETED)
        self._kept = [schema.names.index(name) for name in kept]
        self._names = list(kept)

    def open(self, store: StateStore, name: str) -> None:
        self._rows = store.keyed(name)
        self._layouts = Layouts(store, name, self._names)

    def fetch(self, keys: Iterable[Row]) -> None:
        self._rows.fetch(keys)

    def change(self, row: Row, known_at: int, out: ProgramOutput) -> bool:
        """Apply a change. True if it changes the table, False if there is a later one."""
        key, time = row[: self._keys], row[self._time]
        there = self._rows.get(key)
        later = there is not None and time < there[0]
        if later and (there[1] is not None or there[0] + REMEMBERED > known_at):
            out.row(self._channel, (*row, (known_at - time) // 1000, known_at))
            return False
        if row[self._deleted]:
            self._rows.put(key, (time, None), time + REMEMBERED)
        else:
            values = tuple([row[at] for at in self._kept])
            self._rows.put(key, (time, values, self._layouts.current))
        return True

    def get(self, key: Row) -> Row | None:
        there = self._rows.get(key)
        if there is None or there[1] is None:
            return None
        return there[1] if there[2] == self._layouts.current else self._layouts.fitted(there[1], there[2])

    def forget(self, until: int) -> None:
        self._rows.take_due(until)


# ---- a stream with a table ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AsOfLookup:
    """A stream (the left) that looks up a table (the first input) as of its events' times."""

    how: str
    keys: int
    table_time: str
    basis: str
    results: tuple[bool, bool] = (False, False)  # True where stream or table is another operator's result
    in_order: ClassVar[bool] = True
    tables: ClassVar[tuple[int, ...]] = (TABLE,)

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        stream, table = inputs[STREAM], inputs[TABLE]
        kept, found = self._kept(inputs)
        columns = [pa.field(field.name, field.type) for field in list(stream)[: self.keys]]
        columns += [pa.field(name, stream.field(of).type) for of, name in kept]
        columns += [pa.field(name, table.field(of).type) for of, name in found]
        about = [pa.field(JOIN_TIME, TIMESTAMP), pa.field(TIME_BASIS, pa.string())]
        return {MAIN: pa.schema([*columns, *about])}

    def program(self, inputs: Sequence[pa.Schema]) -> TableLookupProgram:
        kept, found = self._kept(inputs)
        names = [*inputs[STREAM].names[: self.keys], *(of for of, _ in kept)]
        table = JoinedTable(TABLE, inputs[TABLE], self.keys, self.table_time, [of for of, _ in found])
        return TableLookupProgram(self, table, names, self.channels(inputs)[MAIN])

    def _kept(self, inputs: Sequence[pa.Schema]) -> tuple[KeptColumns, KeptColumns]:
        stream, table = inputs[STREAM].names, inputs[TABLE].names
        columns = [name for name in table[self.keys :] if name not in (DELETED, TIME_BASIS)]
        return joined(stream[: self.keys], stream[self.keys :], columns, OWN, self.results)

    def shape(self) -> Mapping[str, object]:
        return {"join": self.how, "table": "as of event time" if self.in_order else "latest"}

    def describe(self) -> str:
        return f"{self.how} join with a table, {'as of the time of the event' if self.in_order else 'latest'}"


@dataclass(frozen=True)
class LatestLookup(AsOfLookup):
    """The same lookup, of the latest rows that are known."""

    in_order: ClassVar[bool] = False


class TableLookupProgram:
    """The program, for events in order and for rows as they come."""

    def __init__(self, plan: AsOfLookup, table: JoinedTable, names: Sequence[str], schema: pa.Schema) -> None:
        self._plan = plan
        self._table = table
        self._names = names
        self._schema = schema
        self._nothing = (None,) * (len(schema) - len(names) - len(OWN))

    def open(self, store: StateStore) -> None:
        self._table.open(store, "table")

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        changes = rows_of(events.tables[TABLE])
        keys = rows_of(events.tables[STREAM], 0, self._plan.keys)
        self._table.fetch(row[: self._plan.keys] for row in changes)
        self._table.fetch(keys)
        change, found = self._table.change, _LookedUp()
        for time, number, at in zip(
            events.time.tolist(), events.input.tolist(), events.index.tolist(), strict=True
        ):
            if number == TABLE:
                change(changes[at], time, out)
            else:
                self._look_up(keys[at], at, time, found)
        self._give(events.tables[STREAM], found, out)

    def rows(self, rows: Rows, clock: OperatorClock, out: ProgramOutput) -> None:
        if rows.input == TABLE:
            changes = rows_of(rows.table)
            self._table.fetch(row[: self._plan.keys] for row in changes)
            for time, row in zip(rows.time.tolist(), changes, strict=True):
                self._table.change(row, time, out)
            return
        found = _LookedUp()
        times = rows.time.tolist()
        keys = rows_of(rows.table, 0, self._plan.keys)
        self._table.fetch(keys)
        for at, key in enumerate(keys):
            self._look_up(key, at, times[at], found)
        self._give(rows.table, found, out)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        self._table.forget(clock.watermark)

    def next_due(self) -> int | None:
        return None

    def next_timer(self) -> int | None:
        return None

    def _look_up(self, key: Row, at: int, time: int, found: _LookedUp) -> None:
        there = None if None in key else self._table.get(key)
        if there is not None or self._plan.how == "left":
            found.events.append(at)
            found.times.append(time)
            found.rows.append(self._nothing if there is None else there)

    def _give(self, stream: pa.Table, found: _LookedUp, out: ProgramOutput) -> None:
        if not found.events:
            return
        given = stream.select(self._names).take(pa.array(found.events)).columns
        if self._nothing:
            fields = list(self._schema)[len(self._names) : -len(OWN)]
            columns = zip(*found.rows, strict=True)
            given += [pa.array(values, field.type) for field, values in zip(fields, columns, strict=True)]
        given += [pa.array(found.times, TIMESTAMP), pa.repeat(self._plan.basis, len(found.events))]
        out.table(MAIN, pa.Table.from_arrays(given, schema=self._schema))


@dataclass(slots=True)
class _LookedUp:
    """Events to emit: their row numbers, their times, and what was looked up for each."""

    events: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


# ---- two tables --------------------------------------------------------------------------------------


def change_fields() -> list[pa.Field]:
    """The columns with which a change of a joined table describes itself."""
    return [
        pa.field(DELETED, pa.bool_()),
        pa.field(CHANGE_TIME, TIMESTAMP),
        pa.field(TIME_BASIS, pa.string()),
    ]


@dataclass(frozen=True)
class TableJoin:
    """Two tables with the same key. ``times`` are the columns of their times."""

    how: str
    keys: int
    times: tuple[str, str]
    basis: str
    results: tuple[bool, bool] = (False, False)
    in_order: ClassVar[bool] = True
    tables: ClassVar[tuple[int, ...]] = (LEFT, RIGHT)

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        columns = [pa.field(field.name, field.type) for field in list(inputs[LEFT])[: self.keys]]
        for schema, names in zip(inputs, self._kept(inputs), strict=True):
            columns += [pa.field(name, schema.field(of).type) for of, name in names]
        return {MAIN: pa.schema([*columns, *change_fields()])}

    def program(self, inputs: Sequence[pa.Schema]) -> TableJoinProgram:
        tables = [
            JoinedTable(number, schema, self.keys, time, [of for of, _ in kept])
            for number, (schema, time, kept) in enumerate(
                zip(inputs, self.times, self._kept(inputs), strict=True)
            )
        ]
        return TableJoinProgram(self, tables, [len(kept) for kept in self._kept(inputs)])

    def _kept(self, inputs: Sequence[pa.Schema]) -> tuple[KeptColumns, KeptColumns]:
        left, right = ([name for name in schema.names[self.keys :] if name != DELETED] for schema in inputs)
        return joined(inputs[LEFT].names[: self.keys], left, right, CHANGE_COLUMNS, self.results)

    def shape(self) -> Mapping[str, object]:
        return {"join": self.how, "table": "table"}

    def describe(self) -> str:
        return f"{self.how} join of two tables"


class TableJoinProgram:
    """The program. The kind of a change follows from whether a row is there now and was there before."""

    def __init__(self, plan: TableJoin, tables: Sequence[JoinedTable], widths: Sequence[int]) -> None:
        self._plan = plan
        self._tables = tables
        self._nothing = tuple((None,) * width for width in widths)
        self._alone = ALONE[plan.how]

    def open(self, store: StateStore) -> None:
        for table, name in zip(self._tables, ("left", "right"), strict=True):
            table.open(store, name)

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        rows = [rows_of(table) for table in events.tables]
        tables, keys = self._tables, self._plan.keys
        for table in tables:
            table.fetch(row[:keys] for of_input in rows for row in of_input)
        touched: dict[Row, bool] = {}  # changed keys, and whether there was a row before
        instant = None
        for time, number, at in zip(
            events.time.tolist(), events.input.tolist(), events.index.tolist(), strict=True
        ):
            if time != instant:
                self._give(touched, instant, out)
                touched, instant = {}, time
            row = rows[number][at]
            key = row[:keys]
            if None in key:
                continue
            before = touched[key] if key in touched else self._there(key) is not None
            if tables[number].change(row, time, out):
                touched[key] = before
        self._give(touched, instant, out)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        for table in self._tables:
            table.forget(clock.watermark)

    def next_due(self) -> int | None:
        return None

    def next_timer(self) -> int | None:
        return None

    def _there(self, key: Row) -> Row | None:
        left, right = self._tables[LEFT].get(key), self._tables[RIGHT].get(key)
        if left is None:
            if right is None or not self._alone[RIGHT]:
                return None
            return self._nothing[LEFT] + right
        if right is None:
            return left + self._nothing[RIGHT] if self._alone[LEFT] else None
        return left + right

    def _give(self, touched: Mapping[Row, bool], time: int | None, out: ProgramOutput) -> None:
        basis = self._plan.basis
        for key, before in touched.items():
            there = self._there(key)
            if there is not None:
                out.row(MAIN, (*key, *there, False, time, basis))
            elif before:
                out.row(MAIN, (*key, *self._nothing[LEFT], *self._nothing[RIGHT], True, time, basis))
