"""Packs rows into blobs by bucket for the kernel, and unpacks its results into rows for Spark.

A shuffle that carries rows one by one costs more than everything else. So each task makes one Arrow
stream of all its rows of a bucket, and the shuffle carries a handful of byte strings. With them, every
bucket is told the times of all partitions, whether or not it has rows of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.pipeline.kernel.bucket import BESIDE, BucketBatch, by_place
from millstream.pipeline.kernel.channels import HIDDEN
from millstream.pipeline.kernel.clock import (
    NEVER,
    RESULT,
    BatchTime,
    ObservedTime,
    SourcePartition,
    TimeRules,
)
from millstream.pipeline.kernel.state.containers import OFFSET, PARTITION, SOURCE, TIME, from_bytes, to_bytes

# The columns in front of the input's own columns on the way to the kernel. CLOCK: the row itself was
# filtered out, and only its time counts.
BUCKET, CLOCK = f"{HIDDEN}row_bucket", f"{HIDDEN}row_clock"
IN_FRONT = (BUCKET, TIME, SOURCE, PARTITION, OFFSET, CLOCK)
# The offset of a row that says how far another operator has come. Of that operator's results, only such
# rows advance time: results emitted before the watermark passed them may be followed by older ones.
MARK = -2
PACKED = pa.schema([pa.field(BUCKET, pa.int32()), pa.field("blob", pa.binary())])
# What a task holds before it packs, so that its memory is bounded, and the size of blobs with a hot key too.
_MOST_ROWS, _MOST_BYTES = 500_000, 64 * 1024 * 1024
# The length of a blob's header (its kind and its input): eight bytes, because Arrow wants numbers aligned.
_FRONT = 8
_ROWS, _SEEN = b"rows", b"seen"


def _front(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class Pack:
    """Packs one input of an operator, as a function for ``mapInArrow``. ``at`` returns the batch's time."""

    input: int
    buckets: int
    rules: Mapping[int, TimeRules]  # by source
    at: Callable[[], BatchTime]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at = self.at()
        seen: dict[SourcePartition, list[int]] = {}  # the first offset and the latest time
        held: list[pa.Table] = []
        rows = size = 0
        for batch in batches:
            table = self._judged(batch, seen, at.now)
            if table.num_rows:
                held.append(table)
                rows, size = rows + table.num_rows, size + table.nbytes
            if rows >= _MOST_ROWS or size >= _MOST_BYTES:
                yield self._packed(held)
                held, rows, size = [], 0, 0
        if held:
            yield self._packed(held)
        told = [(tuple(origin), first, latest) for origin, (first, latest) in seen.items()]
        blob = _front(_SEEN, self.input) + json.dumps([told, at]).encode()
        every = pa.array(range(self.buckets), pa.int32())
        yield pa.RecordBatch.from_arrays([every, pa.array([blob] * self.buckets, pa.binary())], schema=PACKED)

    def _judged(self, batch: pa.RecordBatch, seen: dict[SourcePartition, list[int]], now: int) -> pa.Table:
        """The rows of a batch that count, each with the latest time before it. Updates ``seen``."""
        time = batch[TIME].cast(pa.int64()).fill_null(NEVER).to_numpy()
        sources, partitions = batch[SOURCE].to_numpy(), batch[PARTITION].to_numpy()
        offsets = batch[OFFSET].to_numpy()
        latest_before = np.full(len(time), NEVER, np.int64)
        for source, partition, here in by_place(sources, partitions):
            bound = (self.rules.get(source) or TimeRules()).ahead
            believed = time[here] if bound is None else np.where(time[here] > now + bound, NEVER, time[here])
            if source == RESULT:
                believed = np.where(offsets[here] == MARK, believed, NEVER)
            origin = SourcePartition(self.input, source, partition)
            first = int(offsets[here][0])
            known = seen.setdefault(origin, [first, NEVER])
            running = np.maximum.accumulate(np.concatenate(([known[1]], believed)))
            if first >= 0:
                latest_before[here] = running[:-1]
            known[1] = int(running[-1])
        own = batch.schema.names[len(IN_FRONT) :]
        columns = [
            pa.array(time),
            *(batch[name] for name in (SOURCE, PARTITION, OFFSET)),
            pa.array(latest_before),
        ]
        columns += [batch[BUCKET], *(batch[name] for name in own)]
        table = pa.Table.from_arrays(columns, names=[*BESIDE, BUCKET, *own])
        counts = pc.invert(batch[CLOCK])
        return table if counts.true_count == len(counts) else table.filter(counts)

    def _packed(self, tables: list[pa.Table]) -> pa.RecordBatch:
        table = pa.concat_tables(tables)
        buckets = table[BUCKET].to_numpy()
        order = np.argsort(buckets, kind="stable")
        table = table.drop_columns([BUCKET]).take(pa.array(order)).combine_chunks()
        buckets = buckets[order]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(buckets)) + 1, [len(buckets)]))
        front = _front(_ROWS, self.input)
        blobs = [front + to_bytes(table.slice(start, end - start)) for start, end in pairwise(starts)]
        found = pa.array(buckets[starts[:-1]], pa.int32())
        return pa.RecordBatch.from_arrays([found, pa.array(blobs, pa.binary())], schema=PACKED)


