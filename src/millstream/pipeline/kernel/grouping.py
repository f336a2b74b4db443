"""Groups rows with equal keys, using whole columns, and places the rows of each group side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import TopologyError
from millstream.pipeline.kernel.python_values import values_of

_MOST_CODES = 1 << 40  # beyond this, the codes of further columns could overflow 64 bits


def check_keys(schema: pa.Schema, keys: int) -> None:
    """Refuse keys that are lists, maps or structs, because state is looked up by key."""
    for field in list(schema)[:keys]:
        if pa.types.is_nested(field.type):
            raise ValueError(f"the key {field.name!r} is {field.type}; a key must be a plain value")


def floating_key(operator: str, column: str, kind: str, *, at: str | None = None) -> TopologyError:
    """The error for a floating point key. State is looked up by key, and NaN does not equal itself: each
    NaN would be a new key and leave its state behind forever."""
    return TopologyError(
        f"{operator!r}: the key {column!r} is {kind}. Floating-point numbers can't be keys of state,"
        f" because NaN is not equal to itself. In a .select(...) before it, use CAST({column} AS"
        " decimal(18,4)), or another scale; or CAST(... AS string) to allow NaN as a key",
        where=at,
    )


def codes(columns: Sequence[Any]) -> Any:
    """A number for each row, the same for rows that are equal in all columns. The numbers start at 0, in
    the order of first occurrence. A column is an Arrow or numpy array; nulls are equal to each other."""
    found: Any = None
    for column in columns:
        encoded, distinct = _encoded(column)
        if found is None:
            found, size = encoded, distinct
            continue
        if size * distinct > _MOST_CODES:
            found, size = _encoded(found)
        found, size = found * distinct + encoded, size * distinct
    return found if len(columns) == 1 else _encoded(found)[0]


def _encoded(column: Any) -> tuple[Any, int]:
    array = pa.array(column) if isinstance(column, np.ndarray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


class RowGroups:
    """Rows ordered so that each group is contiguous. Group ``n`` is ``order[lo[n]:hi[n]]``, where ``order``
    holds row numbers."""

    def __init__(self, of_rows: Any, within: Sequence[Any] = ()) -> None:
        """``of_rows`` is each row's group. ``within`` orders the rows of a group, most important first; by
        default they keep their order."""
        if within:
            self.order = np.lexsort([*reversed(within), of_rows])
        else:
            self.order = np.argsort(of_rows, kind="stable")
        sizes = np.bincount(of_rows)
        self.hi = np.cumsum(sizes)
        self.lo = self.hi - sizes

    def __len__(self) -> int:
        return len(self.lo)

    @property
    def any_row(self) -> Any:
        """The number of one row of each group."""
        return self.order[self.lo]


def key_tuples(table: pa.Table, keys: int, rows: Any) -> list[tuple[Any, ...]]:
    """The keys of some rows as tuples, by which state is looked up."""
    picked = table.select(list(range(keys))).take(pa.array(rows))
    return list(zip(*map(values_of, picked.columns), strict=True))
