"""The test driver held against Spark: its own SQL gives what Spark gives, value and type, or refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as fn

from millstream import Processor, Topology, step
from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Moment
from millstream.pipeline.sql.compile import Projection, arrow_value, python_value
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.sqltypes.ddl import from_ddl
from millstream.testing import Driver
from tests.support.everyday_sql import EXPRESSIONS, ROWS, SCHEMA, WRONG, lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {field.name: types.parse(field.type) for field in from_ddl(SCHEMA).fields}
NOW = Moment(datetime(2026, 1, 1, tzinfo=UTC))


def rows() -> pa.Table:
    columns = zip(*ROWS, strict=True)
    arrays = [
        pa.array([arrow_value(value, kind) for value in values], types.to_arrow(kind))
        for kind, values in zip(COLUMNS.values(), columns, strict=True)
    ]
    return pa.table(arrays, names=list(COLUMNS))


def same(one: Any, other: Any) -> bool:
    """Equal, and of one type; the last bit of a logarithm is anybody's guess."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-14) or (one != one and other != other)
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def test_everyday_expressions_have_sparks_values_types_and_names(spark: SparkSession) -> None:
    expressions = lines(EXPRESSIONS)
    assert len(expressions) > 450
    table = rows()
    frame = spark.createDataFrame(table)
    named = [f"{expression} AS c{at}" for at, expression in enumerate(expressions)]
    on_spark = frame.selectExpr(*named)
    values, kinds = on_spark.toArrow(), [kind for _, kind in on_spark.dtypes]
    different = []
    for at, expression in enumerate(expressions):
        own = Projection(COLUMNS, [named[at]], NOW)
        kind = own.columns[f"c{at}"]
        expected = [python_value(value, kind) for value in values.column(at).to_pylist()]
        found = [python_value(value, kind) for value in own.run(table).column(0).to_pylist()]
        if kind.text != kinds[at] or not same(expected, found):
            different.append((expression, kinds[at], expected, kind.text, found))
    assert different == []
    for expression, name in zip(expressions, frame.selectExpr(*expressions).columns, strict=True):
        try:
            called = list(Projection(COLUMNS, [expression], NOW).columns)
        except Unsupported:
            continue  # a name has to be given
        assert called == [name]


def test_what_spark_refuses_is_refused(spark: SparkSession) -> None:
    table = rows()
    frame = spark.createDataFrame(table)
    for expression in lines(WRONG):
        with pytest.raises(Exception, match="SQLSTATE"):
            frame.selectExpr(f"{expression} AS c").toArrow()
        with pytest.raises(AnalysisError):
            Projection(COLUMNS, [f"{expression} AS c"], NOW).run(table)


def flow() -> Topology:
    flow = Topology("both")
    payments = flow.source(
        "payments",
        schema="card string NOT NULL, eur decimal(8,2), tags array<int>, who struct<a:int>,"
        " more array<struct<b:int>>, byname map<string,int>, at timestamp",
        time="at",
        lateness="10 seconds",
        include=["offset", "headers"],
    )

    @payments.operator
    def priced(df):  # type: ignore[no-untyped-def]
        from pyspark.sql import functions as fn

        return df.withColumn("usd", fn.round(fn.col("eur") * 1.08, 2)).where(fn.col("eur") > 0)

    totals = priced.window(by="card", size="1 minute", emit="final", name="totals").agg(
        n="count(*)", spent="sum(usd)", last="max_by(eur, at)"
    )
    totals.to_topic("totals", key="card")
    priced.to_view("latest", key="card", delete_when="eur > 900")
    payments.rejected.to_topic("rejected")
    payments.late.to_topic("late")
    return flow


