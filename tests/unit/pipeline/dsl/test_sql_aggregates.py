"""SQL aggregates taken apart: what Spark works out before the kernel, its calls, what comes after."""

from __future__ import annotations

import pytest

from millstream.pipeline.dsl.windows.sql_aggregates import NotOnKernel, SplitAggregates, take_apart
from millstream.pipeline.kernel.windows.aggregates import Aggregates
from millstream.pipeline.kernel.windows.calls import FUNCTIONS, Call


def apart(**aggregates: str) -> SplitAggregates:
    return take_apart(aggregates, ["card", "window_start", "window_end"])


def calls(taken: SplitAggregates) -> list[Call]:
    return list(taken.calls.values())


def test_a_plain_call_is_its_result() -> None:
    taken = apart(n="count(*)", spent="sum(eur * 2)")
    assert taken.plain
    assert taken.selected == ("eur * 2 AS `millstream_0`",)
    assert calls(taken) == [Call("n", "count"), Call("spent", "sum", ("millstream_0",))]


def test_what_is_around_calls_is_left_for_spark_and_equal_calls_are_one() -> None:
    taken = apart(n="count(*)", mean="round(sum(eur) / count(*), 2)", key="concat(card, max(eur))")
    assert not taken.plain
    assert [call.function for call in calls(taken)] == ["max", "sum", "count"]
    assert taken.selected == ("eur AS `millstream_0`",)
    assert taken.results["n"] == "`millstream_result_2`"
    assert taken.results["mean"] == "round(`millstream_result_1` / `millstream_result_2`, 2)"
    assert taken.results["key"] == "concat(card, `millstream_result_0`)"
    assert list(taken.results) == ["n", "mean", "key"]


@pytest.mark.parametrize(
    ("sql", "call", "columns"),
    [
        ("COUNT(1)", Call("r", "count"), []),
        (
            "count(DISTINCT a, b)",
            Call("r", "count", ("millstream_0", "millstream_1"), distinct=True),
            ["a", "b"],
        ),
        ("count_if(a > 5)", Call("r", "count_if", where="millstream_0"), ["a > 5"]),
        (
            "count_if(a > 5) FILTER (WHERE b)",
            Call("r", "count_if", where="millstream_0"),
            ["(a > 5) AND (b)"],
        ),
        (
            "sum(if(a > 1, greatest(a, b), 0)) FILTER (WHERE b < (2))",
            Call("r", "sum", ("millstream_1",), where="millstream_0"),
            ["b < (2)", "if(a > 1, greatest(a, b), 0)"],
        ),
        ("first(a, true)", Call("r", "first", ("millstream_0",), ignore_nulls=True), ["a"]),
        ("last(a) IGNORE NULLS", Call("r", "last", ("millstream_0",), ignore_nulls=True), ["a"]),
        ("approx_count_distinct(a, 0.05)", Call("r", "approx_count_distinct", ("millstream_0",)), ["a"]),
        ("max_by(a, b['x, y'])", Call("r", "max_by", ("millstream_0", "millstream_1")), ["a", "b['x, y']"]),
        ("sum(CASE WHEN a = 'sum(x)' THEN 1 END)", Call("r", "sum", ("millstream_0",)), None),
    ],
)
def test_arguments_conditions_and_distinct(sql: str, call: Call, columns: list[str] | None) -> None:
    taken = apart(r=sql)
    assert calls(taken) == [call]
    if columns is not None:
        assert list(taken.columns) == columns


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("percentile(eur, 0.9)", "'eur' is outside an aggregate"),
        ("sum(eur) + eur", "'eur' is outside an aggregate"),
        ("upper('x')", "it has no aggregate"),
        ("sum(max(eur))", "an aggregate can't contain another"),
        ("sum(eur, 2)", "sum does not take 2 arguments"),
        ("stddev(DISTINCT eur)", "stddev with DISTINCT is not supported"),
        ("sum(eur) OVER (ORDER BY t)", "OVER is not possible"),
        ("sum(eur) FILTER (eur > 2)", "write FILTER as"),
    ],
)
def test_what_the_kernel_does_not_have_is_refused_with_what_it_has(sql: str, says: str) -> None:
    with pytest.raises(NotOnKernel, match="The kernel's aggregates are any, any_value") as caught:
        apart(r=sql)
    assert says in str(caught.value)


def test_everything_that_is_named_can_be_made() -> None:
    import pyarrow as pa

    schema = pa.schema([("i", pa.int32()), ("b", pa.bool_())])
    for function, (least, _) in FUNCTIONS.items():
        of_flags = function in ("bool_and", "every", "bool_or", "any", "some")
        call = Call("r", function, tuple(["b" if of_flags else "i"] * least), where="b")
        assert Aggregates((call,), schema).fields[0].name == "r"
