"""Ranges of rows as aggregates see them: columns without the rows that don't count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.python_values import values_of


class RowRanges:
    """Columns of rows, and ranges ``lo[n]:hi[n]`` of them. ``ranks``, if needed, order the rows."""

    __slots__ = ("_columns", "_ranks", "hi", "lo")

    def __init__(self, columns: Sequence[pa.Array], lo: Any, hi: Any, ranks: Sequence[Any] = ()) -> None:
        self._columns, self.lo, self.hi, self._ranks = list(columns), lo, hi, ranks

    def where(self, keep: pa.Array | None) -> RowRanges:
        """The same without the rows that a mask leaves out."""
        if keep is None or keep.true_count == len(keep):
            return self
        kept = keep.to_numpy(zero_copy_only=False)
        before = np.concatenate(([0], np.cumsum(kept)))
        ranks = self._ranks
        if len(ranks):
            ranks = [ranks[number] for number in np.flatnonzero(kept).tolist()]
        columns = [column.filter(keep) for column in self._columns]
        return RowRanges(columns, before[self.lo], before[self.hi], ranks)

    def kind(self, number: int) -> pa.DataType:
        return self._columns[number].type

    def is_numeric(self, number: int) -> bool:
        """True if numpy can compare the column's values."""
        kind = self.kind(number)
        of = pa.types
        return any((of.is_integer(kind), of.is_floating(kind), of.is_boolean(kind), of.is_temporal(kind)))

    def numbers(self, number: int) -> Any:
        """A column as a numpy array: times as integers in their own unit, decimals rounded to doubles."""
        column = self._columns[number]
        if pa.types.is_temporal(column.type):
            column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        elif pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        return column.to_numpy(zero_copy_only=False)

    def values(self, number: int) -> list[Any]:
        """A column as Python values."""
        return values_of(self._columns[number])

    def ranks(self) -> Sequence[Any]:
        return self._ranks

    def none_if_empty(self, found: list[Any]) -> list[Any]:
        full = self.hi > self.lo
        if full.all():
            return found
        return [one if some else None for one, some in zip(found, full.tolist(), strict=True)]


class Aggregator:
    """How an aggregate works: it computes a partial of each range of rows, and merges partials into states.

    ``type`` is the type of its results. ``ordered``: the rows of a range must be in order and have ranks.
    ``null_values``: the arguments that may be null in a row that counts.
    """

    type: pa.DataType
    ordered: ClassVar[bool] = False
    null_values: Sequence[int] = ()

    def partials(self, rows: RowRanges) -> list[Any]:
        """The partial of each range; None for an empty one."""
        raise NotImplementedError

    def begin(self, partial: Any) -> Any:
        """The state of a window that has seen only this partial."""
        return partial

    def merge(self, one: Any, other: Any) -> Any:
        """A state after merging another partial into it."""
        raise NotImplementedError

    def result(self, state: Any) -> Any:
        """The result of a state; None is the state of a window in which nothing counted."""
        return state

    def moving(self, rows: RowRanges) -> list[Any]:
        """The result of every range, where ranges overlap."""
        return [self.result(None if one is None else self.begin(one)) for one in self.partials(rows)]


def each_range(of: Callable[[Any], Any], values: Sequence[Any], rows: RowRanges) -> list[Any]:
    """A function of the values of each range; None for an empty one."""
    return [
        of(values[start:end]) if end > start else None
        for start, end in zip(rows.lo.tolist(), rows.hi.tolist(), strict=True)
    ]


def reduced(by: Any, values: Any, rows: RowRanges) -> list[Any]:
    """A numpy ufunc over each range; None for an empty one."""
    if not len(rows.lo):
        return []
    if not len(values):
        return [None] * len(rows.lo)
    bounds = np.empty(2 * len(rows.lo), np.int64)
    bounds[0::2], bounds[1::2] = rows.lo, rows.hi
    # reduceat needs every bound to be a valid index, including the end of all values.
    padded = np.concatenate((values, values[-1:]))
    return rows.none_if_empty(by.reduceat(padded, bounds)[0::2].tolist())
