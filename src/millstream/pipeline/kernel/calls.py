"""Aggregates as they are declared: which there are, and of what. Plain descriptions; no Arrow is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# The functions, and how many arguments each takes at least and at most. The argument of count_if is a
# condition, which is another thing.
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
# With DISTINCT: of these the distinct values are counted, added up or listed; others don't change by it.
OF_DISTINCT = frozenset(("count", "sum", "avg", "mean", "collect_list", "array_agg"))
_SAME_IF_DISTINCT = ("min", "max", "bool_and", "every", "bool_or", "any", "some", "collect_set")
CAN_BE_DISTINCT = OF_DISTINCT.union(_SAME_IF_DISTINCT)


@dataclass(frozen=True, slots=True)
class PythonAggregate:
    """The user's own: SQL expressions whose values it takes, and the type that it gives."""

    name: str
    arguments: tuple[str, ...]
    returns: str  # Spark's name of the type
    type: Any  # and Arrow's
    whole: Callable[..., Any] | None = None  # a function of all values
    folding: Any = None  # or something with zero, add and result

    def shape(self) -> dict[str, object]:
        return {"python": self.name, "of": list(self.arguments), "returns": self.returns}


@dataclass(frozen=True, slots=True)
class Call:
    """One aggregate: a function of columns of the input, or the user's own."""

    name: str  # of the result
    function: str
    arguments: tuple[str, ...] = ()
    where: str | None = None  # a boolean column: which rows count
    distinct: bool = False
    ignore_nulls: bool = False
    python: PythonAggregate | None = None
