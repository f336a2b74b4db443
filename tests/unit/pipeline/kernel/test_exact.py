"""Sums and averages of doubles are exact and rounded once, in every kind of window and in patterns."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.patterns.measures import Measure, worked_out
from millstream.pipeline.kernel.windows.aggregates import Aggregates
from millstream.pipeline.kernel.windows.calls import Call
from millstream.pipeline.kernel.windows.exact import exactly, mean, rounded

DOUBLES = st.floats(allow_nan=False, allow_infinity=False, width=64)
SCHEMA = pa.schema([("x", pa.float64())])
BOTH = (Call("total", "sum", ("x",)), Call("mean", "avg", ("x",)))
# Rounded, the sum is 1.7000000000000002; a third of that is not the double nearest to the average.
TWICE = [0.1, 0.8, 0.8]


def double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@given(st.lists(DOUBLES, min_size=1, max_size=30), st.integers(0, 30), st.randoms(use_true_random=False))
@example([1e308] * 12 + [-1e308] * 11, 5, None)  # the sum of some is no double, that of all is
def test_neither_order_nor_cuts_show_in_sums_and_averages(values: Any, cut: int, random: Any) -> None:
    shuffled = list(values)
    if random is not None:
        random.shuffle(shuffled)
    parts = [exactly(part) for part in (shuffled[:cut], shuffled[cut:]) if part]
    merged = parts[0] if len(parts) == 1 else exactly(parts[0] + parts[1])
    total = sum(map(Fraction, values), Fraction())
    assert sum(map(Fraction, merged)) == total
    assert len(merged) <= 40
    assert rounded(merged) == double(total)
    assert mean(merged, len(values)) == double(total / len(values))


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1e308, 1e308, -math.inf], -math.inf),
        ([1e308, 1e308], math.inf),
    ],
)
def test_sums_beyond_numbers_are_infinity_or_nan(values: list[float], total: float) -> None:
    for given_ in (values, values[::-1], [*values, *[0.0] * 10]):
        found = rounded(exactly(given_))
        assert found == total or (math.isnan(found) and math.isnan(total))


@settings(deadline=None)
@given(st.lists(DOUBLES, min_size=1, max_size=12), st.sampled_from([1, 7, 40]))
@example([0.1] * 30, 7)  # numpy adds these by eights, not one after the other
def test_windows_that_move_have_exact_sums_however_many_overlap(values: list[float], often: int) -> None:
    aggregates = Aggregates(BOTH, SCHEMA)
    ends = list(range(1, len(values) + 1)) * often
    starts = [end // 2 for end in ends]
    table = pa.table({"x": values}, schema=SCHEMA)
    totals, means = aggregates.moving(table, np.array(starts), np.array(ends), ())
    for start, end, total, average in zip(starts, ends, totals, means, strict=True):
        exact = sum(map(Fraction, values[start:end]), Fraction())
        assert total == double(exact)
        assert average == double(exact / (end - start))


def test_an_average_is_not_the_rounded_sum_divided() -> None:
    values = TWICE
    assert math.fsum(values) / 3 != float(sum(map(Fraction, values)) / 3), "else this shows nothing"
    aggregates = Aggregates(BOTH, SCHEMA)
    table = pa.table({"x": values}, schema=SCHEMA)
    (partial,) = aggregates.partials(table, np.array([0]), np.array([3]), ())
    _, (average,) = aggregates.results([aggregates.fold(None, partial)])
    assert average == float(sum(map(Fraction, values)) / 3)
    in_pattern = worked_out(Measure("avg", "a", "x"), 0, 0, pa.float64())
    assert in_pattern([[[value] for value in values]]) == average


def test_nan_is_greatest_in_a_pattern_wherever_it_stands() -> None:
    for values in ([math.nan, 1.0], [1.0, math.nan]):
        taken = [[[value] for value in values]]
        assert worked_out(Measure("min", "a", "x"), 0, 0, pa.float64())(taken) == 1.0
        assert math.isnan(worked_out(Measure("max", "a", "x"), 0, 0, pa.float64())(taken))
