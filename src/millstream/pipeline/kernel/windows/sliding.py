"""Sliding windows, which move with every event.

Rules:

- Events are taken in time order. Each gives a result: the aggregates over its key's events of the last
  ``size``. Events of the same instant are all included, whatever their order.
- So a window is ``(start, end]``: it excludes its start and includes its end, which is the time of its
  event. The result names both.
- No event to come can reach events that are ``size`` or more before the watermark, so these are
  forgotten. For a key, only its events within ``size`` plus the lateness are kept.

Theory of operation. The state is one log of all events that may still count, in time order. A batch adds
to one end of it and removes from the other. Beside it, only in memory, are the same events by key. An
event's window is a range of its key's events, and aggregates process all ranges at once: counts, and sums
of integers and doubles, from running sums; others by going through each range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.clock import NEVER, OperatorClock
from millstream.pipeline.kernel.grouping import RowGroups, check_keys, codes, key_tuples
from millstream.pipeline.kernel.program import MAIN, Events, ProgramOutput
from millstream.pipeline.kernel.python_values import column_of
from millstream.pipeline.kernel.state.containers import TIME, WaitingRows
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.windows.aggregates import Aggregates
from millstream.pipeline.kernel.windows.calls import Call
from millstream.pipeline.kernel.windows.results import Results


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    in_order: ClassVar[bool] = True

    keys: int
    size: int
    calls: tuple[Call, ...]
    basis: str
    what: str

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        check_keys(inputs[0], self.keys)
        return {MAIN: self.results(inputs[0]).schema}

    def results(self, schema: pa.Schema) -> Results:
        return Results(schema, self.keys, Aggregates(self.calls, schema), self.basis)

    def program(self, inputs: Sequence[pa.Schema]) -> SlidingProgram:
        return SlidingProgram(self, inputs[0])

    def shape(self) -> Mapping[str, object]:
        return {"window": self.what, "aggregates": [call.function for call in self.calls]}

    def describe(self) -> str:
        return self.what


class SlidingProgram:
    def __init__(self, plan: SlidingWindows, schema: pa.Schema) -> None:
        self._plan = plan
        self._aggregates = Aggregates(plan.calls, schema)
        self._results = plan.results(schema)
        arguments = dict.fromkeys(
            name for call in plan.calls for name in (*call.arguments, *([call.where] if call.where else []))
        )
        self._kept = pa.schema([*list(schema)[: plan.keys], *(schema.field(name) for name in arguments)])
        self._of_key: dict[tuple[Any, ...], list[list[Any]]] = {}  # times, then the columns of the arguments

    def open(self, store: StateStore) -> None:
        self._log: WaitingRows = store.waiting("events", self._kept)
        rows = self._log.rows()
        if rows is not None:
            table = rows.select(self._kept.names)
            times = rows[TIME].to_numpy()
            for key, numbers, columns in self._by_key(table, times):
                self._of_key[key] = [numbers, *columns]

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        (whole,) = events.tables
        table = whole.take(pa.array(events.index)).select(self._kept.names)
        self._log.add(_in_order(table, events.time))
        held: list[list[Any]] = [[] for _ in range(len(self._kept) - self._plan.keys)]
        lows: list[int] = []
        highs: list[int] = []
        base, size = 0, self._plan.size
        keys: list[tuple[Any, ...]] = []
        ends: list[int] = []
        for key, times, columns in self._by_key(table, events.time):
            known = self._of_key.get(key)
            if known is None:
                known = self._of_key[key] = [times, *columns]
            else:
                for had, new in zip(known, [times, *columns], strict=True):
                    had += new
            here = known[0]
            low = high = 0
            for time in times:
                low = bisect_right(here, time - size, low)
                if high <= low or here[high - 1] < time:
                    high = bisect_right(here, time, high)
                lows.append(base + low)
                highs.append(base + high)
            for column, own in zip(held, known[1:], strict=True):
                column += own
            base += len(here)
            keys += [key] * len(times)
            ends += times
        self._give(keys, ends, held, lows, highs, out)

    def _give(
        self,
        keys: list[Any],
        ends: list[int],
        held: list[list[Any]],
        lows: list[int],
        highs: list[int],
        out: ProgramOutput,
    ) -> None:
        arguments = list(self._kept)[self._plan.keys :]
        columns = [pa.array(values, field.type) for values, field in zip(held, arguments, strict=True)]
        table = pa.Table.from_arrays(columns, schema=pa.schema(arguments))
        ranks = range(max(highs))  # the present order is enough: nothing is merged
        values = self._aggregates.moving(table, np.array(lows), np.array(highs), ranks)
        size = self._plan.size
        self._results.given(keys, [end - size for end in ends], ends, values, out)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        if clock.watermark == NEVER:
            return
        reach = clock.watermark - self._plan.size
        gone = self._log.let_go(reach + 1)
        if gone is None:
            return
        for key in set(key_tuples(gone.select(self._kept.names), self._plan.keys, np.arange(gone.num_rows))):
            known = self._of_key[key]
            cut = bisect_right(known[0], reach)
            if cut == len(known[0]):
                del self._of_key[key]
            else:
                for column in known:
                    del column[:cut]

    def next_due(self) -> int | None:
        return None

    def next_timer(self) -> int | None:
        return None

    def _by_key(
        self, table: pa.Table, times: Any
    ) -> list[tuple[tuple[Any, ...], list[int], list[list[Any]]]]:
        """Rows that are in order, by key: their times and the columns that the aggregates use."""
        keys = self._plan.keys
        groups = RowGroups(codes([table.column(number) for number in range(keys)]))
        of_groups = key_tuples(table, keys, groups.any_row)
        ordered = table.select(list(range(keys, table.num_columns))).take(pa.array(groups.order))
        columns = [column_of(column) for column in ordered.columns]
        numbers = times[groups.order].tolist()
        return [
            (key, numbers[low:high], [column[low:high] for column in columns])
            for key, low, high in zip(of_groups, groups.lo.tolist(), groups.hi.tolist(), strict=True)
        ]


def _in_order(table: pa.Table, times: Any) -> pa.Table:
    """Rows with the columns in front by which the log is ordered. They are in order, and stay so."""
    rows = len(times)
    front = [
        pa.array(times, pa.int64()),
        *[pa.array(np.zeros(rows, np.int32))] * 2,
        pa.array(np.arange(rows)),
    ]
    return pa.Table.from_arrays([*front, *table.columns], names=[*WaitingRows.ORDER, *table.schema.names])
