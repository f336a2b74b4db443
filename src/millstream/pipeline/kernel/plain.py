"""Rows of an Arrow table as plain Python, for programs that keep rows or go through them one by one.

Times are microseconds since 1970: Arrow takes them back as such, and they are made and compared many times
faster than datetimes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def column_of(column: pa.ChunkedArray) -> list[Any]:
    plain: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return plain


def rows_of(table: pa.Table, start: int = 0, end: int | None = None) -> list[Row]:
    """Every row, or some columns of it, as a tuple."""
    columns = [column_of(column) for column in table.columns[start:end]]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
