"""Aggregates as they are declared: functions and their arguments, as plain descriptions without Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# The functions, and the least and the greatest number of arguments of each. count_if has none here: its
# condition goes to ``Call.where``.
FUNCTIONS: Mapping[str, tuple[int, int]] = {
    "count": (0, 100),
    "count_if": (0, 0),
    "approx_count_distinct": (1, 1),
    "sum": (1, 1),
    "avg": (1, 1),
    "mean": (1, 1),
    "min": (1, 1),
    "max": (1, 1),
    "min_by": (2, 2),
    "max_by": (2, 2),
    "first": (1, 1),
    "first_value": (1, 1),
    "last": (1, 1),
    "last_value": (1, 1),
    "any_value": (1, 1),
    "bool_and": (1, 1),
    "every": (1, 1),
    "bool_or": (1, 1),
    "any": (1, 1),
    "some": (1, 1),
    "variance": (1, 1),
    "var_samp": (1, 1),
    "var_pop": (1, 1),
    "std": (1, 1),
    "stddev": (1, 1),
    "stddev_samp": (1, 1),
    "stddev_pop": (1, 1),
    "collect_list": (1, 1),
    "array_agg": (1, 1),
    "collect_set": (1, 1),
}
# DISTINCT makes these count, add up or list only distinct values. It makes no difference to the others.
OF_DISTINCT = frozenset(("count", "sum", "avg", "mean", "collect_list", "array_agg"))
_SAME_IF_DISTINCT = ("min", "max", "bool_and", "every", "bool_or", "any", "some", "collect_set")
CAN_BE_DISTINCT = OF_DISTINCT.union(_SAME_IF_DISTINCT)


@dataclass(frozen=True, slots=True)
class PythonAggregate:
    """The user's own aggregate: the SQL expressions whose values it takes, and the type that it returns."""

    name: str
    arguments: tuple[str, ...]
    returns: str  # Spark's name of the type
    type: Any  # the same type in Arrow
    whole: Callable[..., Any] | None = None  # a function of all values
    folding: Any = None  # or an object with zero, add and result

    def shape(self) -> dict[str, object]:
        return {"python": self.name, "of": list(self.arguments), "returns": self.returns}


@dataclass(frozen=True, slots=True)
class Call:
    """One aggregate: a function of input columns, or the user's own."""

    name: str  # of the result column
    function: str
    arguments: tuple[str, ...] = ()
    where: str | None = None  # a boolean column: only rows where it is true count
    distinct: bool = False
    ignore_nulls: bool = False
    python: PythonAggregate | None = None
