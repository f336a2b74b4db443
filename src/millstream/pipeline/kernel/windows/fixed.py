"""Tumbling and hopping windows.

Rules:

- Windows begin at whole multiples of the slide since 1970. They hold the rows from their start up to, but
  not including, their end. A row is in several windows if the slide is shorter than the size.
- A row counts in each of its windows that is still open by the row's own watermark. It is late if none is.
- A window closes when the watermark reaches its end. Then its result is final and its state is removed.

Theory of operation. A row's windows are consecutive, so the last of them and the number of open ones
identify them. Rows that agree in these two and in their key are one group, however many they are. The
group's partial is merged into each of the windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.clock import OperatorClock
from millstream.pipeline.kernel.grouping import RowGroups, check_keys, codes, key_tuples
from millstream.pipeline.kernel.late import split_late
from millstream.pipeline.kernel.program import MAIN, ProgramOutput, Rows
from millstream.pipeline.kernel.state.containers import Keyed
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.windows.aggregates import Aggregates
from millstream.pipeline.kernel.windows.calls import Call
from millstream.pipeline.kernel.windows.results import ClosedWindow, Windowing


@dataclass(frozen=True, slots=True)
class TimeWindows(Windowing):
    """The plan of tumbling windows, and of hopping ones where ``slide`` is less than ``size``."""

    in_order: ClassVar[bool] = False

    keys: int  # how many columns, from the left, are keys
    size: int
    slide: int
    calls: tuple[Call, ...]
    basis: str  # the kind of time that it uses, as results name it
    final: bool
    retract: bool
    what: str  # in words

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        check_keys(inputs[0], self.keys)
        return {MAIN: self.results(inputs[0]).schema}

    def program(self, inputs: Sequence[pa.Schema]) -> TimeWindowsProgram:
        return TimeWindowsProgram(self, inputs[0])


class TimeWindowsProgram:
    """The program. It keeps each window's aggregates and, where results are retracted, the last result."""

    def __init__(self, plan: TimeWindows, schema: pa.Schema) -> None:
        self._plan = plan
        self._aggregates = Aggregates(plan.calls, schema)
        self._results = plan.results(schema)
        self._changed: dict[Any, None] = {}  # windows that this batch changed, if updates are wanted

    def open(self, store: StateStore) -> None:
        self._windows: Keyed[tuple[Any, int], tuple[Any, ...]] = store.keyed("windows")
        self._shown: Keyed[tuple[Any, int], tuple[Any, ...]] = store.keyed("shown")

    def rows(self, rows: Rows, clock: OperatorClock, out: ProgramOutput) -> None:
        size, slide = self._plan.size, self._plan.slide
        last = rows.time - rows.time % slide
        on_time = split_late(rows, out, ends=last + size)
        if on_time is not None:
            rows, last = rows.take(on_time), last[on_time]
        if len(last):
            holding = (last + size - rows.time - 1) // slide + 1
            still_open = (last + size - rows.watermark - 1) // slide + 1
            self._add(rows, last, np.minimum(holding, still_open))

    def _add(self, rows: Rows, last: Any, count: Any) -> None:
        keys, size, slide = self._plan.keys, self._plan.size, self._plan.slide
        by = [rows.table.column(number) for number in range(keys)]
        of_rows = codes([*by, last, count] if slide < size else [*by, last])
        order = (rows.time, *rows.position)
        groups = RowGroups(of_rows, order if self._aggregates.ordered else ())
        table = rows.table.take(pa.array(groups.order))
        ranks: list[Any] = []
        if self._aggregates.ordered:
            ranks = list(zip(*(part[groups.order].tolist() for part in order), strict=True))
        partials = self._aggregates.partials(table, groups.lo, groups.hi, ranks)
        picked = groups.any_row
        found = list(
            zip(
                key_tuples(rows.table, keys, picked),
                last[picked].tolist(),
                count[picked].tolist(),
                partials,
                strict=True,
            )
        )
        self._windows.fetch(
            (key, begin)
            for key, start, many, _ in found
            for begin in range(start, start - many * slide, -slide)
        )
        windows, fold = self._windows, self._aggregates.fold
        changed = None if self._plan.final else self._changed
        for key, start, many, partial in found:
            for begin in range(start, start - many * slide, -slide):
                window = (key, begin)
                windows.put(window, fold(windows.get(window), partial), begin + size)
                if changed is not None:
                    changed[window] = None

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        if self._changed:
            self._update(out)
        closed = self._windows.take_due(clock.watermark)
        if self._plan.final:
            self._results.final([(key, start, end, state) for end, (key, start), state in closed], out)
        if self._plan.retract:
            self._shown.fetch(window for _, window, _ in closed)
            for _, window, _ in closed:
                self._shown.remove(window)

    def _update(self, out: ProgramOutput) -> None:
        changed, self._changed = list(self._changed), {}
        size = self._plan.size
        windows: list[ClosedWindow] = []
        for key, start in changed:
            state = self._windows.get((key, start))
            assert state is not None
            windows.append((key, start, start + size, state))
        if not self._plan.retract:
            self._results.final(windows, out)
            return
        self._shown.fetch(changed)
        shown = [self._shown.get(window) for window in changed]
        now = self._results.updated(windows, shown, out)
        for window, result in zip(changed, now, strict=True):
            self._shown.put(window, result)

    def next_due(self) -> int | None:
        return self._windows.next_due()

    def next_timer(self) -> int | None:
        return None
