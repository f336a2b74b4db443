"""Measures of a pattern match: values computed from the events that its steps took.

A measure is written ``sum(small.eur)``, ``count(small)`` or ``big.eur``, which is the value of the last
event. Nulls are left out where SQL leaves them out. For a step that took nothing, a count is 0, a list is
empty, and all other measures are null. Anything more is left to the SQL that follows: a match without
measures has all events of every step, as an array of structs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.pipeline.kernel.windows.exact import decimal_mean, decimal_sum, mean, rounded

FUNCTIONS = ("first", "last", "sum", "count", "min", "max", "avg", "list")
_MEASURE = re.compile(r"(?:(\w+)\s*\(\s*)?(\w+)(?:\.(\w+|`[^`]+`))?(\s*\))?")

Taken = Sequence[Sequence[Sequence[Any]]]  # by step: the events it took, each as its column values


class MeasureError(ValueError):
    """Not a measure, or one that can't be computed; the message says why."""


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
    """Parse the text of a measure."""
    found = _MEASURE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or bool(found[1]) != bool(found[4]):
        raise MeasureError(f"{text!r} is not a measure; write sum(step.column), count(step) or step.column")
    function, step, column = found[1] or "last", found[2], found[3]
    if function.lower() not in FUNCTIONS:
        raise MeasureError(f"{text!r}: {function} is not one of {', '.join(FUNCTIONS)}")
    if step not in steps:
        raise MeasureError(f"{text!r}: there is no step {step!r}; the steps are {', '.join(steps)}")
    if column is None and function.lower() != "count":
        raise MeasureError(f"{text!r}: name the column, as in {step}.column")
    return Measure(function.lower(), step, column.strip("`") if column else None)


def type_of(measure: Measure, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """The Arrow type of a measure's values."""
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
    raise MeasureError(
        f"{measure.text}: {measure.column} is {kind}, and {measure.function} does not work on that"
    )


def worked_out(measure: Measure, step: int, place: int, kind: pa.DataType) -> Callable[[Taken], Any]:
    """A function that computes the measure; ``place`` is the position of the column in an event."""
    work = _WORK[measure.function]

    def value(taken: Taken) -> Any:
        values = [event[place] for event in taken[step]] if measure.column is not None else taken[step]
        return work(values, kind)

    return value


def _of_known(work: Callable[[list[Any], pa.DataType], Any]) -> Callable[[Sequence[Any], pa.DataType], Any]:
    def of(values: Sequence[Any], kind: pa.DataType) -> Any:
        known = [value for value in values if value is not None]
        return work(known, kind) if known else None

    return of


def _sum(values: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return decimal_sum(values)
    return rounded(values) if pa.types.is_floating(kind) else sum(values)


def _avg(values: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return decimal_mean(decimal_sum(values), len(values), kind.scale)
    return mean(values, len(values)) if isinstance(values[0], float) else sum(values) / len(values)


def _in_order(value: Any) -> tuple[bool, Any]:
    return value != value, value  # NaN is greater than every other value, as in Spark


_WORK: dict[str, Callable[[Sequence[Any], pa.DataType], Any]] = {
    "first": lambda values, _: values[0] if values else None,
    "last": lambda values, _: values[-1] if values else None,
    "sum": _of_known(_sum),
    "count": lambda values, _: sum(value is not None for value in values),
    "min": _of_known(lambda values, _: min(values, key=_in_order)),
    "max": _of_known(lambda values, _: max(values, key=_in_order)),
    "avg": _of_known(_avg),
    "list": lambda values, _: list(values),
}
