"""Aggregates: Spark's results, types and null rules, and merges whose order never shows."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.windows.aggregates import Aggregates
from millstream.pipeline.kernel.windows.calls import FUNCTIONS, Call, PythonAggregate

MONEY = pa.decimal128(10, 2)
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("d", MONEY),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("where", pa.bool_()),
    ]
)


def table(**columns: list[Any]) -> pa.Table:
    rows = len(next(iter(columns.values())))
    given = [pa.array(columns.get(field.name, [None] * rows), field.type) for field in SCHEMA]
    return pa.Table.from_arrays(given, schema=SCHEMA)


def of(call: Call, *parts: pa.Table) -> Any:
    """The result over several batches of one window; rows are numbered, so that they have an order."""
    aggregates = Aggregates((call,), SCHEMA)
    state, number = None, 0
    for part in parts:
        rows = part.num_rows
        ranks = [(number + row,) for row in range(rows)]
        (partial,) = aggregates.partials(part, np.array([0]), np.array([rows]), ranks)
        state = aggregates.fold(state, partial)
        number += rows
    assert state is not None
    ((value,),) = aggregates.results([state])
    return aggregates.array(0, [value])[0].as_py()


def call(function: str, *arguments: str, **how: Any) -> Call:
    return Call("result", function, arguments, **how)


ROWS = table(
    i=[3, None, 1, 3],
    x=[0.1, 0.2, None, math.nan],
    d=[Decimal("1.10"), Decimal("2.25"), None, Decimal("0.01")],
    s=["b", None, "a", "c"],
    b=[True, None, True, False],
    where=[True, True, None, False],
)
NOTHING = table(i=[None, None])


@pytest.mark.parametrize(
    ("made", "rows", "nothing", "kind"),
    [
        (call("count"), 4, 2, pa.int64()),
        (call("count", "i"), 3, 0, pa.int64()),
        (call("count", "i", "s"), 3, 0, pa.int64()),
        (call("count", "i", distinct=True), 2, 0, pa.int64()),
        (call("count", "i", "s", distinct=True), 3, 0, pa.int64()),
        (call("count_if", where="where"), 2, 0, pa.int64()),
        (call("approx_count_distinct", "s"), 3, 0, pa.int64()),
        (call("sum", "i"), 7, None, pa.int64()),
        (call("sum", "i", distinct=True), 4, None, pa.int64()),
        (call("sum", "i", where="where"), 3, None, pa.int64()),
        (call("sum", "d"), Decimal("3.36"), None, pa.decimal128(20, 2)),
        (call("avg", "i"), 7 / 3, None, pa.float64()),
        (call("avg", "d"), Decimal("1.120000"), None, pa.decimal128(14, 6)),
        (call("mean", "x", where="where"), 0.15000000000000002, None, pa.float64()),
        (call("min", "x"), 0.1, None, pa.float64()),
        (call("max", "x"), math.nan, None, pa.float64()),
        (call("min", "s"), "a", None, pa.string()),
        (call("max", "d"), Decimal("2.25"), None, MONEY),
        (call("min_by", "s", "i"), "a", None, pa.string()),
        (call("max_by", "s", "i"), "b", None, pa.string()),  # the earlier of two
        (call("max_by", "s", "x"), "c", None, pa.string()),  # NaN is greatest
        (call("first", "i"), 3, None, pa.int32()),
        (call("last", "s", ignore_nulls=True), "c", None, pa.string()),
        (call("last", "x", where="where"), 0.2, None, pa.float64()),
        (call("any_value", "s"), "b", None, pa.string()),
        (call("bool_and", "b"), False, None, pa.bool_()),
        (call("every", "b", where="where"), True, None, pa.bool_()),
        (call("some", "b"), True, None, pa.bool_()),
        (call("var_pop", "i"), 8 / 9, None, pa.float64()),
        (call("stddev", "i"), statistics.stdev([3, 1, 3]), None, pa.float64()),
        (call("stddev_samp", "d", where="where"), statistics.stdev([1.1, 2.25]), None, pa.float64()),
        (call("collect_list", "i"), [3, 1, 3], [], pa.list_(pa.int32())),
        (call("collect_set", "s"), ["a", "b", "c"], [], pa.list_(pa.string())),
    ],
    ids=lambda value: f"{value.function} {value.arguments}" if isinstance(value, Call) else "",
)
def test_results_types_and_null_rules_are_sparks(made: Call, rows: Any, nothing: Any, kind: Any) -> None:
    (field,) = Aggregates((made,), SCHEMA).fields
    assert field.type == kind
    found = of(made, ROWS)
    assert found == rows or (math.isnan(found) and math.isnan(rows))
    assert of(made, ROWS.slice(0, 1), ROWS.slice(1, 1), ROWS.slice(2)) == found or math.isnan(found)
    assert of(made, NOTHING) == nothing


def test_a_sample_of_one_has_no_variance() -> None:
    one = table(x=[5.0])
    assert of(call("stddev_samp", "x"), one) is None
    assert of(call("stddev_pop", "x"), one) == 0.0


def test_times_are_compared_and_kept() -> None:
    rows = table(t=[5, None, 3])
    found = of(call("min", "t"), rows)
    assert found == pa.array([3], pa.timestamp("us", tz="UTC"))[0].as_py()
    assert of(call("count", "t", distinct=True), rows) == 2


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (call("sum", "s"), "sum of string: it is of numbers"),
        (call("bool_or", "i"), "bool_or of int: it is of booleans"),
        (call("stddev", "b"), "stddev of boolean: it is of numbers"),
    ],
)
def test_columns_of_the_wrong_type_are_refused(made: Call, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Aggregates((made,), SCHEMA)


def test_a_sum_beyond_its_type_is_an_error_and_no_other_number() -> None:
    schema = pa.schema([("n", pa.int64())])
    aggregates = Aggregates((call("sum", "n"),), schema)
    rows = pa.table({"n": [2**62, 2**62]}, schema=schema)
    (partial,) = aggregates.partials(rows, np.array([0]), np.array([2]), ())
    with pytest.raises(OverflowError, match="overflows bigint"):
        aggregates.results([aggregates.fold(None, partial)])


@settings(deadline=None)
@given(
    st.lists(st.floats(min_value=-1e6, max_value=1e6).map(lambda x: x + 1e9), min_size=2, max_size=20),
    st.integers(0, 20),
)
def test_variance_is_right_even_far_from_zero(values: list[float], cut: int) -> None:
    assume(len(set(values)) > 1)
    parts = [part for part in (values[:cut], values[cut:]) if part]
    found = of(call("var_samp", "x"), *(table(x=part) for part in parts))
    assert found == float(statistics.variance(map(Fraction, values)))


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(sorted(set(FUNCTIONS) - {"count_if"})),
    st.lists(st.tuples(st.integers(-3, 3) | st.none(), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 12),
)
def test_every_aggregate_is_the_same_in_one_batch_and_in_two(
    function: str, rows: list[tuple[int | None, bool]], cut: int
) -> None:
    ints, flags = [row[0] for row in rows], [row[1] for row in rows]
    on_booleans = function in ("bool_and", "every", "bool_or", "any", "some")
    arguments = ["b" if on_booleans else "i"] + (["x"] if function.endswith("_by") else [])
    made = call(function, *arguments, where="where" if len(rows) % 2 else None)
    data = table(i=ints, b=flags, x=[None if n is None else n / 2 for n in ints], where=flags)
    assert of(made, data) == of(made, data.slice(0, cut), data.slice(cut))


class Longest:
    """An aggregate that keeps no more than it needs."""

    def zero(self) -> str:
        return ""

    def add(self, state: str, text: str) -> str:
        return max(state, text, key=len)

    def result(self, state: str) -> int:
        return len(state)


def test_a_python_function_takes_the_values_in_the_order_of_time() -> None:
    def joined(texts: list[str], numbers: list[int]) -> str:
        return "".join(f"{text}{number}" for text, number in zip(texts, numbers, strict=True))

    made = PythonAggregate("joined", ("s", "i"), "string", pa.string(), whole=joined)
    python = call("", "s", "i", python=made)
    assert of(python, ROWS.slice(0, 2), ROWS.slice(2)) == "b3a1c3"
    assert of(python, NOTHING) is None


def test_a_python_aggregate_may_keep_a_state_of_its_own() -> None:
    made = PythonAggregate("longest", ("s",), "int", pa.int32(), folding=Longest())
    python = call("", "s", python=made)
    assert of(python, table(s=["a", "abc", None]), table(s=["ab"])) == 3
    wrong = PythonAggregate("wrong", ("s",), "int", pa.int32(), whole=lambda texts: texts[0])
    with pytest.raises(ValueError, match="aggregate result= returned a value that is not int"):
        of(call("", "s", python=wrong), table(s=["a"]))
