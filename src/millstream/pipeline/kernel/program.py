"""What a program on the kernel is: rows in, rows out on named channels, state in a store, time from a clock.

A program is one of two kinds. One that takes rows *as they come* judges for itself which are late, because
for it that depends on more than their time (a window that is still open takes an old row gladly). One that
takes *events in order* is given them when the watermark has passed them, sorted by time, and late rows have
been taken out before.

A ``Plan`` is what is declared: small, picklable, without state. It tells which rows it gives for which rows
it takes, and makes the program, in every bucket one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.channels import HIDDEN, MAIN, ahead_channel, late_channel
from millstream.pipeline.kernel.clock import NEVER, Clock, Times
from millstream.pipeline.kernel.state import Store

__all__ = ["MAIN", "TIMESTAMP", "AsTheyCome", "Events", "InOrder", "Out", "Plan", "Program", "Rows"]

TIMESTAMP = pa.timestamp("us", tz="UTC")


def shown(names: Sequence[str]) -> list[str]:
    """The columns of a row that are its own."""
    return [name for name in names if not name.startswith(HIDDEN)]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one input as they come: the columns of the input, and beside them their times, the watermark
    by which each is judged, and their places (source, partition, offset), which put rows of one time in
    order."""

    input: int
    table: pa.Table
    time: Times
    watermark: Times
    place: tuple[Any, Any, Any]

    def take(self, which: Any) -> Rows:
        """Some of them, by a mask or by numbers."""
        which = np.flatnonzero(which) if getattr(which, "dtype", None) == np.bool_ else which
        source, partition, offset = self.place
        return Rows(
            self.input,
            self.table.take(pa.array(which)),
            self.time[which],
            self.watermark[which],
            (source[which], partition[which], offset[which]),
        )


@dataclass(frozen=True, slots=True)
class Events:
    """Events of all inputs in the order of time: the ``n``-th is row ``index[n]`` of ``tables[input[n]]``."""

    tables: Sequence[pa.Table]
    time: Times
    input: Any
    index: Any

    def __len__(self) -> int:
        return len(self.time)


class Out:
    """What a program gives: whole tables, or row by row where it works so."""

    def __init__(self, channels: Mapping[str, pa.Schema]) -> None:
        self._channels = channels
        self._tables: dict[str, list[pa.Table]] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {}

    def table(self, channel: str, table: pa.Table) -> None:
        if table.num_rows:
            self._flush(channel)
            self._tables.setdefault(channel, []).append(table)

    def row(self, channel: str, values: tuple[Any, ...]) -> None:
        """Values in the order of the channel's columns; times as microseconds or as datetimes."""
        self._rows.setdefault(channel, []).append(values)

    def late(self, rows: Rows, by: Times) -> None:
        """Rows that no longer count, and by how many microseconds they are too late."""
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
        """All that was given, by channel; only channels that were given something."""
        for channel in list(self._rows):
            self._flush(channel)
        return {channel: pa.concat_tables(tables) for channel, tables in self._tables.items()}


class Program(Protocol):
    """One operator in one bucket."""

    def open(self, store: Store) -> None:
        """Name the containers that the program needs. Called once, before anything else."""

    def advance(self, clock: Clock, out: Out) -> None:
        """Time has moved, or not: give what is due by it. Called once a batch, after all rows."""

    def next_due(self) -> int | None:
        """The earliest event time that something waits for; None if nothing does."""

    def next_timer(self) -> int | None:
        """The earliest time on the wall that something waits for."""


class AsTheyCome(Program, Protocol):
    def rows(self, rows: Rows, clock: Clock, out: Out) -> None: ...


class InOrder(Program, Protocol):
    def events(self, events: Events, clock: Clock, out: Out) -> None: ...


class Plan(Protocol):
    """What is declared of a stateful operator, beyond its inputs and keys."""

    in_order: ClassVar[bool]  # whether the program is InOrder or AsTheyCome

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        """The columns of every channel it gives, MAIN among them, for the columns of its inputs."""

    def program(self, inputs: Sequence[pa.Schema]) -> AsTheyCome | InOrder: ...

    def shape(self) -> Mapping[str, object]:
        """What its state depends on, for JSON: a checkpoint of another shape can't be continued."""

    def describe(self) -> str:
        """What it does, in a few words."""


def by_position(plan: Plan) -> frozenset[int]:
    """The inputs whose rows a plan keeps as plain values, without the names of their columns; it names them
    as ``positional``. The columns of such an input can't change while there is state."""
    return frozenset(getattr(plan, "positional", ()))


def tables_of(plan: Plan) -> frozenset[int]:
    """The inputs of a plan in order that are changes of a table, which it names as ``tables``. A change that
    comes late counts all the same, from the watermark on that it was judged by, or the table would stay wrong
    for ever: the kernel gives it that time. Whether something newer is there already is the program's to see.
    """
    return frozenset(getattr(plan, "tables", ()))
