"""Builds the rows that a user's function emits, and checks each value where the function emits it.

So an error points to the user's own line. Arrow would also refuse a value that does not fit its column, but
only for a whole batch, much later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa


def _tried(value: Any) -> Any:
    """Marks Python types that only Arrow can check. It is never called."""
    raise AssertionError(value)


class RowMaker:
    """Builds the rows of one channel. ``filled`` are the columns that are filled in if they are not given
    (the keys), with their positions in the key. ``time`` is the column that receives the row's time."""

    def __init__(self, schema: pa.Schema, filled: Mapping[str, int], time: str | None) -> None:
        self._names = tuple(schema.names)
        self._columns = [
            (field.name, _ready(field.type), field.type, filled.get(field.name)) for field in schema
        ]
        self._time = schema.names.index(time) if time is not None else None

    def row(self, given: Mapping[str, Any], key: tuple[Any, ...], time: int | None) -> tuple[Any, ...]:
        values: list[Any] = []
        used = 0
        for name, ready, kind, place in self._columns:
            if name in given:
                used += 1
                value = given[name]
                if value is not None:
                    change = ready.get(type(value), _tried)
                    if change is _tried:
                        value = _fitted(name, value, kind)
                    elif change is not None:
                        value = change(value)
                values.append(value)
            else:
                values.append(None if place is None else key[place])
        if used != len(given):
            strange = [name for name in given if name not in self._names]
            raise TypeError(
                f"the output has no column {strange[0]!r}; its columns are {', '.join(self._names)}"
            )
        if self._time is not None:
            if self._names[self._time] in given:
                raise TypeError(
                    f"{self._names[self._time]!r} is the time of the result and is filled in automatically;"
                    " don't pass it"
                )
            values[self._time] = time
        return tuple(values)


def _ready(kind: pa.DataType) -> dict[type, Callable[[Any], Any] | None]:
    """The Python types whose values fit, each with its check or conversion. Arrow tries all other types."""
    if pa.types.is_integer(kind):
        return {int: _whole(kind.bit_width)}
    if pa.types.is_floating(kind):
        return {float: None, int: float}
    if pa.types.is_boolean(kind):
        return {bool: None}
    if pa.types.is_string(kind):
        return {str: _text}
    if pa.types.is_binary(kind):
        return {bytes: None}
    if pa.types.is_timestamp(kind):
        return {datetime: None}
    if pa.types.is_date(kind):
        return {date: None}
    return {}


def _whole(bits: int) -> Callable[[int], int]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def fits(value: int) -> int:
        if not least <= value <= most:
            raise OverflowError(f"{value} is too large for {bits} bits")
        return value

    return fits


def _text(value: str) -> str:
    if not value.isascii():
        value.encode()  # refuses half of a surrogate pair, which is not text
    return value


def _fitted(name: str, value: Any, kind: pa.DataType) -> Any:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}={value!r} is {type(value).__name__}, but the column is {kind}") from None
    return value
