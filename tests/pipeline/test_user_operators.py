"""Functions of the user's in front of stateful operators, on the real engine: as in the test driver, whose
tests (tests/unit/testing/test_user_operators.py) have the details."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.pipeline.run.job import Job
from millstream.testing import Driver
from tests.support.jobs import produce, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., tuple[Job, list[Any]]]


def event(time: str, v: int = 1) -> dict[str, Any]:
    return {"k": "a", "v": v, "ot": f"2026-01-01T12:{time}Z"}


def selects(df: Any) -> Any:
    assert df.columns == ["k", "v", "ot", "junk"]
    return df.selectExpr("k", "v", "ot", "to_json(struct(*)) AS all").where("instr(all, 'millstream') = 0")


def _unchanged(batches: Any) -> Any:
    yield from batches


def maps(df: Any) -> Any:
    return df.mapInArrow(_unchanged, "k string, v int, ot timestamp, junk string")


def renames(df: Any) -> Any:
    return df.select("k", fn.col("ot").alias("ordered")).union(df.select("k", "ot").where("false"))


def declared(*functions: Callable[[Any], Any]) -> Topology:
    flow = Topology("operated")
    flow.source("others", schema="a string").to_topic("copy")
    second = flow.source("payments", schema="k string, v int, ot timestamp, junk string", time="ot",
                         lateness="30 seconds", max_rows=1)  # fmt: skip
    for function in functions:
        time = "ordered" if function is renames else None
        made = second.where("v < 100").operator(function, time=time)
        counts = made.window(by="k", size="1 minute", emit="final", engine="kernel").agg(n="count(*)")
        counts.to_topic(function.__name__)
        counts.late.to_topic("late")
    return flow


def test_an_event_within_the_lateness_is_on_time_whatever_a_function_does(
    spark: SparkSession, run: Run, millstream_broker: Broker
) -> None:
    other = spark.createDataFrame([("a", 9)], "k string, w int")

    def joins(df: Any) -> Any:
        return df.join(other, "k")

    functions = (selects, maps, renames)
    events = [event(time) for time in ("00:10", "02:00", "01:40", "05:00", "05:00", "00:20")]
    events.insert(2, event("02:01", v=500))
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("others", partitions=1)
    produce(millstream_broker, [json.dumps(one).encode() for one in events])
    run(declared(*functions, joins))
    late = [json.loads(record.value()) for record in records(millstream_broker, "late")]
    assert [(row.get("ot") or row["ordered"])[14:19] for row in late] == ["00:20"] * 4
    with Driver(declared(*functions)) as driver:
        for one in events:
            driver.feed("payments", one)
        for function in (*functions, joins):
            found = [json.loads(one.value()) for one in records(millstream_broker, function.__name__)]
            assert {row["window_start"][14:16]: row["n"] for row in found} == {"00": 1, "01": 1, "02": 1}
            assert found == driver.topic("maps" if function is joins else function.__name__)
