"""Processes one batch of one bucket: sets the clock, removes late and impossible rows, runs the program.

If the program takes events in order, the remaining rows are put in order first.

Theory of operation. All buckets are told the times of every partition, whether or not they got a row from
it, so all of them see the same watermark. Rows that have to wait do so here, in the order of (time,
source, partition, offset). Nothing is left of the order in which they arrived, so an operator's results
don't depend on it. Rows that have no position in a log, because another operator emitted them, are
ordered by their content.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.core.errors import OperatorFailed
from millstream.pipeline.kernel.channels import HIDDEN, ahead_channel, late_channel
from millstream.pipeline.kernel.clock import (
    ALWAYS,
    NEVER,
    BatchTime,
    ObservedTime,
    OperatorClock,
    SourcePartition,
    TimeRules,
)
from millstream.pipeline.kernel.grouping import floating_key
from millstream.pipeline.kernel.late import is_late, split_late
from millstream.pipeline.kernel.program import (
    TIMESTAMP,
    Events,
    ProgramOutput,
    ProgramPlan,
    Rows,
    shown,
    tables_of,
)
from millstream.pipeline.kernel.state.containers import OFFSET, PARTITION, SOURCE, TIME, WaitingRows
from millstream.pipeline.kernel.state.store import KEPT_BESIDE, StateStore
from millstream.pipeline.kernel.user_failures import RecordFailed, reason

# The columns that a row brings beside its own: its time, its position in the log, and the latest time
# that its task had seen in its partition before it.
SEEN = f"{HIDDEN}row_seen"
BESIDE = (TIME, SOURCE, PARTITION, OFFSET, SEEN)
_LATE_COLUMNS = (pa.field("late_ms", pa.int64()), pa.field("watermark", TIMESTAMP))
_A_WHILE = 1_000_000  # microseconds that time may stand still for operators downstream when all is idle
_AHEAD_COLUMNS = (pa.field("ahead_ms", pa.int64()), pa.field("watermark", TIMESTAMP))


@dataclass(frozen=True, slots=True)
class KeyedOperator:
    """A stateful operator as every bucket has it: picklable, with everything that is needed to run it."""

    name: str
    plan: ProgramPlan
    inputs: tuple[pa.Schema, ...]  # the columns of each, without those of ``BESIDE``
    rules: Mapping[tuple[int, int], TimeRules]  # by input and source

    def __post_init__(self) -> None:
        for schema in self.inputs:
            for field in list(schema)[: getattr(self.plan, "keys", 0)]:
                if pa.types.is_floating(field.type):
                    raise floating_key(self.name, field.name, str(field.type))

    def channels(self) -> dict[str, pa.Schema]:
        found = dict(self.plan.channels(self.inputs))
        for number, schema in enumerate(self.inputs):
            own = [schema.field(name) for name in shown(schema.names)]
            found[late_channel(number)] = pa.schema([*own, *_LATE_COLUMNS])
            found[ahead_channel(number)] = pa.schema([*own, *_AHEAD_COLUMNS])
        return found


@dataclass(frozen=True, slots=True)
class BucketBatch:
    """What a bucket is given: rows by input with the columns of ``BESIDE``, what was seen of every
    partition, and the time."""

    rows: Sequence[tuple[int, pa.Table]]
    seen: Sequence[ObservedTime]
    at: BatchTime


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an operator in a bucket after a batch."""

    watermark: int
    waits_for: int | None  # the event time of the next thing to happen
    timer: int | None  # the wall-clock time of the next thing to happen
    may_move: int | None  # the wall-clock time at which the watermark may advance without rows
    entries: int


def by_place(sources: Any, partitions: Any) -> Iterator[tuple[int, int, Any]]:
    """Each source and partition among the rows, and which rows belong to it."""
    if not len(sources):
        return
    if (sources == sources[0]).all() and (partitions == partitions[0]).all():
        yield int(sources[0]), int(partitions[0]), slice(None)
        return
    for source in np.unique(sources):
        of_source = sources == source
        for partition in np.unique(partitions[of_source]):
            yield int(source), int(partition), np.flatnonzero(of_source & (partitions == partition))


def _placed(offsets: Any, rows: pa.Table) -> Any:
    """The offsets of rows. A row that has none gets one that is computed from its content."""
    without = np.flatnonzero(offsets < 0)
    if not len(without):
        return offsets
    placed = offsets.copy()
    contents = zip(*(column.to_pylist() for column in rows.take(pa.array(without)).columns), strict=True)
    placed[without] = [-1 - zlib.crc32(repr(row).encode()) for row in contents]
    return placed


