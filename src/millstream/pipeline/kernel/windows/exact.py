"""Exact sums and averages, rounded once at the end, so that the order of adding makes no difference."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from itertools import accumulate
from typing import Any

import numpy as np

from millstream.pipeline.kernel.windows.ranges import RowRanges, each_range

_FEW = 8  # up to this many numbers are kept as they are rather than added up exactly
_OFTEN = 4  # how often ranges must cover the same values before prefix sums pay off
_DECIMALS = Context(prec=120)


def ratio(numerator: int, denominator: int) -> float:
    """The quotient, rounded once; infinity beyond the range of doubles."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if (numerator < 0) == (denominator < 0) else -math.inf


def _divided(values: Sequence[float], by: int) -> float:
    beyond = [value for value in values if not math.isfinite(value)]
    if beyond:
        return sum(beyond)
    parts = [value.as_integer_ratio() for value in values]
    scale = max(bottom for _, bottom in parts)  # all are powers of two
    return ratio(sum(top * (scale // bottom) for top, bottom in parts), scale * by)


def rounded(values: Sequence[float]) -> float:
    """The exact sum of values, rounded once; infinity or NaN beyond the range of doubles."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # an intermediate sum is too large, or there are infinities
        return _divided(values, 1)


def exactly(values: Sequence[float]) -> tuple[float, ...]:
    """A few numbers with exactly the same sum: the rounded sum, the rounded remainder, and so on."""
    if len(values) <= _FEW:
        return tuple(values)
    if not all(map(math.isfinite, values)):
        return (rounded(values),)
    parts: list[float] = []
    rest = list(values)
    while total := rounded(rest):
        if math.isinf(total):
            total = math.copysign(sys.float_info.max, total)
        parts.append(total)
        rest.append(-total)
    return tuple(parts) or (0.0,)


def mean(values: Sequence[float], count: int) -> float:
    """The exact sum of values divided by a count, rounded once."""
    return _divided(exactly(values), count)


def moving_sums(values: Any, rows: RowRanges) -> list[float | None]:
    """The exact sum of each range, rounded once; None for an empty one."""
    return _moving(values, rows, np.ones_like(rows.lo), rounded)


def moving_means(values: Any, rows: RowRanges) -> list[float | None]:
    """The exact average of each range, rounded once; None for an empty one."""
    return _moving(values, rows, rows.hi - rows.lo, lambda some: mean(some, len(some)))


def _moving(values: Any, rows: RowRanges, by: Any, of: Callable[[list[float]], float]) -> list[float | None]:
    """The sum of each range divided by its number in ``by``. ``of`` does the same for one range's values."""
    if int((rows.hi - rows.lo).sum()) <= _OFTEN * len(values) or not np.isfinite(values).all():
        return each_range(of, values.tolist(), rows)
    # As integers of one scale, the sum of a range is the difference of two prefix sums.
    fractions, exponents = np.frexp(values)
    exponents = np.where(values == 0.0, exponents.max(), exponents) - 53
    least = min(int(exponents.min()), 0)
    integers = np.ldexp(fractions, 53).astype(np.int64).tolist()
    shifts = (exponents - least).tolist()
    until = list(accumulate((n << shift for n, shift in zip(integers, shifts, strict=True)), initial=0))
    bounds = zip(rows.lo.tolist(), rows.hi.tolist(), by.tolist(), strict=True)
    scale = 1 << -least
    return [ratio(until[hi] - until[lo], scale * count) if hi > lo else None for lo, hi, count in bounds]


def decimal_sum(values: Sequence[Decimal]) -> Decimal:
    total = values[0]
    for value in values[1:]:
        total = _DECIMALS.add(total, value)
    return total


def decimal_mean(total: Decimal, count: int, scale: int) -> Decimal:
    """The average of decimals, rounded half up as in Spark."""
    return _DECIMALS.divide(total, count).quantize(Decimal(1).scaleb(-scale), "ROUND_HALF_UP", _DECIMALS)
