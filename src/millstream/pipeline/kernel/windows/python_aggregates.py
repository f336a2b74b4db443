"""Runs the user's own aggregates, which are written in Python.

One form is a function of all values of a window, which are kept until the window closes. The other form
starts with ``zero()``, takes each row with ``add(state, ...)`` and returns ``result(state)``. Only its
state is kept, which must be plain Python. Rows in which an argument is null don't count, as for SQL's
aggregates.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millstream.pipeline.kernel.windows.calls import PythonAggregate
from millstream.pipeline.kernel.windows.ranges import Aggregator, RowRanges, each_range


class FunctionAggregator(Aggregator):
    """A function of all values, in time order."""

    ordered = True

    def __init__(self, declared: PythonAggregate, kind: pa.DataType) -> None:
        assert declared.whole is not None
        self.type, self._function, self._arguments = kind, declared.whole, len(declared.arguments)

    def partials(self, rows: RowRanges) -> list[Any]:
        values = [rows.values(number) for number in range(self._arguments)]
        return each_range(list, list(zip(rows.ranks(), *values, strict=True)), rows)

    def merge(self, one: Any, other: Any) -> Any:
        return sorted([*one, *other], key=_rank)

    def result(self, state: Any) -> Any:
        if state is None:
            return None
        _, *values = zip(*state, strict=True)
        return self._function(*map(list, values))


def _rank(row: tuple[Any, ...]) -> Any:
    return row[0]


class FoldingAggregator(Aggregator):
    """A state to which each row is added."""

    def __init__(self, declared: PythonAggregate, kind: pa.DataType) -> None:
        self.type, self._of, self._arguments = kind, declared.folding, len(declared.arguments)

    def partials(self, rows: RowRanges) -> list[Any]:
        values = [rows.values(number) for number in range(self._arguments)]
        return each_range(list, list(zip(*values, strict=True)), rows)

    def begin(self, partial: Any) -> Any:
        return self.merge((self._of.zero(),), partial)

    def merge(self, one: Any, other: Any) -> Any:
        (state,), add = one, self._of.add
        for values in other:
            state = add(state, *values)
        return (state,)  # in a tuple, because the user's state may be None

    def result(self, state: Any) -> Any:
        return None if state is None else self._of.result(state[0])
