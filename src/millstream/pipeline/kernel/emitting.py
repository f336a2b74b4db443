"""Rows that a user's function gives: by name, checked where they are given, so that the error is at its line.

Arrow would refuse a value that does not fit its column as well, but for a whole batch, long after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa


def _tried(value: Any) -> Any:
    """Stands for a Python type of which only Arrow can say whether it fits."""
    raise AssertionError(value)


class RowMaker:
    """Makes rows of one channel. ``filled`` are columns that are known where they are not given, the keys,
    with their places; ``time`` is the column that the row's own time goes to."""

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
            raise TypeError(f"there is no column {strange[0]!r} to give; there are {', '.join(self._names)}")
        if self._time is not None:
            if self._names[self._time] in given:
                raise TypeError(
                    f"{self._names[self._time]!r} is the time of the result, and filled by itself"
                )
            values[self._time] = time
        return tuple(values)


def _ready(kind: pa.DataType) -> dict[type, Callable[[Any], Any] | None]:
    """The Python types whose values fit, and what is done with them first; others are tried on Arrow."""
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
        value.encode()  # half of a surrogate pair is no text
    return value


def _fitted(name: str, value: Any, kind: pa.DataType) -> Any:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}={value!r} is {type(value).__name__}, and the column is {kind}") from None
    return value
