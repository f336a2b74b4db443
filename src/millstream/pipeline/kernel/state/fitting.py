"""Converts rows that state kept with earlier columns to rows with the present columns.

A new column is null in rows that were kept before it existed. A removed column is left out. A type may be
replaced by one that has every value of the old type. Any other change is refused before a job starts.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def fitted(rows: pa.Table, fields: Iterable[pa.Field]) -> pa.Table:
    """The rows with these columns, in this order."""
    wanted = pa.schema([pa.field(field.name, field.type) for field in fields])
    if rows.schema.names == wanted.names and rows.schema.types == wanted.types:
        return rows
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(columns, schema=wanted)


def holds(new: pa.DataType, old: pa.DataType) -> bool:
    """True if a type can hold every value of another type as the same value."""
    if new == old:
        return True
    kinds = pa.types
    if kinds.is_integer(old) and kinds.is_integer(new):
        return bool(new.bit_width >= old.bit_width)
    if kinds.is_floating(old) and kinds.is_floating(new):
        return bool(new.bit_width >= old.bit_width)
    if kinds.is_decimal(old) and kinds.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if kinds.is_list(old) and kinds.is_list(new):
        return holds(new.value_type, old.value_type)
    return False


def unfit(old: pa.Schema, new: pa.Schema, keys: int, *, by_position: bool) -> list[str]:
    """The column changes that make rows in state unusable, in words. The first ``keys`` columns are those
    by which rows were divided into buckets: they can't change at all."""
    found = []
    for before, now in zip(list(old)[:keys], list(new)[:keys], strict=True):
        if before.type != now.type:
            found.append(f"the key {before.name!r} was {before.type}; now {now.type}")
    was, there = list(old)[keys:], list(new)[keys:]
    if by_position and [one.name for one in was] != [one.name for one in there]:
        names = [", ".join(one.name for one in fields) for fields in (was, there)]
        found.append(f"the columns were {names[0]}; now {names[1]}")
    return found + [
        f"the column {before.name!r} was {before.type}; now {new.field(before.name).type}"
        for before in was
        if before.name in new.names and not holds(new.field(before.name).type, before.type)
    ]
