"""Joins two tables by a foreign key: orders, keyed by id, with the customers that they name in a column.

Theory of operation. A bucket has the rows of some keys. Changes of the right table are found by the
right's key, so the left rows have to be in the bucket of their foreign key. But a left row that names
another customer than before, or is deleted, has to be removed from where it was, and a deletion does not
even say where that is. So there are three operators in sequence:

1. ``ForeignKeyRoute``, by the left's key: remembers where each row was last sent, and sends it to its
   foreign key. If that is a different one, it reports to the old one that the row is *away*.
2. ``ForeignKeyJoin``, by the foreign key: has the right's row and all left rows that name it, and emits the
   results of a change of either.
3. ``ForeignKeyReorder``, by the left's key again: puts what comes from different buckets in time order, and
   drops deletions of rows that were never there.

A key has at most one change at an instant, so no order within an instant is left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millstream.pipeline.kernel.channels import MAIN
from millstream.pipeline.kernel.clock import OperatorClock
from millstream.pipeline.kernel.joins.naming import DELETED, KeptColumns, joined
from millstream.pipeline.kernel.joins.streams import LEFT, RIGHT
from millstream.pipeline.kernel.joins.tables import CHANGE_COLUMNS, JoinedTable, change_fields
from millstream.pipeline.kernel.program import TIMESTAMP, Events, ProgramOutput
from millstream.pipeline.kernel.python_values import Row, rows_of
from millstream.pipeline.kernel.state.store import StateStore

AWAY, SENT_AT = "millstream_away", "millstream_time"


@dataclass(frozen=True)
class ForeignKeyRoute:
    """Sends rows of a table to their foreign keys. ``time`` is the column of the table's time."""

    keys: int
    foreign: tuple[str, ...]
    time: str
    in_order: ClassVar[bool] = True
    tables: ClassVar[tuple[int, ...]] = (0,)

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        own = [pa.field(field.name, field.type) for field in inputs[0]]
        return {MAIN: pa.schema([*own, pa.field(AWAY, pa.bool_()), pa.field(SENT_AT, TIMESTAMP)])}

    def program(self, inputs: Sequence[pa.Schema]) -> ForeignKeyRouteProgram:
        return ForeignKeyRouteProgram(self, inputs[0])

    def shape(self) -> Mapping[str, object]:
        return {"table": "by foreign key", "foreign": list(self.foreign)}

    def describe(self) -> str:
        return f"rows by foreign key {', '.join(self.foreign)}"


class ForeignKeyRouteProgram:
    """The program of a ``ForeignKeyRoute``. For each key it keeps the foreign key of the key's row."""

    def __init__(self, plan: ForeignKeyRoute, schema: pa.Schema) -> None:
        names = schema.names
        self._keys = plan.keys
        self._deleted = names.index(DELETED)
        self._foreign = [names.index(name) for name in plan.foreign]
        self._width = len(names)
        self._table = JoinedTable(0, schema, plan.keys, plan.time, plan.foreign)

    def open(self, store: StateStore) -> None:
        self._table.open(store, "sent")

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        rows = rows_of(events.tables[0])
        table, keys = self._table, self._keys
        table.fetch(row[:keys] for row in rows)
        touched: dict[Row, tuple[Row | None, Row]] = {}  # the foreign key before, and the last change
        instant = None
        for time, at in zip(events.time.tolist(), events.index.tolist(), strict=True):
            if time != instant:
                self._send(touched, instant, out)
                touched, instant = {}, time
            row = rows[at]
            key = row[:keys]
            if None in key:
                continue
            before = touched[key][0] if key in touched else table.get(key)
            if table.change(row, time, out):
                touched[key] = before, row
        self._send(touched, instant, out)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        self._table.forget(clock.watermark)

    def next_due(self) -> int | None:
        return None

    def next_timer(self) -> int | None:
        return None

    def _send(
        self, touched: Mapping[Row, tuple[Row | None, Row]], time: int | None, out: ProgramOutput
    ) -> None:
        for key, (before, row) in touched.items():
            now = self._table.get(key)
            if before is not None and before != now:
                out.row(MAIN, (*self._gone(key, before), now is not None, time))
            if now is not None:
                out.row(MAIN, (*row, False, time))

    def _gone(self, key: Row, foreign: Row) -> Row:
        """The row that removes a left row from its old foreign key. It has only the keys."""
        row: list[Any] = [None] * self._width
        for at, value in zip(self._foreign, foreign, strict=True):
            row[at] = value
        row[: self._keys] = key
        row[self._deleted] = True
        return tuple(row)


