"""Rows that were kept with the columns of yesterday, as rows of today's.

A column that is new is null in rows that were kept before it was there; one that is gone is left out; a type
that has every value of the old one takes its place. Anything else is refused before a job starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from millstream.pipeline.kernel.state import Store

KEPT_BESIDE = "clock"  # the container of what a bucket keeps that is no state of a program


def fitted(rows: pa.Table, fields: Iterable[pa.Field]) -> pa.Table:
    """Rows with these columns, in this order."""
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


class Layouts:
    """The columns that tuples were kept with, by number: a tuple tells the number of its own. So nothing has
    to be written again when the columns change, wherever the state is kept."""

    def __init__(self, store: Store, name: str, names: Sequence[str]) -> None:
        noted = store.in_memory(KEPT_BESIDE)
        self._known: list[list[str]] = list(noted.get(f"columns of {name}") or [])
        self._names = list(names)
        if self._names not in self._known:
            self._known.append(self._names)
            noted.put(f"columns of {name}", self._known)
        self.current = self._known.index(self._names)

    def fitted(self, values: Sequence[Any], number: int) -> tuple[Any, ...]:
        """Values of an older layout, as those of now."""
        there = dict(zip(self._known[number], values, strict=True))
        return tuple(there.get(name) for name in self._names)


def holds(new: pa.DataType, old: pa.DataType) -> bool:
    """Whether a type has every value of another, as the same value."""
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
    """What of an input's columns changed so that rows in state can't become rows of now, in words. The first
    ``keys`` are those that rows were divided by: they can't change at all."""
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
