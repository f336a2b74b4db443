"""Sources with many columns of every type: what Spark has to plan grows with them and no faster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.pipeline.dsl.sources import rejected_of
from millstream.pipeline.dsl.streams import Source
from millstream.pipeline.run.job import Job
from millstream.pipeline.spark.lowering.frames import Frames
from tests.support.jobs import produce, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., tuple[Job, list[Any]]]
NOON = "2026-01-01T12:00:00.000000Z"
VALUES: dict[str, Any] = {
    "string": "a", "boolean": True, "tinyint": 1, "smallint": 2, "int": 3, "bigint": 4, "float": 0.5,
    "double": 1.5, "decimal(10,2)": 1.25, "date": "2026-01-01", "timestamp": NOON, "binary": "AAAA",
    "array<int>": [1, 2], "map<string,int>": {"a": 1},
    "struct<a:int,b:array<struct<c:string>>>": {"a": 1, "b": [{"c": "x"}]},
}  # fmt: skip
KINDS = list(VALUES)
RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key:string,value:binary>>"
)


def declared(columns: int, required: str = "") -> Topology:
    flow = Topology("wide")
    schema = [f"c{number} {KINDS[number % len(KINDS)]}{required}" for number in range(columns)]
    flow.source("payments", schema=", ".join([*schema, "at timestamp"]), time="at")
    return flow


def row(columns: int) -> dict[str, Any]:
    made = {f"c{number}": VALUES[KINDS[number % len(KINDS)]] for number in range(columns)}
    return {**made, "at": NOON}


def whole(spark: SparkSession, plan: Any) -> str:
    """A plan as text, with all its columns."""
    setting = "spark.sql.debug.maxToStringFields"
    spark.conf.set(setting, "1000000")
    try:
        return str(plan.toString())
    finally:
        spark.conf.unset(setting)


@pytest.mark.parametrize("required", ["", " NOT NULL"])
def test_a_plan_grows_no_faster_than_the_columns(spark: SparkSession, required: str) -> None:
    sizes = {}
    for columns in (10, 100, 500):
        (source,) = declared(columns, required).sources
        value = json.dumps({**row(columns), "c8": "no"}).encode()
        raw = spark.createDataFrame([(None, bytearray(value), "payments", 0, 0, None, 0, None)], RAW)
        made = Frames(lambda source, raw=raw: raw)  # type: ignore[misc]
        refused = rejected_of(source, "here")
        (rejected,) = made.of(refused).select("reason").collect()
        assert rejected.reason == "field c8: no is not decimal(10,2)"
        plans = [made.of(one)._jdf.queryExecution().optimizedPlan() for one in (source, refused)]
        sizes[columns] = sum(len(whole(spark, plan)) for plan in plans)
    assert sizes[500] < 6 * sizes[100] < 100 * sizes[10]


def test_a_job_with_a_hundred_columns_comes_to_its_first_batch(run: Run, millstream_broker: Broker) -> None:
    flow = declared(100)
    source = Source(flow.sources[0])
    source.to_topic("copies")
    source.rejected.to_topic("rejected")
    source.to_view("latest", key="c0")
    produce(millstream_broker, [json.dumps(row(100)).encode()] * 3 + [b"{}"])
    run(flow)
    assert [json.loads(one.value()) for one in records(millstream_broker, "copies")] == [row(100)] * 3
    assert len(records(millstream_broker, "rejected")) == 1