def unpacked(blobs: Sequence[bytes]) -> BucketBatch:
    """What a bucket was sent, with the rows of each input as one table."""
    rows: dict[int, list[pa.Table]] = {}
    seen: list[ObservedTime] = []
    at = BatchTime(NEVER)
    for blob in blobs:
        kind, number = bytes(blob[:4]), int.from_bytes(blob[4:_FRONT], "little")
        if kind == _ROWS:
            rows.setdefault(number, []).append(from_bytes(memoryview(blob)[_FRONT:]))
        else:
            told, of_task = json.loads(bytes(blob[_FRONT:]))
            seen += [ObservedTime(SourcePartition(*origin), first, latest) for origin, first, latest in told]
            at = BatchTime(*of_task)  # the same in every task of a batch
    return BucketBatch(
        [(number, pa.concat_tables(tables)) for number, tables in sorted(rows.items())], seen, at
    )


class Unpack:
    """Turns results into rows again, as a function for ``mapInArrow``. One column names the row's
    channel. Each channel's columns are one struct, which is null in the rows of all other channels."""

    def __init__(self, channels: Mapping[str, pa.Schema]) -> None:
        self._channels = dict(channels)

    @property
    def schema(self) -> pa.Schema:
        structs = [
            pa.field(struct_name(number), pa.struct(list(schema)))
            for number, schema in enumerate(self._channels.values())
        ]
        return pa.schema([pa.field("channel", pa.string()), pa.field("status", pa.binary()), *structs])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for batch in batches:
            for channel, blob in zip(batch["channel"], batch["blob"], strict=True):
                yield from self._rows(schema, channel.as_py(), blob.as_buffer())

    def _rows(self, schema: pa.Schema, channel: str, blob: pa.Buffer) -> Iterator[pa.RecordBatch]:
        if channel not in self._channels:
            columns: list[Any] = [pa.array([channel]), pa.array([blob.to_pybytes()])]
            columns += [pa.nulls(1, field.type) for field in schema][2:]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            return
        at = list(self._channels).index(channel)
        for part in from_bytes(blob).combine_chunks().to_batches(max_chunksize=100_000):
            rows = part.num_rows
            columns = [pa.repeat(channel, rows), pa.nulls(rows, pa.binary())]
            columns += [pa.nulls(rows, field.type) for field in schema][2:]
            columns[2 + at] = pa.StructArray.from_arrays(part.columns, fields=list(part.schema))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def struct_name(number: int) -> str:
    """The column that holds the columns of a channel."""
    return f"channel_{number}"
