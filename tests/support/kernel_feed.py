"""Runs a kernel's plan over events as Spark would: packed by tasks, shuffled by bucket, batch after batch.

An event names its partition. Within a partition, events are fed in the order given, which sets their offsets.
The test decides how the input is cut into batches, how many buckets the keys are divided into, and after
which batches the state is saved and loaded into fresh stores. None of these may change the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.pipeline.kernel.bucket import Bucket, KeyedOperator
from millstream.pipeline.kernel.clock import NEVER, BatchTime, PartitionClock, SourcePartition, TimeRules
from millstream.pipeline.kernel.packing import IN_FRONT, Pack, unpacked
from millstream.pipeline.kernel.program import TIMESTAMP, ProgramPlan
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.state.table import StateTable
from millstream.pipeline.kernel.state.versions import outside

SECOND = 1_000_000


@dataclass(frozen=True)
class Event:
    """A row of an input: its time in microseconds, its columns, and the partition it came in."""

    time: int
    row: Mapping[str, Any]
    partition: int = 0
    input: int = 0
    clock: bool = False  # a filtered-out row, which only advances the watermark


class Feed:
    """Runs a plan. ``keys`` is the number of columns, from the left, that are an input's keys.

    A partition counts towards the watermark from its first row on. So it matters in which batch that row
    comes: rows older than what the other partitions had reached before are late. ``partitions`` is the number
    of partitions of every input that are known from the beginning.
    """

    def __init__(
        self,
        plan: ProgramPlan,
        inputs: Sequence[pa.Schema],
        *,
        keys: int = 1,
        buckets: int = 2,
        rules: Mapping[int, TimeRules] | TimeRules = TimeRules(),  # noqa: B008 - it is frozen
        partitions: int = 0,
        table: StateTable | None = None,
    ) -> None:
        """With a ``table`` (for one bucket only), state is kept there, and every batch is folded into it."""
        assert table is None or buckets == 1
        of_input = rules if isinstance(rules, Mapping) else dict.fromkeys(range(len(inputs)), rules)
        self._rules = {(number, number): of_input.get(number, TimeRules()) for number in range(len(inputs))}
        self._operator = KeyedOperator("fed", plan, tuple(inputs), self._rules)
        self._keys = keys
        self._stores = [StateStore(table) for _ in range(buckets)]
        self._version = 0
        self._buckets = [Bucket(self._operator, store) for store in self._stores]
        for bucket in self._buckets:
            for number in range(len(inputs)):
                for partition in range(partitions):
                    bucket.clock.partitions[SourcePartition(number, number, partition)] = PartitionClock(
                        NEVER, 0
                    )
        self._saved: list[list[bytes]] = [[] for _ in range(buckets)]
        self._offsets: dict[tuple[int, int], int] = {}
        self.given: dict[str, list[dict[str, Any]]] = {}

    def batch(self, events: Sequence[Event], *, now: int = 0) -> dict[str, list[dict[str, Any]]]:
        """Run one batch, and return its output by channel. The output is also added to ``given``."""
        blobs: list[list[bytes]] = [[] for _ in self._buckets]
        for number, schema in enumerate(self._operator.inputs):
            of_input = [event for event in events if event.input == number]
            rules = {number: self._rules[number, number]}
            pack = Pack(number, len(self._buckets), rules, lambda: BatchTime(now))
            for batch in pack(iter([self._rows(number, schema, of_input)] if of_input else [])):
                for bucket, blob in zip(batch[0].to_pylist(), batch["blob"].to_pylist(), strict=True):
                    blobs[bucket].append(blob)
        new: dict[str, list[dict[str, Any]]] = {}
        for bucket, sent in zip(self._buckets, blobs, strict=True):
            for channel, table in bucket.step(unpacked(sent)).items():
                new.setdefault(channel, []).extend(table.to_pylist())
        for saved, store in zip(self._saved, self._stores, strict=True):
            saved.append(store.changes())
            self._fold(store)
        for channel, rows in new.items():
            self.given.setdefault(channel, []).extend(rows)
        return new

    def _fold(self, store: StateStore) -> None:
        if store.table is not None:
            self._version += 1
            there = outside(store)
            store.table.fold(self._version, {name: one.in_front() for name, one in there})
            for _, one in there:
                one.folded()

    def reload(self, *, snapshot: bool = False) -> None:
        """Go on with fresh stores, loaded from all changes so far or from a snapshot."""
        if snapshot:
            self._saved = [list(store.snapshot()) for store in self._stores]
        self._stores = [StateStore() for _ in self._stores]
        for store, saved in zip(self._stores, self._saved, strict=True):
            for blob in saved:
                store.apply(blob)
        self._buckets = [Bucket(self._operator, store) for store in self._stores]

    def replace(self, plan: ProgramPlan) -> None:
        """Go on with another plan, and with fresh stores loaded from all changes so far."""
        self._operator = KeyedOperator("fed", plan, self._operator.inputs, self._rules)
        self.reload()

    @property
    def buckets(self) -> list[Bucket]:
        return self._buckets

    def _rows(self, number: int, schema: pa.Schema, events: Sequence[Event]) -> pa.RecordBatch:
        offsets = []
        for event in events:
            place = number, event.partition
            self._offsets[place] = self._offsets.get(place, -1) + 1
            offsets.append(self._offsets[place])
        keys = [repr([event.row[name] for name in schema.names[: self._keys]]) for event in events]
        front = [
            pa.array([zlib.crc32(key.encode()) % len(self._buckets) for key in keys], pa.int32()),
            pa.array([event.time for event in events], TIMESTAMP),
            pa.array([number] * len(events), pa.int32()),
            pa.array([event.partition for event in events], pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([event.clock for event in events], pa.bool_()),
        ]
        own = [pa.array([event.row[field.name] for event in events], field.type) for field in schema]
        return pa.RecordBatch.from_arrays([*front, *own], names=[*IN_FRONT, *schema.names])


def run(
    plan: ProgramPlan,
    inputs: Sequence[pa.Schema],
    batches: Sequence[Sequence[Event]],
    *,
    reload_after: Collection[int] = (),
    **how: Any,
) -> dict[str, list[dict[str, Any]]]:
    """The whole output of a plan for some batches, by channel."""
    feed = Feed(plan, inputs, **how)
    for number, events in enumerate(batches):
        feed.batch(events)
        if number in reload_after:
            feed.reload(snapshot=number % 2 == 0)
    return feed.given
