"""What a match tells: values of the events that its steps took.

A measure is written ``sum(small.eur)``, ``count(small)`` or ``big.eur``, which is the last one's. Nulls are
left out as SQL leaves them out; of a step that took nothing, all but the count are null. More than that is
for the SQL that follows: a match without measures has all events of every step, as an array of structs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

FUNCTIONS = ("first", "last", "sum", "count", "min", "max", "avg", "list")
_MEASURE = re.compile(r"(?:(\w+)\s*\(\s*)?(\w+)(?:\.(\w+|`[^`]+`))?(\s*\))?")

Taken = Sequence[Sequence[Sequence[Any]]]  # by step, the events it took, each the values of its columns


class MeasureError(ValueError):
    """Not a measure, or none that can be worked out; the message says why."""


@dataclass(frozen=True, slots=True)
class Measure:
    """``function`` of a column of the events that a step took; without a column, of the events."""

    function: str
    step: str
    column: str | None

    @property
    def text(self) -> str:
        return f"{self.function}({self.step}{'.' + self.column if self.column else ''})"


def parsed(text: object, steps: Sequence[str]) -> Measure:
    """The measure that is written so."""
    found = _MEASURE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or bool(found[1]) != bool(found[4]):
        raise MeasureError(f"{text!r} is not a measure; write sum(step.column), count(step) or step.column")
    function, step, column = found[1] or "last", found[2], found[3]
    if function.lower() not in FUNCTIONS:
        raise MeasureError(f"{text!r}: {function} is not one of {', '.join(FUNCTIONS)}")
    if step not in steps:
        raise MeasureError(f"{text!r}: there is no step {step!r}; the steps are {', '.join(steps)}")
    if column is None and function.lower() != "count":
        raise MeasureError(f"{text!r}: of which column? Write it as {step}.column")
    return Measure(function.lower(), step, column.strip("`") if column else None)


def type_of(measure: Measure, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """The Arrow type of its values."""
    if measure.function == "count":
        return pa.int64()
    assert measure.column is not None
    kind = columns[measure.column]
    if measure.function == "list":
        return pa.list_(kind)
    if measure.function not in ("sum", "avg"):
        return kind
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale if measure.function == "sum" else min(38, kind.scale + 4))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        whole = pa.types.is_integer(kind) and measure.function == "sum"
        return pa.int64() if whole else pa.float64()
    raise MeasureError(f"{measure.text}: {measure.column} is {kind}, of which there is no {measure.function}")


def worked_out(measure: Measure, step: int, place: int, kind: pa.DataType) -> Callable[[Taken], Any]:
    """A function that works the measure out; ``place`` is where the column stands in an event."""
    work = _WORK[measure.function]
    scale = kind.scale if pa.types.is_decimal(kind) else None

    def value(taken: Taken) -> Any:
        values = [event[place] for event in taken[step]] if measure.column is not None else taken[step]
        result = work(values)
        return result if scale is None or result is None else round(result, scale)

    return value


def _known(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


_WORK: dict[str, Callable[[Sequence[Any]], Any]] = {
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "sum": lambda values: sum(known) if (known := _known(values)) else None,
    "count": lambda values: len(_known(values)),
    "min": lambda values: min(_known(values), default=None),
    "max": lambda values: max(_known(values), default=None),
    "avg": lambda values: sum(known) / len(known) if (known := _known(values)) else None,
    "list": list,
}
