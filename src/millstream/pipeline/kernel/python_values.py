"""Converts Arrow rows to plain Python, for programs that keep rows or go through them one by one.

Times become microseconds since 1970. Arrow accepts these as times, and they are made and compared many
times faster than datetimes. Users see datetimes. Arrow takes 4 µs to make each of those, so ``values_of``
makes them itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.event import EPOCH

Row = tuple[Any, ...]


def column_of(column: pa.ChunkedArray) -> list[Any]:
    plain: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return plain


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column as users see it, with times as datetimes."""
    if not pa.types.is_timestamp(column.type):
        plain: list[Any] = column.to_pylist()
        return plain
    since = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).fill_null(0)
    epoch = EPOCH if column.type.tz is not None else EPOCH.replace(tzinfo=None)
    times: list[Any] = list(
        map(epoch.__add__, since.to_numpy(zero_copy_only=False).view("timedelta64[us]").tolist())
    )
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            times[row] = None
    return times


def rows_of(table: pa.Table, start: int = 0, end: int | None = None) -> list[Row]:
    """Every row, or some of its columns, as a tuple."""
    columns = [column_of(column) for column in table.columns[start:end]]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
