"""PySpark's columns in a topology: the same text, rows and identities as SQL has, here and on Spark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from millstream import Topology, step
from millstream.core.errors import TopologyError
from millstream.pipeline.sql.building import Moment
from millstream.pipeline.sql.compile import Projection, python_value
from millstream.sqltypes.expressions import NoSqlError
from millstream.sqltypes.recorded import expression_of_column, recording
from millstream.testing import Driver
from millstream.testing.columns import bound, in_their_place, node_of
from tests.pipeline.test_driver_on_spark import COLUMNS, rows, same
from tests.support.columns_both_ways import AGGREGATES, BOTH_WAYS, OF_PYTHON, shouted
from tests.support.jobs import produce, records

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from millstream import Broker


def test_a_column_of_a_session_has_the_text_of_a_recorded_one(spark: SparkSession) -> None:
    for make, text in [*BOTH_WAYS, *AGGREGATES]:
        assert expression_of_column(make()).sql == text
    for make, text in OF_PYTHON:
        found = expression_of_column(make())
        assert re.fullmatch(re.escape(text).replace(r"\{\}", "[0-9a-f]{8}"), found.sql)
        assert len(found.functions) == 1


def test_columns_and_their_text_give_the_same_rows_on_spark_and_in_the_driver(spark: SparkSession) -> None:
    table = rows()
    frame = spark.createDataFrame(table)
    for name, function in {"shouted": shouted}.items():
        spark.udf.register(name, function)
    both = [*BOTH_WAYS, *OF_PYTHON[:2]]
    columns = [make().alias(f"c{at}") for at, (make, _) in enumerate(both)]
    with recording(NoSqlError):
        recorded = [make().alias(f"c{at}") for at, (make, _) in enumerate(both)]
    of_session, of_text = (
        frame.select(*columns).toArrow(),
        frame.selectExpr(*(f"{text} AS c{at}" for at, (_, text) in enumerate(both))),
    )
    met_a_session = frame.select(*recorded)
    assert met_a_session.dtypes == frame.select(*columns).dtypes == of_text.dtypes
    assert same(met_a_session.toArrow().to_pylist(), of_session.to_pylist())
    kinds = [kind for _, kind in of_text.dtypes]
    expected = of_text.toArrow()
    moment = Moment(datetime(2026, 1, 1, tzinfo=UTC))
    different = []
    for at, (make, text) in enumerate(both):
        with in_their_place():
            node = node_of(make().alias("c"))
        own = Projection(COLUMNS, [bound(node, {})], moment)
        kind = own.columns["c"]
        values = [
            [python_value(value, kind) for value in found.to_pylist()]
            for found in (of_session.column(at), expected.column(at), own.run(table).column(0))
        ]
        if kind.text != kinds[at] or not (same(values[0], values[1]) and same(values[1], values[2])):
            different.append((text, kinds[at], kind.text, values))
    assert different == []


SCHEMA = "card string, eur double, country string, at timestamp"


def flow(with_columns: bool) -> Topology:
    flow = Topology("columns")
    payments = flow.source("payments", schema=SCHEMA, time="at")
    if with_columns:
        kept = payments.where((F.col("eur") > 1.0) & F.col("card").isNotNull())
        told = kept.select("card", F.col("eur").alias("paid"), shouted("country").alias("land"), "at")
        windows = told.window(by=F.col("card"), size="1 minute", emit="final").agg(
            F.sum("paid").alias("spent"), n=F.count("*")
        )
        big = payments.channel("big", F.col("eur") >= 500)
        found = payments.pattern(
            by=F.col("card"),
            within="5 minutes",
            steps=[step("small", F.col("eur") < 2), step("large", F.col("eur") > F.lit(100) * 5)],
            give={"total": F.sum("large.eur")},
        )
        other = big.join(told, on=F.col("card"), within="1 minute")
        big.to_topic("big", key=F.upper("card"), value=[F.col("card"), "eur"], delete_when=F.col("eur") > 900)
        told.to_view("latest", key=F.col("card"), delete_when=F.col("paid").isin(5.0), order=F.col("at"))
    else:
        kept = payments.where("eur > 1.0D AND card IS NOT NULL")
        told = kept.select("card", "eur AS paid", "shouted(country) AS land", "at")
        windows = told.window(by="card", size="1 minute", emit="final").agg(spent="sum(paid)", n="count(*)")
        big = payments.channel("big", "eur >= 500")
        found = payments.pattern(
            by="card",
            within="5 minutes",
            steps=[step("small", "eur < 2"), step("large", "eur > 100 * 5")],
            give={"total": "sum(large.eur)"},
        )
        other = big.join(told, on="card", within="1 minute")
        big.to_topic("big", key="upper(card)", value=["card", "eur"], delete_when="eur > 900")
        told.to_view("latest", key="card", delete_when="paid IN (5.0D)", order="at")
        flow.texts.functions["shouted"] = shouted._unwrapped  # type: ignore[attr-defined]
    windows.to_topic("windows", key="card")
    found.to_topic("found", key="card")
    other.select("card", "paid", "land").to_topic("joined")
    return flow


PAYMENTS = [
    {"card": "a", "eur": 1.5, "country": "de", "at": "2026-01-01T00:00:00Z"},
    {"card": "a", "eur": 600.0, "country": "fr", "at": "2026-01-01T00:00:20Z"},
    {"card": "b", "eur": 5.0, "country": "nl", "at": "2026-01-01T00:00:30Z"},
    {"card": "a", "eur": 999.0, "country": "it", "at": "2026-01-01T00:03:00Z"},
]
TOPICS = ("big", "windows", "found", "joined")


def driven(flow: Topology) -> Any:
    with Driver(flow) as driver:
        driver.feed("payments", PAYMENTS)
        driver.finish()
        by_topic = {
            topic: [(record.key, record.value) for record in driver.records(topic)] for topic in TOPICS
        }
        return by_topic, driver.view("latest")


def identities(flow: Topology) -> list[str]:
    return [stream.state.identity for stream in flow.streams if stream.state is not None]


def test_state_is_found_whether_it_was_declared_with_columns_or_as_text(spark: SparkSession) -> None:
    with recording(NoSqlError):
        before_a_session = flow(with_columns=True)
    in_a_session, as_text = flow(with_columns=True), flow(with_columns=False)
    assert identities(before_a_session) == identities(in_a_session) == identities(as_text)
    assert [one.about() for one in in_a_session.streams] == [one.about() for one in as_text.streams]
    assert driven(in_a_session) == driven(as_text) == driven(before_a_session)


def test_a_job_takes_columns_and_python_functions(
    run: Callable[..., Any], millstream_broker: Broker, spark: SparkSession
) -> None:
    given = flow(with_columns=True)
    produce(millstream_broker, [json.dumps(one).encode() for one in PAYMENTS])
    run(given)
    by_topic, _ = driven(given)
    for topic in ("big", "joined"):
        found = [(record.key(), record.value()) for record in records(millstream_broker, topic)]
        assert sorted(found, key=repr) == sorted(by_topic[topic], key=repr), topic
    assert any(b"FR!" in value for _, value in by_topic["joined"])


def test_the_driver_on_spark_takes_them_too(spark: SparkSession) -> None:
    made = Topology("columns")
    payments = made.source("payments", schema=SCHEMA, time="at")
    payments.where(F.col("eur") > 2).select(shouted("card").alias("card")).to_topic("shouted")
    for engine in ("spark", "python"):
        with Driver(made, engine=engine) as driver:
            driver.feed("payments", PAYMENTS)
            assert driver.topic("shouted") == [{"card": "A!"}, {"card": "B!"}, {"card": "A!"}]


def test_a_column_without_a_text_is_refused_at_its_line(spark: SparkSession) -> None:
    from pyspark.sql import Window

    payments = Topology("columns").source("payments", schema=SCHEMA, time="at")
    with pytest.raises(TopologyError, match=r"test_columns.py:\d+: .*over a window.*use an operator"):
        payments.where(F.rank().over(Window.partitionBy("card").orderBy("at")) == 1)
    with pytest.raises(TopologyError, match=r"an order.*@stream\.operator"):
        payments.select(F.col("eur").desc())
