"""Finds rows by key and time on whole columns, with no work for single rows in Python.

Theory of operation. Each batch adds one *run*, sorted by the hash of the key and then by time. In a run,
all rows with one key and a range of times are contiguous, so a whole batch of lookups is a few binary
searches over arrays. Runs of similar size are merged, so there are never more than a handful. A row takes
part in a number of merges that is logarithmic in the number of rows, whatever the size of batches. Hashes
are valid in one process only. Keys with the same hash are told apart by comparing them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = Any  # numpy arrays of int64
_MIX = np.uint64(0x9E3779B97F4A7C15)


def hashes(keys: Sequence[pa.ChunkedArray]) -> Numbers:
    """A hash of each row's key; equal keys have equal hashes."""
    found = np.zeros(len(keys[0]), np.uint64)
    for column in keys:
        found = (found ^ _hashes(column).view(np.uint64)) * _MIX
    return found.view(np.int64)


def _hashes(column: pa.ChunkedArray) -> Numbers:
    kind = column.type
    if pa.types.is_temporal(kind):
        kind = pa.int64() if kind.bit_width == 64 else pa.int32()
        column = column.cast(kind)
    if pa.types.is_integer(kind):
        return column.cast(pa.int64(), safe=False).fill_null(0).to_numpy()
    encoded = column.combine_chunks().dictionary_encode()
    distinct = np.array([hash(value) for value in encoded.dictionary.to_pylist()] or [0], np.int64)
    return distinct[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]


@dataclass(slots=True)
class Run:
    """Rows sorted by hash and time. ``until`` is when each expires; ``going`` is the same, sorted."""

    rows: pa.Table
    hash: Numbers
    time: Numbers
    until: Numbers
    going: Numbers

    @classmethod
    def of(cls, rows: pa.Table, hashed: Numbers, time: Numbers, until: Numbers) -> Run:
        order = np.lexsort([time, hashed])
        taken = rows.take(pa.array(order)).combine_chunks()
        return cls(taken, hashed[order], time[order], until[order], np.sort(until))

    def __len__(self) -> int:
        return len(self.time)

    def left_at(self, time: int) -> Run:
        """The run without the rows that have expired by a time."""
        stay = self.until >= time
        rows = self.rows.filter(pa.array(stay)).combine_chunks()
        return Run(rows, self.hash[stay], self.time[stay], self.until[stay], np.sort(self.until[stay]))


class Lookup:
    """All rows that can be found. ``keys`` is the number of columns, from the left, that are the key."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._runs: list[Run] = []

    def add(self, rows: pa.Table, hashed: Numbers, time: Numbers, until: Numbers) -> None:
        """Add rows. A row with a null in its key is left out, because it can never be found."""
        there = np.ones(rows.num_rows, bool)
        for column in rows.columns[: self._keys]:
            if column.null_count:
                there &= column.is_valid().to_numpy()
        if not there.all():
            rows = rows.filter(pa.array(there))
            hashed, time, until = hashed[there], time[there], until[there]
        if rows.num_rows:
            self._runs.append(Run.of(rows, hashed, time, until))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(
                Run.of(
                    pa.concat_tables([before.rows, last.rows]),
                    np.concatenate([before.hash, last.hash]),
                    np.concatenate([before.time, last.time]),
                    np.concatenate([before.until, last.until]),
                )
            )

    def forget(self, until: int) -> None:
        """Drop rows that expire before a time: a whole run at once, or a run's expired rows when they are
        more than half of it. Until then, expired rows may stay."""
        kept = []
        for run in self._runs:
            gone = int(np.searchsorted(run.going, until, side="left"))
            if gone < len(run):
                kept.append(run.left_at(until) if 2 * gone > len(run) else run)
        self._runs = kept

    def find(
        self, rows: pa.Table, hashed: Numbers, low: Numbers, high: Numbers
    ) -> Iterator[tuple[Numbers, pa.Table, Numbers]]:
        """Find, for each given row, the rows with an equal key and a time from ``low`` to ``high``.
        Yields the numbers of the given rows, the rows found for them, and the times of the rows found."""
        for run in self._runs:
            first: Numbers = np.searchsorted(run.hash, hashed, side="left")
            end: Numbers = np.searchsorted(run.hash, hashed, side="right")
            asked = np.flatnonzero(end > first)
            if not len(asked):
                continue
            first = _bisect(run.time, first[asked], end[asked], low[asked])
            end = _bisect(run.time, first, end[asked], high[asked] + 1)
            counts = end - first
            numbers = np.repeat(asked, counts)
            if not len(numbers):
                continue
            starts = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
            at = starts + np.arange(len(numbers))
            same = self._equal(rows, numbers, run.rows, at)
            numbers, at = numbers[same], at[same]
            if len(numbers):
                yield numbers, run.rows.take(pa.array(at)), run.time[at]

    def _equal(self, rows: pa.Table, numbers: Numbers, others: pa.Table, at: Numbers) -> Any:
        same = np.ones(len(numbers), bool)
        for mine, other in zip(rows.columns[: self._keys], others.columns[: self._keys], strict=True):
            equal = pc.equal(mine.take(pa.array(numbers)), other.take(pa.array(at)))
            same &= equal.fill_null(False).to_numpy()
        return same


def _bisect(values: Numbers, low: Numbers, high: Numbers, wanted: Numbers) -> Numbers:
    """For each sorted span ``low:high`` of the values, where the first one not below wanted is."""
    low, high = low.copy(), high.copy()
    while True:
        open_ = low < high
        if not open_.any():
            return low
        middle = (low + high) // 2
        less = open_ & (values[np.minimum(middle, len(values) - 1)] < wanted)
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
