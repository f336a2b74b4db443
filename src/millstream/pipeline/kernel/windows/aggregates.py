"""Computes the aggregates of a window's rows, with Spark's results, types and rules for nulls.

Rules:

- Aggregates work on whole columns. From each batch an aggregate computes a *partial* for every group of
  rows at once. Then one merge per group brings the partial into the state of the group's window.
- The order of merges never changes a result. Sums of doubles are kept exactly and rounded once, when the
  result is asked for. Aggregates that depend on order (first, last, lists) use the times of the rows and
  their positions in the log, not their order of arrival.
- None means that nothing counted: it is the partial of a group in which no row counts, and the state of a
  window that has seen only such groups. Each aggregate decides what None gives: null, or 0 for counts.

State is plain Python, so it can be stored anywhere. The state of a window is small, except for distinct
values, sets and lists, which keep every value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.pipeline.kernel.windows.calls import OF_DISTINCT, Call
from millstream.pipeline.kernel.windows.exact import (
    decimal_mean,
    decimal_sum,
    exactly,
    mean,
    moving_means,
    moving_sums,
    rounded,
)
from millstream.pipeline.kernel.windows.python_aggregates import FoldingAggregator, FunctionAggregator
from millstream.pipeline.kernel.windows.ranges import Aggregator, RowRanges, each_range, reduced

_LEAST_LONG, _MOST_LONG = -(1 << 63), (1 << 63) - 1


# ---- numbers -------------------------------------------------------------------------------------------


class Count(Aggregator):
    type = pa.int64()

    def partials(self, rows: RowRanges) -> list[Any]:
        counts: list[Any] = (rows.hi - rows.lo).tolist()
        return counts

    def merge(self, one: Any, other: Any) -> Any:
        return one + other

    def result(self, state: Any) -> Any:
        return state or 0


class SumOfIntegers(Aggregator):
    type = pa.int64()

    def partials(self, rows: RowRanges) -> list[Any]:
        values = rows.numbers(0).astype(np.int64)
        # numpy's sums overflow silently at 64 bits; Python's integers don't.
        if len(values) and max(abs(int(values.min())), abs(int(values.max()))) * len(values) > _MOST_LONG:
            values = values.astype(object)
        until = np.concatenate((np.zeros(1, values.dtype), np.cumsum(values)))
        return rows.none_if_empty((until[rows.hi] - until[rows.lo]).tolist())

    def merge(self, one: Any, other: Any) -> Any:
        return one + other

    def result(self, state: Any) -> Any:
        if state is not None and not _LEAST_LONG <= state <= _MOST_LONG:
            raise OverflowError(
                f"a sum is {state}, which overflows bigint; sum decimals instead, CAST(... AS decimal(38,0))"
            )
        return state


class SumOfDoubles(Aggregator):
    """The state is a few doubles with exactly the sum of the values; see ``exactly``."""

    type = pa.float64()

    def partials(self, rows: RowRanges) -> list[Any]:
        return each_range(exactly, rows.numbers(0).astype(np.float64).tolist(), rows)

    def merge(self, one: Any, other: Any) -> Any:
        return exactly(one + other)

    def result(self, state: Any) -> Any:
        return None if state is None else rounded(state)

    def moving(self, rows: RowRanges) -> list[Any]:
        return moving_sums(rows.numbers(0).astype(np.float64), rows)


class SumOfDecimals(Aggregator):
    def __init__(self, kind: pa.DataType) -> None:
        self.of = kind
        self.type = pa.decimal128(min(38, kind.precision + 10), kind.scale)

    def partials(self, rows: RowRanges) -> list[Any]:
        return each_range(decimal_sum, rows.values(0), rows)

    def merge(self, one: Any, other: Any) -> Any:
        return decimal_sum((one, other))

    def result(self, state: Any) -> Any:
        if state is not None and len(state.as_tuple().digits) > self.type.precision:
            raise OverflowError(f"a sum is {state}, which overflows {_spark_name(self.type)}")
        return state


class Average(Aggregator):
    """An average, kept as a sum and a count."""

    def __init__(self, total: SumOfIntegers | SumOfDoubles | SumOfDecimals) -> None:
        self._total = total
        self.type = pa.float64()
        if isinstance(total, SumOfDecimals):
            precision, scale = total.of.precision + 4, total.of.scale + 4
            self.type = pa.decimal128(min(38, precision), min(38, scale))

    def partials(self, rows: RowRanges) -> list[Any]:
        counts = (rows.hi - rows.lo).tolist()
        totals = self._total.partials(rows)
        return [None if total is None else (total, n) for total, n in zip(totals, counts, strict=True)]

    def merge(self, one: Any, other: Any) -> Any:
        return self._total.merge(one[0], other[0]), one[1] + other[1]

    def result(self, state: Any) -> Any:
        if state is None:
            return None
        return self._divided(*state)

    def _divided(self, total: Any, count: int) -> Any:
        if isinstance(self._total, SumOfDoubles):
            return mean(total, count)
        if isinstance(total, Decimal):
            return decimal_mean(total, count, self.type.scale)
        return total / count

    def moving(self, rows: RowRanges) -> list[Any]:
        if isinstance(self._total, SumOfDoubles):
            return moving_means(rows.numbers(0).astype(np.float64), rows)
        counts = (rows.hi - rows.lo).tolist()
        totals = self._total.moving(rows)
        return [None if n == 0 else self._divided(total, n) for total, n in zip(totals, counts, strict=True)]


class Variance(Aggregator):
    """Variance or standard deviation, from exact sums: it keeps differences that doubles would lose."""

    type = pa.float64()

    def __init__(self, *, sample: bool, root: bool) -> None:
        self._sample, self._root = sample, root

    def partials(self, rows: RowRanges) -> list[Any]:
        values = rows.numbers(0).astype(np.float64)
        with np.errstate(all="ignore"):
            square = values * values
            # Dekker's product: the rounding error of the square is itself a double.
            far = values * 134217729.0
            high = far - (far - values)
            low = values - high
            lost = ((high * high - square) + 2 * high * low) + low * low
        lost = np.where(np.isfinite(lost), lost, 0.0)
        sums = each_range(exactly, values.tolist(), rows)
        squares = zip(square.tolist(), lost.tolist(), strict=True)
        both = each_range(lambda pairs: exactly([x for pair in pairs for x in pair]), list(squares), rows)
        counts = (rows.hi - rows.lo).tolist()
        return rows.none_if_empty(list(zip(counts, sums, both, strict=True)))

    def merge(self, one: Any, other: Any) -> Any:
        return (
            one[0] + other[0],
            exactly(one[1] + other[1]),
            exactly(one[2] + other[2]),
        )

    def result(self, state: Any) -> Any:
        if state is None:
            return None
        count, sums, squares = state
        divisor = count - 1 if self._sample else count
        if divisor == 0:
            return None
        if not all(map(math.isfinite, (*sums, *squares))):
            return math.nan
        total, square = sum(map(Fraction, sums)), sum(map(Fraction, squares))
        variance = float((square - total * total / count) / divisor)
        return math.sqrt(variance) if self._root else variance


# ---- one of the values ---------------------------------------------------------------------------------


class Extreme(Aggregator):
    """The least or the greatest value. NaN is greater than every other value, as in Spark."""

    def __init__(self, kind: pa.DataType, *, greatest: bool) -> None:
        self.type, self._greatest = kind, greatest

    def partials(self, rows: RowRanges) -> list[Any]:
        if rows.is_numeric(0):
            return reduced(np.maximum if self._greatest else np.fmin, rows.numbers(0), rows)
        return each_range(max if self._greatest else min, rows.values(0), rows)

    def merge(self, one: Any, other: Any) -> Any:
        if self._greatest:
            return other if other != other or other > one else one
        return other if one != one or other < one else one


class ValueAtExtreme(Aggregator):
    """The value beside the least or the greatest value of another column; the earliest if several tie."""

    ordered = True
    null_values = (0,)

    def __init__(self, kind: pa.DataType, *, greatest: bool) -> None:
        self.type, self._greatest = kind, greatest

    def partials(self, rows: RowRanges) -> list[Any]:
        by, ranks = rows.values(1), rows.ranks()
        if pa.types.is_floating(rows.kind(1)):
            by = [(value != value, 0.0 if value != value else value) for value in by]
        pick = max if self._greatest else min  # both return the first of equals
        at = each_range(lambda places: pick(places, key=by.__getitem__), range(len(by)), rows)
        values = rows.values(0)
        return [None if i is None else (by[i], ranks[i], values[i]) for i in at]

    def merge(self, one: Any, other: Any) -> Any:
        if one[0] == other[0]:
            return other if other[1] < one[1] else one
        return other if (other[0] > one[0]) == self._greatest else one

    def result(self, state: Any) -> Any:
        return None if state is None else state[2]


class FirstOrLastValue(Aggregator):
    """The first or the last value in time order."""

    ordered = True

    def __init__(self, kind: pa.DataType, *, last: bool, ignore_nulls: bool) -> None:
        self.type, self._last = kind, last
        self.null_values = () if ignore_nulls else (0,)

    def partials(self, rows: RowRanges) -> list[Any]:
        ranks, values = rows.ranks(), rows.values(0)
        at = (rows.hi - 1 if self._last else rows.lo).tolist()
        full = (rows.hi > rows.lo).tolist()
        return [(ranks[i], values[i]) if some else None for i, some in zip(at, full, strict=True)]

    def merge(self, one: Any, other: Any) -> Any:
        return other if (other[0] > one[0]) == self._last else one

    def result(self, state: Any) -> Any:
        return None if state is None else state[1]


# ---- many of the values --------------------------------------------------------------------------------


class CollectedValues(Aggregator):
    """All values in time order."""

    ordered = True

    def __init__(self, kind: pa.DataType) -> None:
        self.type = pa.list_(kind)

    def partials(self, rows: RowRanges) -> list[Any]:
        return each_range(list, list(zip(rows.ranks(), rows.values(0), strict=True)), rows)

    def merge(self, one: Any, other: Any) -> Any:
        return sorted([*one, *other], key=_rank)

    def result(self, state: Any) -> Any:
        return [] if state is None else [value for _, value in state]


def _rank(pair: tuple[Any, Any]) -> Any:
    return pair[0]


class Distinct(Aggregator):
    """The distinct values, or an aggregate of them. NaN is kept as None, as it does not equal itself."""

    def __init__(self, kinds: Sequence[pa.DataType], of: Aggregator | None) -> None:
        self._kinds, self._of = kinds, of
        self.type = pa.list_(kinds[0]) if of is None else of.type

    def partials(self, rows: RowRanges) -> list[Any]:
        columns = []
        for number, kind in enumerate(self._kinds):
            values = rows.values(number)
            if pa.types.is_floating(kind):
                values = [None if value != value else value for value in values]
            columns.append(values)
        return each_range(set, columns[0] if len(columns) == 1 else list(zip(*columns, strict=True)), rows)

    def begin(self, partial: Any) -> Any:
        return set(partial)  # a copy: several windows may begin with the same partial

    def merge(self, one: Any, other: Any) -> Any:
        one |= other
        return one

    def result(self, state: Any) -> Any:
        if isinstance(self._of, Count):
            return len(state or ())
        found = sorted(value for value in state or () if value is not None)
        if state and None in state:
            found.append(math.nan)
        if self._of is None:
            return found
        if not found:
            return self._of.result(None)
        of_found = RowRanges([pa.array(found, self._kinds[0])], np.zeros(1, int), np.array([len(found)]))
        return self._of.result(self._of.partials(of_found)[0])


# ---- by name -------------------------------------------------------------------------------------------


def _number(kind: pa.DataType) -> SumOfIntegers | SumOfDoubles | SumOfDecimals:
    if pa.types.is_integer(kind):
        return SumOfIntegers()
    if pa.types.is_floating(kind):
        return SumOfDoubles()
    if pa.types.is_decimal(kind):
        return SumOfDecimals(kind)
    raise TypeError("numbers")


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_nested(kind):
        raise TypeError("plain values")
    return kind


def _boolean(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_boolean(kind):
        raise TypeError("booleans")
    return kind


Make = Callable[[Call, Sequence[pa.DataType]], Aggregator]


def _variance(*, sample: bool, root: bool) -> Make:
    def make(call: Call, kinds: Sequence[pa.DataType]) -> Aggregator:
        _number(kinds[0])
        return Variance(sample=sample, root=root)

    return make


def _extreme(greatest: bool, check: Callable[[pa.DataType], pa.DataType] = _plain) -> Make:
    return lambda call, kinds: Extreme(check(kinds[0]), greatest=greatest)


def _at_extreme(greatest: bool) -> Make:
    def make(call: Call, kinds: Sequence[pa.DataType]) -> Aggregator:
        _plain(kinds[1])
        return ValueAtExtreme(kinds[0], greatest=greatest)

    return make


def _at_end(last: bool) -> Make:
    return lambda call, kinds: FirstOrLastValue(kinds[0], last=last, ignore_nulls=call.ignore_nulls)


def _distinct_count(call: Call, kinds: Sequence[pa.DataType]) -> Aggregator:
    return Distinct([_plain(kind) for kind in kinds], Count())


_MAKE: Mapping[str, Make] = {
    "count": lambda call, kinds: Count(),
    "count_if": lambda call, kinds: Count(),
    "approx_count_distinct": _distinct_count,
    "sum": lambda call, kinds: _number(kinds[0]),
    **dict.fromkeys(("avg", "mean"), lambda call, kinds: Average(_number(kinds[0]))),
    "min": _extreme(False),
    "max": _extreme(True),
    "min_by": _at_extreme(False),
    "max_by": _at_extreme(True),
    **dict.fromkeys(("first", "first_value", "any_value"), _at_end(False)),
    **dict.fromkeys(("last", "last_value"), _at_end(True)),
    **dict.fromkeys(("bool_and", "every"), _extreme(False, _boolean)),
    **dict.fromkeys(("bool_or", "any", "some"), _extreme(True, _boolean)),
    **dict.fromkeys(("variance", "var_samp"), _variance(sample=True, root=False)),
    "var_pop": _variance(sample=False, root=False),
    **dict.fromkeys(("std", "stddev", "stddev_samp"), _variance(sample=True, root=True)),
    "stddev_pop": _variance(sample=False, root=True),
    **dict.fromkeys(("collect_list", "array_agg"), lambda call, kinds: CollectedValues(kinds[0])),
    "collect_set": lambda call, kinds: Distinct([_plain(kinds[0])], None),
}


def machine(call: Call, schema: pa.Schema) -> Aggregator:
    """The machine that computes an aggregate of columns with these types. ValueError if there is none."""
    kinds = [schema.field(name).type for name in call.arguments]
    if call.python is not None:
        kind = call.python.type
        return (
            FunctionAggregator(call.python, kind)
            if call.python.whole
            else FoldingAggregator(call.python, kind)
        )
    try:
        made = _MAKE[call.function](call, kinds)
        if call.distinct and call.function in OF_DISTINCT:
            return Distinct(
                [_plain(kind) for kind in kinds], None if isinstance(made, CollectedValues) else made
            )
    except TypeError as wanted:
        shown = ", ".join(_spark_name(kind) for kind in kinds)
        raise ValueError(f"{call.function} of {shown}: it is of {wanted}") from None
    return made


def _spark_name(kind: pa.DataType) -> str:
    names = {"int32": "int", "int64": "bigint", "bool": "boolean", "date32[day]": "date"}
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return names.get(str(kind), "timestamp" if pa.types.is_timestamp(kind) else str(kind))


class Aggregates:
    """All aggregates of a window."""

    def __init__(self, calls: Sequence[Call], schema: pa.Schema) -> None:
        self._calls = calls
        self._machines = [machine(call, schema) for call in calls]
        self.fields = [pa.field(call.name, one.type) for call, one in zip(calls, self._machines, strict=True)]
        self.ordered = any(one.ordered for one in self._machines)

    def partials(self, table: pa.Table, lo: Any, hi: Any, ranks: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The partials for each range of rows. If ``ordered``, the rows of a range must be in order."""
        found = [one.partials(rows) for one, rows in self._dense(table, lo, hi, ranks)]
        return list(zip(*found, strict=True))

    def fold(self, state: tuple[Any, ...] | None, partial: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state with a partial merged in. The given state must not be used again."""
        if state is None:
            return tuple(
                None if new is None else one.begin(new)
                for one, new in zip(self._machines, partial, strict=True)
            )
        return tuple(
            [
                old if new is None else one.begin(new) if old is None else one.merge(old, new)
                for one, old, new in zip(self._machines, state, partial, strict=True)
            ]
        )

    def results(self, states: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
        """The results of each aggregate, for all states."""
        columns = zip(*states, strict=True) if states else [()] * len(self._machines)
        return [
            [one.result(state) for state in column]
            for one, column in zip(self._machines, columns, strict=True)
        ]

    def moving(self, table: pa.Table, lo: Any, hi: Any, ranks: Sequence[Any]) -> list[list[Any]]:
        """The results of each aggregate, for ranges that overlap."""
        return [one.moving(rows) for one, rows in self._dense(table, lo, hi, ranks)]

    def array(self, number: int, values: list[Any]) -> pa.Array:
        """The results of one aggregate as a column."""
        field = self.fields[number]
        try:
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ValueError(
                f"aggregate {field.name}= returned a value that is not {_spark_name(field.type)}: {error}"
            ) from None

    def _dense(
        self, table: pa.Table, lo: Any, hi: Any, ranks: Sequence[Any]
    ) -> list[tuple[Aggregator, RowRanges]]:
        found = []
        for call, one in zip(self._calls, self._machines, strict=True):
            columns = [_whole(table[name]) for name in call.arguments]
            keep: Any = None
            for number, column in enumerate(columns):
                if column.null_count and number not in one.null_values:
                    valid = column.is_valid()
                    keep = valid if keep is None else pc.and_(keep, valid)
            if call.where is not None:
                chosen = _whole(table[call.where]).fill_null(False)
                keep = chosen if keep is None else pc.and_(keep, chosen)
            found.append((one, RowRanges(columns, lo, hi, ranks).where(keep)))
        return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