@dataclass(frozen=True)
class ForeignKeyJoin:
    """Matches rows that were sent to their foreign keys (the first input) with the table that has these
    keys. ``key`` are the columns of the left's own key; ``time`` is the column of the right's time."""

    how: str
    keys: int
    key: tuple[str, ...]
    time: str
    basis: str
    results: tuple[bool, bool] = (False, False)
    in_order: ClassVar[bool] = True
    tables: ClassVar[tuple[int, ...]] = (RIGHT,)
    positional: ClassVar[tuple[int, ...]] = (LEFT,)

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        left = inputs[LEFT]
        columns = [pa.field(name, left.field(name).type) for name in self.key]
        for schema, names in zip(inputs, self._kept(inputs), strict=True):
            columns += [pa.field(name, schema.field(of).type) for of, name in names]
        return {MAIN: pa.schema([*columns, *change_fields()])}

    def program(self, inputs: Sequence[pa.Schema]) -> ForeignKeyJoinProgram:
        left, right = self._kept(inputs)
        table = JoinedTable(RIGHT, inputs[RIGHT], self.keys, self.time, [of for of, _ in right])
        return ForeignKeyJoinProgram(self, inputs[LEFT].names, [of for of, _ in left], table, len(right))

    def _kept(self, inputs: Sequence[pa.Schema]) -> tuple[KeptColumns, KeptColumns]:
        ours = (*self.key, DELETED, AWAY, SENT_AT)
        left = [name for name in inputs[LEFT].names if name not in ours]
        right = [name for name in inputs[RIGHT].names[self.keys :] if name != DELETED]
        return joined(self.key, left, right, CHANGE_COLUMNS, self.results)

    def shape(self) -> Mapping[str, object]:
        return {"join": self.how, "table": "by foreign key"}

    def describe(self) -> str:
        return f"{self.how} join of two tables by foreign key"


class ForeignKeyJoinProgram:
    """The program of a ``ForeignKeyJoin``. Left rows are kept under their foreign key and their own key."""

    def __init__(
        self, plan: ForeignKeyJoin, names: Sequence[str], kept: Sequence[str], table: JoinedTable, width: int
    ) -> None:
        self._plan = plan
        self._key = [names.index(name) for name in plan.key]
        self._kept = [names.index(name) for name in kept]
        self._deleted, self._away = names.index(DELETED), names.index(AWAY)
        self._table = table
        self._nothing = (None,) * width
        self._no_left = (None,) * len(kept)

    def open(self, store: StateStore) -> None:
        self._table.open(store, "right")
        self._left = store.in_memory("left")  # the index below holds all of it anyway
        self._by_foreign: dict[Row, dict[Row, Row]] = {}
        for (foreign, key), values in self._left.items():
            self._by_foreign.setdefault(foreign, {})[key] = values

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        rows = [rows_of(table) for table in events.tables]
        keys = self._plan.keys
        self._table.fetch(row[:keys] for of_input in rows for row in of_input if None not in row[:keys])
        touched: dict[tuple[Row, Row], None] = {}
        instant = None
        for time, number, at in zip(
            events.time.tolist(), events.input.tolist(), events.index.tolist(), strict=True
        ):
            if time != instant:
                self._give(touched, instant, out)
                touched, instant = {}, time
            row = rows[number][at]
            foreign = row[:keys]
            if number == LEFT:
                self._sent(foreign, row, touched)
            elif None not in foreign and self._table.change(row, time, out):
                touched |= dict.fromkeys((foreign, key) for key in self._by_foreign.get(foreign, ()))
        self._give(touched, instant, out)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        self._table.forget(clock.watermark)

    def next_due(self) -> int | None:
        return None

    def next_timer(self) -> int | None:
        return None

    def _sent(self, foreign: Row, row: Row, touched: dict[tuple[Row, Row], None]) -> None:
        """A left row arrived here, or is no longer here. If it is away, its new place emits the result."""
        key = tuple([row[at] for at in self._key])
        there = self._by_foreign.setdefault(foreign, {})
        if row[self._deleted]:
            there.pop(key, None)
            if not there:
                del self._by_foreign[foreign]
            self._left.remove((foreign, key))
        else:
            values = tuple([row[at] for at in self._kept])
            there[key] = values
            self._left.put((foreign, key), values)
        if not row[self._away]:
            touched[foreign, key] = None

    def _give(self, touched: Mapping[tuple[Row, Row], None], time: int | None, out: ProgramOutput) -> None:
        basis, inner = self._plan.basis, self._plan.how == "inner"
        for foreign, key in touched:
            left = self._by_foreign.get(foreign, {}).get(key)
            right = None if None in foreign else self._table.get(foreign)
            if left is None or (right is None and inner):
                out.row(MAIN, (*key, *self._no_left, *self._nothing, True, time, basis))
            else:
                out.row(MAIN, (*key, *left, *(right or self._nothing), False, time, basis))


@dataclass(frozen=True)
class ForeignKeyReorder:
    """Puts changes of a table in time order, and drops deletions of rows that are not there."""

    keys: int
    in_order: ClassVar[bool] = True

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {MAIN: inputs[0]}

    def program(self, inputs: Sequence[pa.Schema]) -> ForeignKeyReorderProgram:
        return ForeignKeyReorderProgram(self.keys)

    def shape(self) -> Mapping[str, object]:
        return {"table": "settled"}

    def describe(self) -> str:
        return "changes in the order of time"


class ForeignKeyReorderProgram:
    """The program of a ``ForeignKeyReorder``. It keeps the set of keys that have a row."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def open(self, store: StateStore) -> None:
        self._there = store.keyed("there")

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        (table,) = events.tables
        keys, deleted = rows_of(table, 0, self._keys), table[DELETED].to_pylist()
        there, given = self._there, []
        for at in events.index.tolist():
            key = keys[at]
            if deleted[at]:
                if key not in there:
                    continue
                there.remove(key)
            elif key not in there:
                there.put(key, True)
            given.append(at)
        out.table(MAIN, table.take(pa.array(given, pa.int64())))

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        pass

    def next_due(self) -> int | None:
        return None

    def next_timer(self) -> int | None:
        return None