RECORDS: list[Any] = [
    {
        "card": "a",
        "eur": 1.5,
        "tags": [1, 2],
        "who": {"a": 1},
        "byname": {"x": 1},
        "at": "2026-01-01T12:00:00Z",
    },
    {"card": "a", "eur": "2.25", "at": "2026-01-01 12:00:30"},
    {"card": "b", "eur": 3, "at": 1767268800, "tags": None},
    {"card": "b", "eur": 950, "at": "2026-01-01T13:00:01+01:00"},
    {"card": 7, "eur": 1.005, "at": "2026-01-01T12:02:00Z"},
    {"card": {"x": [1, "y"]}, "eur": 0.01, "at": "2026-01-01T12:02:00Z"},
    {"card": "a", "eur": 1, "at": "2026-01-01T12:00:00Z"},
    {"card": "c", "eur": True, "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "eur": 12345678, "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "tags": [1, "x"], "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "more": [{"b": 1}, {"b": "x"}], "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "byname": {"x": 1, "y": "z"}, "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "tags": 5, "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "who": {"a": "x"}, "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "who": [1], "at": "2026-01-01T12:02:00Z"},
    {"card": "c", "at": ""},
    {"card": None, "at": "2026-01-01T12:02:00Z"},
    '{"card": "c", "eur": NaN, "at": "2026-01-01T12:02:00Z"}',
    '{"card": "c", "eur": 1e2, "at": "2026-01-01T12:02:00Z"} {"more": 1}',
    b"\xff",
    None,
    "",
    "5",
]


def test_a_driver_on_spark_gives_what_one_on_its_own_gives(spark: SparkSession) -> None:
    def ran(engine: str) -> list[Any]:
        with Driver(flow(), engine=engine) as driver:
            driver.feed("payments", RECORDS, headers={"h": "1"})
            driver.finish()
            return [
                driver.stream("payments"),
                driver.stream("priced"),
                driver.records("totals"),
                driver.records("rejected"),
                driver.records("late"),
                driver.view("latest"),
            ]

    _same(ran)


def _same(ran: Callable[[str], list[Any]]) -> None:
    on_spark, own = ran("spark"), ran("python")
    for one, other in zip(on_spark, own, strict=True):
        assert one == other
        assert one, "each of them is tried"


class Counts(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 0) + 1
        context.emit(card=context.key, n=context.state)


def stateful_flow() -> Topology:
    """Every stateful operator, a join with a table among them, whose columns are NOT NULL in part."""
    flow = Topology("stateful")
    schema = "card string NOT NULL, eur double, at timestamp"
    payments = flow.source("payments", schema=schema, time="at")
    refunds = flow.source("refunds", schema=schema, time="at")
    owners = flow.table(
        "owners", schema="card string, owner string, since timestamp", key="card", time="since"
    )
    payments.join(owners, on="card", how="left", name="named").to_topic("named")
    payments.join(refunds, on="card", within="1 minute", name="pairs").to_topic("pairs")
    steps = [step("small", "eur < 2"), step("big", "eur > 500")]
    payments.pattern(by="card", within="1 minute", steps=steps, name="testing").to_topic("testing")
    payments.process(key="card", with_=Counts, output="card string, n bigint", name="counts").to_topic(
        "counts"
    )
    payments.window(by="card", gap="1 minute", name="visits").agg(n="count(*)").to_topic("visits")
    moving = payments.window(by="card", size="1 minute", every="event", name="moving").agg(mean="avg(eur)")
    moving.to_view("latest", key="card", changelog="latest.changes")
    return flow


def test_stateful_operators_and_changelogs_are_the_same_with_either_engine(spark: SparkSession) -> None:
    def payment(card: str, eur: float, second: int) -> dict[str, Any]:
        return {"card": card, "eur": eur, "at": f"2026-01-01T12:00:{second:02}Z"}

    def ran(engine: str) -> list[Any]:
        with Driver(stateful_flow(), engine=engine) as driver:
            driver.feed("owners", {"card": "a", "owner": "Ann", "since": "2026-01-01T00:00:00Z"})
            driver.feed("owners", None, key="c", timestamp=0)  # deletes nothing
            driver.feed("payments", [payment("a", 1, 0), payment("a", 900, 1), payment("b", 0.1, 2)])
            driver.feed("refunds", payment("a", 900, 30))
            driver.finish()
            topics = ("named", "pairs", "testing", "counts", "visits", "latest.changes")
            return [driver.view("latest"), *map(driver.records, topics)]

    _same(ran)


def udf_flow() -> Topology:
    flow = Topology("udfs")
    schema = (
        "card string, n int, eur decimal(8,2), tags array<int>, who struct<a:int>, day date, at timestamp"
    )
    payments = flow.source("payments", schema=schema)

    @payments.operator
    def made(df):  # type: ignore[no-untyped-def]
        @fn.pandas_udf("string")
        def shown(card: pd.Series, eur: pd.Series, tags: pd.Series, who: pd.DataFrame) -> pd.Series:
            rows = zip(card, eur, tags, who["a"], strict=True)
            return pd.Series([f"{one} {euros!r} {type(of)} {a}" for one, euros, of, a in rows])

        @fn.pandas_udf("struct<day:date,later:timestamp>")
        def times(day: pd.Series, at: pd.Series) -> pd.DataFrame:
            return pd.DataFrame({"day": day, "later": at + pd.Timedelta("1h")})

        @fn.pandas_udf("long")
        def more(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for part in parts:
                yield part.fillna(0) + 1

        @fn.arrow_udf("int")
        def twice(n: pa.Array) -> pa.Array:
            return pc.multiply(n, 2)

        asked = df.select("card", "n", times("day", "at").alias("times"), more("n").alias("more"))
        shown_too = df.select("card", shown("card", "eur", "tags", "who").alias("shown"))
        shown_too = shown_too.select("*", fn.lit(None).cast("int").alias("n"))
        return asked.where(twice("n") > 2).unionByName(shown_too, allowMissingColumns=True)

    @payments.operator
    def mapped(df):  # type: ignore[no-untyped-def]
        def work(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for part in parts:
                part["n"] = part["n"].fillna(0) + 1
                yield part[["card", "n", "who", "at"]]

        return df.mapInPandas(work, "card string, n bigint, who struct<a:int>, at timestamp")

    made.to_topic("made")
    mapped.to_topic("mapped")
    return flow


def test_pandas_and_arrow_udfs_are_given_what_spark_gives_them(spark: SparkSession) -> None:
    def ran(engine: str) -> list[Any]:
        with Driver(udf_flow(), engine=engine) as driver:
            for n in (2, None, 1):  # one by one: a column with nulls is one of doubles to pandas
                row = {"card": f"c{n}", "n": n, "eur": 1.5, "tags": [1, 2], "who": {"a": 1}}
                driver.feed("payments", {**row, "day": "2026-01-01", "at": "2026-01-01T12:00:00Z"})
            return [driver.stream("made"), driver.stream("mapped")]

    _same(ran)