class Bucket:
    """An operator running in one bucket, on a store that outlives it."""

    def __init__(self, operator: KeyedOperator, store: StateStore) -> None:
        self._operator = operator
        self._channels = operator.channels()
        self._clock = OperatorClock(operator.rules, len(operator.inputs))
        self._clocks = store.in_memory(KEPT_BESIDE)
        saved = self._clocks.get("clock")
        if saved is not None:
            self._clock.load(saved)
        self._waiting: list[WaitingRows] = []
        self._tables = tables_of(operator.plan)
        if operator.plan.in_order:
            self._waiting = [
                store.waiting(f"waiting.{number}", schema) for number, schema in enumerate(operator.inputs)
            ]
        self._program: Any = operator.plan.program(operator.inputs)
        self._program.open(store)
        self._store = store

    @property
    def clock(self) -> OperatorClock:
        return self._clock

    def step(self, batch: BucketBatch) -> dict[str, pa.Table]:
        """Process a batch. Returns its output, by channel."""
        try:
            return self._step(batch)
        except RecordFailed as failed:
            raise OperatorFailed(
                f"operator {self._operator.name!r} failed for {failed.key}: {reason(failed.error)}"
                f" ({failed.sample})"
            ) from failed.error

    def _step(self, batch: BucketBatch) -> dict[str, pa.Table]:
        clock, out = self._clock, ProgramOutput(self._channels)
        carried = [] if batch.at.finish is None else clock.carried_to(batch.at.finish)
        clock.observe([*batch.seen, *carried], batch.at.now)
        for number, table in batch.rows:
            self._take(number, table, out)
        if self._operator.plan.in_order:
            events = self._let_go()
            if events is not None:
                self._program.events(events, clock, out)
        self._program.advance(clock, out)
        self._clocks.put("clock", clock.save())
        return out.finish()

    def status(self) -> Status:
        # A waiting row is released once the watermark has passed it.
        waiting = [1 + first for one in self._waiting if (first := one.earliest()) is not None]
        program = self._program.next_due()
        due = min([*waiting, *([] if program is None else [program])], default=None)
        clock = self._clock
        moves = clock.may_move(due if due is not None else clock.watermark + _A_WHILE)
        return Status(
            watermark=clock.watermark,
            waits_for=due,
            timer=self._program.next_timer(),
            may_move=None if moves == ALWAYS else moves,
            entries=len(self._store) - len(self._clocks),
        )

    def _take(self, number: int, table: pa.Table, out: ProgramOutput) -> None:
        clock = self._clock
        time = table[TIME].to_numpy()
        origins = table.select([SOURCE, PARTITION])
        watermark = self._judged_by(number, origins, table[OFFSET].to_numpy(), table[SEEN].to_numpy())
        ahead = np.zeros(len(time), bool)
        for source in np.unique(origins[SOURCE].to_numpy()):
            bound = (clock.rules.get((number, int(source))) or TimeRules()).ahead
            if bound is not None:
                ahead |= (origins[SOURCE].to_numpy() == source) & (time > clock.now + bound)
        own = table.drop_columns(list(BESIDE))
        offsets = _placed(table[OFFSET].to_numpy(), own)
        table = table.set_column(table.schema.get_field_index(OFFSET), OFFSET, pa.array(offsets))
        position = (origins[SOURCE].to_numpy(), origins[PARTITION].to_numpy(), offsets)
        rows = Rows(number, own, time, watermark, position)
        timeless = time == NEVER
        if timeless.any():
            out.late(rows.take(timeless), np.zeros(int(timeless.sum()), np.int64))
            rows, table, ahead = rows.take(~timeless), table.filter(pa.array(~timeless)), ahead[~timeless]
        if ahead.any():
            far = rows.take(ahead)
            out.ahead(far, far.time - clock.now)
            rows, table = rows.take(~ahead), table.filter(pa.array(~ahead))
        if not self._operator.plan.in_order:
            if rows.table.num_rows:
                self._program.rows(rows, clock, out)
            return
        if number in self._tables:
            if is_late(rows).any():
                known_at = pa.array(np.maximum(rows.time, rows.watermark))
                table = table.set_column(table.schema.get_field_index(TIME), TIME, known_at)
        elif (on_time := split_late(rows, out)) is not None:
            table = table.filter(pa.array(on_time))
        self._waiting[number].add(table.drop_columns([SEEN]))

    def _judged_by(self, number: int, origins: pa.Table, offsets: Any, seen: Any) -> Any:
        sources, partitions = origins[SOURCE].to_numpy(), origins[PARTITION].to_numpy()
        found = np.full(len(offsets), NEVER, np.int64)
        for source, partition, here in by_place(sources, partitions):
            found[here] = self._clock.watermarks(
                SourcePartition(number, source, partition), offsets[here], seen[here]
            )
        return found

    def _let_go(self) -> Events | None:
        freed = [waiting.let_go(self._clock.watermark) for waiting in self._waiting]
        if not any(table is not None for table in freed):
            return None
        tables, columns = [], []
        for number, table in enumerate(freed):
            schema = self._operator.inputs[number]
            if table is None:
                tables.append(schema.empty_table())
                continue
            tables.append(table.select(schema.names))
            order = [table[name].to_numpy() for name in (TIME, SOURCE, PARTITION, OFFSET)]
            rows = table.num_rows
            columns.append((*order, np.full(rows, number), np.arange(rows)))
        time, source, partition, offset, number_of, index = (
            np.concatenate(parts) for parts in zip(*columns, strict=True)
        )
        if len(columns) > 1:
            by = np.lexsort([offset, partition, source, number_of, time])
            time, number_of, index = time[by], number_of[by], index[by]
        return Events(tables, time, number_of, index)
