"""Drops events whose key came a short time before.

Rules:

- Events are taken in time order, then by source, partition and offset, once the watermark has passed them. So
  which of two events is the first depends neither on when they arrived nor on how the input was cut into
  batches: it is the one with the earlier time.
- The first event of a key is passed on. The events of the key less than ``within`` after it are duplicates,
  and go to the channel ``duplicates``. A duplicate does not extend that time.
- The first event at ``within`` after it, or later, is passed on again, and the time begins again.
- Nulls are equal to each other, as in Spark's ``dropDuplicates``.
- Where ``arrival`` is set, events go by their arrival in the log. That can't be late: a record with a
  timestamp older than the watermark counts as if it had come at the watermark.

Memory: one entry per key, for no longer than ``within`` of event time, and the events that wait for the
watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millstream.core.errors import TopologyError
from millstream.core.units import exact_duration
from millstream.pipeline.kernel.channels import DUPLICATES, MAIN
from millstream.pipeline.kernel.clock import NEVER, OperatorClock
from millstream.pipeline.kernel.grouping import codes, floating_key
from millstream.pipeline.kernel.program import Events, ProgramOutput, shown
from millstream.pipeline.kernel.python_values import rows_of
from millstream.pipeline.kernel.state.store import StateStore


@dataclass(frozen=True)
class Deduplicate:
    """The plan. ``by`` are the keys as the user wrote them; their values are the first columns of the input,
    under hidden names. ``within`` is in microseconds."""

    by: tuple[str, ...]
    within: int
    arrival: bool = False
    in_order: ClassVar[bool] = True

    @property
    def tables(self) -> tuple[int, ...]:
        return (0,) if self.arrival else ()

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        for key, field in zip(self.by, inputs[0], strict=False):
            if pa.types.is_floating(field.type):
                raise floating_key("deduplicate", key, str(field.type))
            if pa.types.is_nested(field.type):
                raise TopologyError(
                    f"deduplicate: the key {key!r} is {field.type}; a key must be a plain value. Name the"
                    " parts that identify an event, as in by=['id.region', 'id.number']"
                )
        own = pa.schema([inputs[0].field(name) for name in shown(inputs[0].names)])
        return {MAIN: own, DUPLICATES: own}

    def program(self, inputs: Sequence[pa.Schema]) -> Deduplicating:
        return Deduplicating(self, shown(inputs[0].names))

    def shape(self) -> Mapping[str, object]:
        return {"within_us": self.within, "arrival": self.arrival}

    def describe(self) -> str:
        return f"first of {', '.join(self.by)} within {exact_duration(self.within // 1000)}"


class Deduplicating:
    """The program. It keeps the keys that were passed on, each until its time is over."""

    def __init__(self, plan: Deduplicate, own: Sequence[str]) -> None:
        self._plan = plan
        self._own = own

    def open(self, store: StateStore) -> None:
        self._seen = store.keyed("seen")

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        within, time, table = self._plan.within, events.time, events.tables[0]
        of_row = codes(table.columns[: len(self._plan.by)])
        _, firsts = np.unique(of_row, return_index=True)  # of each key among these events
        keys = rows_of(table.take(pa.array(firsts)), 0, len(self._plan.by))
        self._seen.fetch(keys)
        ends = np.array([NEVER if (due := self._seen.due_of(key)) is None else due for key in keys], np.int64)
        passes = np.zeros(len(time), bool)
        begun = firsts[time[firsts] >= ends]
        passes[begun] = True
        ends[of_row[begun]] = time[begun] + within
        # What is left, usually nothing: events of a key whose time has ended among these events.
        for row in np.flatnonzero(time >= ends[of_row]).tolist():
            if time[row] >= ends[of_row[row]]:
                passes[row] = True
                ends[of_row[row]] = time[row] + within
        for number in np.unique(of_row[passes]).tolist():
            self._seen.put(keys[number], True, int(ends[number]))
        own = table.select(self._own)
        out.table(MAIN, own.filter(pa.array(passes)))
        out.table(DUPLICATES, own.filter(pa.array(~passes)))

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        self._seen.take_due(clock.watermark)

    def next_due(self) -> int | None:
        return None  # to forget a key is nothing that a run has to wait for

    def next_timer(self) -> int | None:
        return None
