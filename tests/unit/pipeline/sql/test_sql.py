"""The driver's own SQL without Spark: what is told apart from what, and what is refused. That its values are
Spark's is shown in tests/pipeline/test_driver_on_spark.py."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Moment
from millstream.pipeline.sql.casts import BadValue, cast, double_text
from millstream.pipeline.sql.compile import FUNCTIONS, Projection, python_value
from millstream.pipeline.sql.date_patterns import read, written
from millstream.pipeline.sql.lambdas import WITH_LAMBDAS
from millstream.pipeline.sql.nodes import AnalysisError, Call, Unsupported
from millstream.pipeline.sql.parse import parse
from tests.support.everyday_sql import EXPRESSIONS, lines

NOW = Moment(datetime(2026, 1, 1, 12, tzinfo=UTC))
ROW = {
    "i": 7,
    "d": 2.5,
    "m": Decimal("12.34"),
    "s": "Hello",
    "n": None,
    "arr": [3, 1],
    "ts": datetime(2026, 1, 31, 12, 30, tzinfo=UTC),
}
COLUMNS = {
    "i": types.INT,
    "d": types.DOUBLE,
    "m": types.decimal(10, 2),
    "s": types.STRING,
    "n": types.INT,
    "arr": types.array(types.INT),
    "ts": types.TIMESTAMP,
}
TABLE = pa.table({name: pa.array([ROW[name]], types.to_arrow(kind)) for name, kind in COLUMNS.items()})


def value(sql: str) -> Any:
    made = Projection(COLUMNS, [f"{sql} AS c"], NOW)
    (found,) = made.run(TABLE).column(0).to_pylist()
    return python_value(found, made.columns["c"])


@pytest.mark.parametrize(
    ("sql", "expected", "kind"),
    [
        ("i / 2", 3.5, "double"),
        ("'a' 'b' \"c\"", "abc", "string"),
        ("i div 2", 3, "bigint"),
        ("-i % 3", -1, "int"),
        ("i + 1L", 8, "bigint"),
        ("m * 2", Decimal("24.68"), "decimal(12,2)"),
        ("m / 3", Decimal("4.113333"), "decimal(14,6)"),
        ("n + 1", None, "int"),
        ("n = 1 OR i = 7", True, "boolean"),
        ("if(n = 0, 1 / 0, 5)", 5.0, "double"),
        ("s || '!'", "Hello!", "string"),
        ("ts + INTERVAL 30 MINUTES", datetime(2026, 1, 31, 13, tzinfo=UTC), "timestamp"),
        ("cast(ts AS date) + INTERVAL 1 DAY", date(2026, 2, 1), "date"),
        ("ts - INTERVAL 1 MONTH", datetime(2025, 12, 31, 12, 30, tzinfo=UTC), "timestamp"),
        ("transform(arr, (x, at) -> x * i + at)", [21, 8], "array<int>"),
        ("current_timestamp()", NOW.now, "timestamp"),
        ("struct(i, s AS t).t", "Hello", "string"),
    ],
)
def test_expressions_have_values_and_types(sql: str, expected: Any, kind: str) -> None:
    assert value(sql) == expected
    assert Projection(COLUMNS, [f"{sql} AS c"], NOW).columns["c"].text == kind


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("i + ", "Syntax error"),
        ("i > > 1", "at or near '>'"),
        ("(i", "Syntax error"),
        ("s = 'abc", "at 5: a quote (') is not closed"),
        ("i ? 1", "at 3: '?' is not valid SQL"),
        ("cast(i AS)", "the type"),
        ("crad", "there is no column 'crad'"),
        ("upper(s, s)", "takes 1 arguments, not 2"),
        ("s.x", "there is no field 'x'"),
        ("arr + 1", "not defined for array<int>"),
    ],
)
def test_what_is_wrong_is_said(sql: str, says: str) -> None:
    with pytest.raises(AnalysisError) as caught:
        value(sql)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "soundex(s)",
        "row_number() over (partition by s)",
        "s rlike '\\\\p{L}+'",
        "cast('12:00' AS timestamp)",
        "date_format(ts, 'GGG')",
        "rand()",
        "count(DISTINCT i)",
        "like(s, 'x', 'y', 'z') OVER ()",
        "cast(i AS variant)",
        "arr > arr",
    ],
)
def test_what_is_not_known_is_refused_with_the_way_out(sql: str) -> None:
    with pytest.raises(Unsupported, match="engine='spark'"):
        value(sql)


@pytest.mark.parametrize(
    "sql", ["1 / 0", "2147483647 + i", "cast(s AS int)", "arr[5]", "cast(1e20 AS bigint)"]
)
def test_values_that_cannot_be_are_errors_not_nulls(sql: str) -> None:
    with pytest.raises(BadValue):
        value(sql)
    assert value(f"if(true, NULL, {sql})") is None


def test_a_selection_explodes_arrays_and_keeps_the_columns_beside() -> None:
    made = Projection(COLUMNS, ["s", "explode(arr) AS one", "i + 1 AS more"], NOW, "i > 5").run(TABLE)
    assert made.to_pylist() == [
        {"s": "Hello", "one": 3, "more": 8},
        {"s": "Hello", "one": 1, "more": 8},
    ]
    assert Projection(COLUMNS, ["*"], NOW, "i > 7").run(TABLE).num_rows == 0


@given(st.floats(allow_nan=False))
def test_a_double_as_text_is_the_same_double(number: float) -> None:
    text = double_text(number)
    assert float(text.replace("Infinity", "inf")) == number
    assert cast(types.STRING, types.DOUBLE)(text) == number


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), st.integers(0, 6))  # noqa: DTZ001
def test_a_time_is_read_by_the_pattern_it_was_written_by(time: datetime, digits: int) -> None:
    pattern = "yyyy-MM-dd'T'HH:mm:ss" + (f".{'S' * digits}" if digits else "") + "XXX"
    kept = time.replace(microsecond=time.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits), tzinfo=UTC)
    assert read(written(time.replace(tzinfo=UTC), pattern), pattern) == kept


@given(st.integers(-(10**12), 10**12), st.integers(0, 4), st.integers(1, 10**6), st.integers(0, 4))
def test_decimals_are_added_and_multiplied_exactly(a: int, s: int, b: int, t: int) -> None:
    one, other = Decimal(a).scaleb(-s), Decimal(b).scaleb(-t)
    columns = {"a": types.decimal(14, s), "b": types.decimal(8, t)}
    table = pa.table(
        [pa.array([one], types.to_arrow(columns["a"])), pa.array([other], types.to_arrow(columns["b"]))],
        names=["a", "b"],
    )
    made = Projection(columns, ["a + b AS added", "a * b AS times", "a - b AS less"], NOW).run(table)
    (found,) = made.to_pylist()
    assert found == {"added": one + other, "times": one * other, "less": one - other}


def test_every_function_there_is_is_held_against_spark() -> None:
    used: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, Call):
            used.add(node.name)
        for part in (
            *getattr(node, "arguments", ()),
            getattr(node, "node", None),
            getattr(node, "body", None),
        ):
            if part is not None:
                walk(part)

    for expression in lines(EXPRESSIONS):
        walk(parse(expression))
    assert {*FUNCTIONS, *WITH_LAMBDAS} - used == set()


def test_intervals_are_told_apart() -> None:
    assert value("INTERVAL 90 SECONDS") == timedelta(seconds=90)
    assert value("INTERVAL '1 day 2 hours'") == timedelta(days=1, hours=2)
    with pytest.raises(Unsupported):
        value("INTERVAL 1 MONTH 2 DAYS")
