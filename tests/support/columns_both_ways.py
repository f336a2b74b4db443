"""Expressions written with PySpark's functions and as SQL text, over the columns of ``everyday_sql``.

The text is also the one that millstream makes of the Column.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody has it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.functions import col, udf

LETTERS = udf(lambda text: None if text is None else len(text), "int")


@udf("string")
def shouted(text: str | None) -> str | None:
    return None if text is None else text.upper() + "!"


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

# Made by a function: once while nothing runs, and once in a Spark session.
BOTH_WAYS: list[tuple[Callable[[], Any], str]] = [
    (lambda: F.col("i") > 3, "i > 3"),
    (lambda: col("i") != 7, "i != 7"),
    (lambda: (F.col("i") > 0) & (F.col("s") != "x") | F.col("y"), "i > 0 AND s != 'x' OR y"),
    (lambda: (F.col("i") > 0) & ((F.col("s") == "x") | F.col("y")), "i > 0 AND (s = 'x' OR y)"),
    (lambda: ~(F.col("i") == 7), "i != 7"),
    (lambda: ~F.col("y"), "NOT y"),
    (lambda: ~((F.col("i") > 1) & F.col("y")), "NOT (i > 1 AND y)"),
    (lambda: F.col("i").eqNullSafe(None), "i <=> NULL"),
    (lambda: F.col("s").isNull(), "s IS NULL"),
    (lambda: F.col("s").isNotNull() == F.col("y"), "(s IS NOT NULL) = y"),
    (lambda: ~F.col("s").isNull(), "s IS NOT NULL"),
    (lambda: F.col("d").isNaN(), "isnan(d)"),
    (lambda: F.col("i").isin(7, 0), "i IN (7, 0)"),
    (lambda: ~F.col("s").isin(["x", "it's"]), r"s NOT IN ('x', 'it\'s')"),
    (lambda: F.col("i").isin([]), "false"),
    (lambda: F.col("i").between(-1, F.col("j")), "i >= -1 AND i <= j"),
    (lambda: F.col("s").like("%o_W%"), "s LIKE '%o_W%'"),
    (lambda: ~F.col("s").rlike(r"^\w+-\d"), r"s NOT RLIKE '^\\w+-\\d'"),
    (lambda: F.col("s").startswith("Hello"), "startswith(s, 'Hello')"),
    (lambda: F.col("s").endswith("d"), "endswith(s, 'd')"),
    (lambda: F.col("s").contains("42"), "contains(s, '42')"),
    (lambda: F.col("s").substr(2, 3), "substr(s, 2, 3)"),
    (lambda: (F.col("i") + 1) * 2 - F.col("j"), "(i + 1) * 2 - j"),
    (lambda: F.col("i") - (F.col("j") - 1), "i - (j - 1)"),
    (lambda: 10 - F.col("i"), "10 - i"),
    (lambda: -(F.col("i") * -1), "-(i * -1)"),
    (lambda: F.col("i") * -2, "i * -2"),
    (lambda: F.col("d") / 4, "d / 4"),
    (lambda: F.col("i") % 3, "i % 3"),
    (lambda: F.col("j") ** 2, "power(j, 2)"),
    (lambda: F.col("d") * 1.08, "d * 1.08D"),
    (lambda: F.col("m") * Decimal("1.50"), "m * 1.50BD"),
    (lambda: F.col("b") > 5_000_000_000, "b > 5000000000L"),
    (lambda: F.col("i").bitwiseAND(3).bitwiseXOR(F.lit(1)), "i & 3 ^ 1"),
    (lambda: F.col("ts") < NOON, "ts < TIMESTAMP '2026-01-31 12:00:00Z'"),
    (lambda: F.col("dt") == date(2026, 2, 28), "dt = DATE '2026-02-28'"),
    (lambda: F.col("ts") + timedelta(days=1, seconds=1.5), "ts + INTERVAL '86401.500000' SECOND"),
    (lambda: F.col("bin") == b"\x7f", "bin = X'7F'"),
    (lambda: F.lit(float("nan")), "CAST('NaN' AS double)"),
    (lambda: F.lit("a\nb\\c'd"), r"'a\nb\\c\'d'"),
    (lambda: F.lit([1, 2]), "array(1, 2)"),
    (lambda: F.col("i").cast("string"), "CAST(i AS string)"),
    (lambda: F.col("i").cast(T.LongType()), "CAST(i AS bigint)"),
    (lambda: F.col("m").cast(T.DecimalType(12, 4)), "CAST(m AS decimal(12,4))"),
    (lambda: F.col("s").try_cast("int"), "TRY_CAST(s AS int)"),
    (
        lambda: F.when(F.col("i") > 5, "big").when(F.col("i") > 0, "some").otherwise(F.col("s")),
        "CASE WHEN i > 5 THEN 'big' WHEN i > 0 THEN 'some' ELSE s END",
    ),
    (lambda: F.when(F.col("y"), F.lit(None)), "CASE WHEN y THEN NULL END"),
    (lambda: F.array("i", "j")[0], "array(i, j)[0]"),
    (lambda: F.col("tags")["x"], "tags['x']"),
    (lambda: F.col("who.name"), "who.name"),
    (lambda: F.col("who").getField("age") + 1, "who['age'] + 1"),
    (lambda: F.upper("s"), "upper(s)"),
    (lambda: F.concat_ws("-", "s", F.lit("x"), "w"), "concat_ws('-', s, 'x', w)"),
    (lambda: F.coalesce("i", F.lit(0)), "coalesce(i, 0)"),
    (lambda: F.round("d", 1), "round(d, 1)"),
    (lambda: F.round("d"), "round(d)"),
    (lambda: F.split("w", ","), "split(w, ',', -1)"),
    (lambda: F.date_format("ts", "yyyy-MM"), "date_format(ts, 'yyyy-MM')"),
    (lambda: F.to_date("ts"), "to_date(ts)"),
    (lambda: F.date_trunc("hour", "ts"), "date_trunc('hour', ts)"),
    (lambda: F.struct("i", F.col("s").alias("text")), "struct(i, s AS text)"),
    (lambda: F.create_map(F.lit("k"), "i"), "map('k', i)"),
    (lambda: F.transform("arr", lambda one: one * 2), "transform(arr, x -> x * 2)"),
    (lambda: F.filter("arr", lambda one: one > F.col("j")), "filter(arr, x -> x > j)"),
    (
        lambda: F.aggregate("arr", F.lit(0), lambda total, one: total + F.coalesce(one, F.lit(0))),
        "aggregate(arr, 0, (x, y) -> x + coalesce(y, 0))",
    ),
    (
        lambda: F.transform("arr", lambda one: F.exists("arr", lambda other: other > one)),
        "transform(arr, y -> exists(arr, x -> x > y))",
    ),
    (
        lambda: F.from_json("s", T.StructType([T.StructField("a", T.IntegerType())])),
        "from_json(s, 'struct<a:int>')",
    ),
    (lambda: F.expr("i > 1 OR y") & F.col("y"), "(i > 1 OR y) AND y"),
    (lambda: (F.col("i") + 1).alias("ignored") * 2, "(i + 1) * 2"),
    (lambda: F.call_function("lower", "s"), "lower(s)"),
]

# Aggregates, which have rows only in a window.
AGGREGATES: list[tuple[Callable[[], Any], str]] = [
    (lambda: F.count("*"), "count(*)"),
    (lambda: F.count("i"), "count(i)"),
    (lambda: F.sum(F.col("i") + 1), "sum(i + 1)"),
    (lambda: F.mean("d"), "avg(d)"),
    (lambda: F.max("s"), "max(s)"),
    (lambda: F.count_distinct("s"), "count(DISTINCT s)"),
    (lambda: F.sum("i").alias("ignored") / F.count("*"), "sum(i) / count(*)"),
    (lambda: F.max_by("s", "ts"), "max_by(s, ts)"),
    (lambda: F.first("i", ignorenulls=True), "first(i, true)"),
    (lambda: F.sum(F.when(F.col("i") > 0, 1).otherwise(0)), "sum(CASE WHEN i > 0 THEN 1 ELSE 0 END)"),
    (lambda: F.collect_list("i"), "collect_list(i)"),
]

# Calls of Python functions, whose text needs the function.
OF_PYTHON: list[tuple[Callable[[], Any], str]] = [
    (lambda: shouted("s"), "shouted(s)"),
    (lambda: F.concat(shouted(F.col("w")), F.lit("?")), "concat(shouted(w), '?')"),
    (lambda: LETTERS(F.upper("s")) > 3, "lambda_{}(upper(s)) > 3"),
]
