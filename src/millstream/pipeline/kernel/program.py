"""The interface of a kernel program: rows in, rows out on named channels, with a store and a clock.

There are two kinds of program. A program that takes rows *as they come* decides for itself which are
late, because that depends on more than their time (a window that is still open accepts an old row). A
program that takes *events in order* receives them when the watermark has passed them, sorted by time,
with late rows already removed.

A ``ProgramPlan`` is the declaration: small, picklable, without state. It says which columns are emitted for
the columns of the inputs, and makes one program in every bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.channels import HIDDEN, MAIN, ahead_channel, late_channel
from millstream.pipeline.kernel.clock import NEVER, OperatorClock, Times
from millstream.pipeline.kernel.state.store import StateStore

__all__ = [
    "MAIN",
    "TIMESTAMP",
    "ArrivalOrderProgram",
    "EventTimeOrderProgram",
    "Events",
    "Program",
    "ProgramOutput",
    "ProgramPlan",
    "Rows",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")


def shown(names: Sequence[str]) -> list[str]:
    """The columns that belong to the row itself."""
    return [name for name in names if not name.startswith(HIDDEN)]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one input as they come: the input's columns and, beside them, the rows' times, the
    watermark by which each is judged, and their positions (source, partition, offset), which order rows of
    one time."""

    input: int
    table: pa.Table
    time: Times
    watermark: Times
    position: tuple[Any, Any, Any]

    def take(self, which: Any) -> Rows:
        """Some of the rows, by a mask or by row numbers."""
        which = np.flatnonzero(which) if getattr(which, "dtype", None) == np.bool_ else which
        source, partition, offset = self.position
        return Rows(
            self.input,
            self.table.take(pa.array(which)),
            self.time[which],
            self.watermark[which],
            (source[which], partition[which], offset[which]),
        )


@dataclass(frozen=True, slots=True)
class Events:
    """Events of all inputs in time order: event ``n`` is row ``index[n]`` of ``tables[input[n]]``."""

    tables: Sequence[pa.Table]
    time: Times
    input: Any
    index: Any

    def __len__(self) -> int:
        return len(self.time)


class ProgramOutput:
    """Collects what a program emits: whole tables, or single rows."""

    def __init__(self, channels: Mapping[str, pa.Schema]) -> None:
        self._channels = channels
        self._tables: dict[str, list[pa.Table]] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {}

    def table(self, channel: str, table: pa.Table) -> None:
        if table.num_rows:
            self._flush(channel)
            self._tables.setdefault(channel, []).append(table)

    def row(self, channel: str, values: tuple[Any, ...]) -> None:
        """Emit a row: values in the order of the channel's columns, times in microseconds or datetimes."""
        self._rows.setdefault(channel, []).append(values)

    def late(self, rows: Rows, by: Times) -> None:
        """Emit rows that no longer count, and by how many microseconds they are too late."""
        self._beside(late_channel(rows.input), rows, by)

    def ahead(self, rows: Rows, by: Times) -> None:
        self._beside(ahead_channel(rows.input), rows, by)

    def _beside(self, channel: str, rows: Rows, by: Times) -> None:
        if not rows.table.num_rows:
            return
        schema = self._channels[channel]
        judged = pa.array(rows.watermark, pa.int64(), mask=rows.watermark == NEVER).cast(TIMESTAMP)
        own = rows.table.select(shown(rows.table.schema.names))
        columns = [*own.columns, pa.array(by // 1000, pa.int64()), judged]
        self.table(channel, pa.Table.from_arrays(columns, schema=schema))

    def _flush(self, channel: str) -> None:
        rows = self._rows.pop(channel, None)
        if rows:
            schema = self._channels[channel]
            columns = [
                pa.array(values, field.type)
                for field, values in zip(schema, zip(*rows, strict=True), strict=True)
            ]
            self._tables.setdefault(channel, []).append(pa.Table.from_arrays(columns, schema=schema))

    def finish(self) -> dict[str, pa.Table]:
        """Everything that was emitted, by channel. Channels without rows are left out."""
        for channel in list(self._rows):
            self._flush(channel)
        return {channel: pa.concat_tables(tables) for channel, tables in self._tables.items()}


class Program(Protocol):
    """One operator in one bucket."""

    def open(self, store: StateStore) -> None:
        """Name the containers that the program needs. Called once, before anything else."""

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        """Emit what is due, whether or not time has advanced. Called once per batch, after all rows."""

    def next_due(self) -> int | None:
        """The earliest event time that something waits for; None if nothing does."""

    def next_timer(self) -> int | None:
        """The earliest wall-clock time that something waits for; None if nothing does."""


class ArrivalOrderProgram(Program, Protocol):
    def rows(self, rows: Rows, clock: OperatorClock, out: ProgramOutput) -> None: ...


class EventTimeOrderProgram(Program, Protocol):
    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None: ...


class ProgramPlan(Protocol):
    """The declaration of a stateful operator, beyond its inputs and keys."""

    in_order: ClassVar[
        bool
    ]  # True if the program is EventTimeOrderProgram, False if it is ArrivalOrderProgram

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        """The columns of every channel that it emits, including MAIN, for the columns of its inputs."""

    def program(self, inputs: Sequence[pa.Schema]) -> ArrivalOrderProgram | EventTimeOrderProgram: ...

    def shape(self) -> Mapping[str, object]:
        """What its state depends on, as JSON. A checkpoint of another shape can't be continued."""

    def describe(self) -> str:
        """What it does, in a few words."""


def by_position(plan: ProgramPlan) -> frozenset[int]:
    """The inputs whose rows a plan keeps as plain values, without column names. The plan lists them as
    ``positional``. The columns of such an input can't change while there is state."""
    return frozenset(getattr(plan, "positional", ()))


def tables_of(plan: ProgramPlan) -> frozenset[int]:
    """The inputs of an in-order plan that are changes of a table. The plan lists them as ``tables``. A
    late change still counts, or the table would stay wrong forever: the kernel gives it the time of the
    watermark by which it was judged. The program checks whether there is already a newer change.
    """
    return frozenset(getattr(plan, "tables", ()))
