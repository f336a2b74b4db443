"""Emits the results of windows: keys, bounds, aggregates, and the kind of time they used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.pipeline.kernel.channels import CHANGE, MAIN, TIME_BASIS, WINDOW_END, WINDOW_START
from millstream.pipeline.kernel.program import TIMESTAMP, ProgramOutput
from millstream.pipeline.kernel.windows.aggregates import Aggregates
from millstream.pipeline.kernel.windows.calls import Call

# A window that has a result: its key, its start and end, its state.
ClosedWindow = tuple[tuple[Any, ...], int, int, tuple[Any, ...]]
# The result that was last emitted for a window that updates: start, end and values.
EmittedResult = tuple[Any, ...]


class Results:
    """Builds tables of results. With ``retract``, a column ``change`` says whether a row is a result (1) or
    retracts one (-1)."""

    def __init__(
        self, schema: pa.Schema, keys: int, aggregates: Aggregates, basis: str, *, retract: bool = False
    ) -> None:
        self._keys = list(schema)[:keys]
        self._aggregates = aggregates
        self._basis = basis
        bounds = [pa.field(WINDOW_START, TIMESTAMP), pa.field(WINDOW_END, TIMESTAMP)]
        last = [pa.field(TIME_BASIS, pa.string())] + ([pa.field(CHANGE, pa.int32())] if retract else [])
        self.schema = pa.schema([*self._keys, *bounds, *aggregates.fields, *last])

    def final(self, windows: Sequence[ClosedWindow], out: ProgramOutput) -> None:
        """Emit the results of windows for which nothing has to be retracted, now or later."""
        if windows:
            keys, starts, ends, states = zip(*windows, strict=True)
            self.given(keys, starts, ends, self._aggregates.results(states), out)

    def updated(
        self, windows: Sequence[ClosedWindow], shown: Sequence[EmittedResult | None], out: ProgramOutput
    ) -> list[EmittedResult]:
        """Emit the results of windows that may change again, after retracting what was shown for them. An
        unchanged result is not emitted again. Returns what is shown now: start, end and values."""
        if not windows:
            return []
        keys, starts, ends, states = zip(*windows, strict=True)
        now: list[EmittedResult] = list(zip(starts, ends, *self._aggregates.results(states), strict=True))
        rows: list[tuple[tuple[Any, ...], EmittedResult, int]] = []
        for key, old, new in zip(keys, shown, now, strict=True):
            if old is None or not _same(old, new):
                if old is not None:
                    rows.append((key, old, -1))
                rows.append((key, new, 1))
        if rows:
            keys, results, changes = zip(*rows, strict=True)
            starts, ends, *columns = zip(*results, strict=True)
            self.given(keys, starts, ends, [list(column) for column in columns], out, list(changes))
        return now

    def given(
        self,
        keys: Sequence[tuple[Any, ...]],
        starts: Sequence[int],
        ends: Sequence[int],
        values: list[list[Any]],
        out: ProgramOutput,
        changes: list[int] | None = None,
    ) -> None:
        """Emit results: the keys and bounds of each, and the values of all of them by aggregate."""
        columns = [
            pa.array(column, field.type)
            for field, column in zip(self._keys, zip(*keys, strict=True), strict=True)
        ]
        columns += [pa.array(times, pa.int64()).cast(TIMESTAMP) for times in (starts, ends)]
        columns += [self._aggregates.array(number, column) for number, column in enumerate(values)]
        columns.append(pa.repeat(self._basis, len(starts)))
        if changes is not None:
            columns.append(pa.array(changes, pa.int32()))
        out.table(MAIN, pa.Table.from_arrays(columns, schema=self.schema))


def _same(one: EmittedResult, other: EmittedResult) -> bool:
    """True if two results are equal, where NaN equals NaN."""
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


class Windowing:
    """What the plans of tumbling, hopping and session windows have in common."""

    __slots__ = ()
    keys: int
    calls: tuple[Call, ...]
    basis: str
    final: bool
    retract: bool
    what: str

    def results(self, schema: pa.Schema) -> Results:
        aggregates = Aggregates(self.calls, schema)
        return Results(schema, self.keys, aggregates, self.basis, retract=self.retract)

    def shape(self) -> Mapping[str, object]:
        return {
            "window": self.what,
            "aggregates": [call.function for call in self.calls],
            "emit": "final" if self.final else "update",
            "retract": self.retract,
        }

    def describe(self) -> str:
        return self.what
