"""Functions of the user's in front of stateful operators: whatever they do to the rows, time goes on as the
sources say, and nothing of our bookkeeping is among what they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.testing import Driver

SCHEMA = "k string, v int, ot timestamp, junk string"
seen: list[list[str]] = []


def selects(df: Any) -> Any:
    seen.append(df.columns)
    return df.select("k", "v", "ot")


def adds(df: Any) -> Any:
    return df.withColumn("twice", df["v"] * 2)


def drops(df: Any) -> Any:
    return df.drop("junk").alias("thin").where("v > 0")


def unites(df: Any) -> Any:
    return df.where("v % 2 = 0").union(df.where("v % 2 = 1"))


def maps(df: Any) -> Any:
    return df.mapInArrow(iter, "k string, v int, ot timestamp, junk string")


def maps_and_selects(df: Any) -> Any:
    return maps(df).selectExpr("k", "ot", "v + 1 AS v")


FUNCTIONS = [selects, adds, drops, unites, maps, maps_and_selects]


def flow_of(function: Callable[[Any], Any], **how: Any) -> Topology:
    flow = Topology("operated")
    flow.source("first", schema="a string, t timestamp", time="t").to_topic("copy")
    second = flow.source("second", schema=SCHEMA, time="ot", lateness="30 seconds")
    made = second.where("v < 100").operator(function, **how)
    made.window(by="k", size="1 minute", emit="final", name="counts").agg(n="count(*)").to_topic("counts")
    second.late.to_topic("late")
    return flow


def event(time: str, v: int = 1, k: str = "a") -> dict[str, Any]:
    return {"k": k, "v": v, "ot": f"2026-01-01T12:{time}Z"}


def counts(driver: Driver) -> dict[str, int]:
    return {row["window_start"][11:16]: row["n"] for row in driver.topic("counts")}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_event_within_the_lateness_is_on_time(function: Callable[[Any], Any]) -> None:
    with Driver(flow_of(function)) as driver:
        driver.feed("second", event("00:10"))
        driver.feed("second", [event("02:00"), event("02:01", v=500)])
        driver.feed("second", event("01:40"))
        assert driver.topic("late") == []
        driver.feed("second", event("05:00"))
        driver.feed("second", event("00:20"))
        assert [row["ot"][14:19] for row in driver.topic("late")] == ["00:20"]
        driver.finish()
        assert counts(driver) == {"12:00": 1, "12:01": 1, "12:02": 1, "12:05": 1}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_partition_that_is_behind_holds_time_back(function: Callable[[Any], Any]) -> None:
    with Driver(flow_of(function)) as driver:
        driver.feed("second", event("00:01"), partition=1)
        for minute in range(1, 9):
            driver.feed("second", event(f"0{minute}:00"), partition=0)
        driver.feed("second", event("00:40"), partition=1)
        assert driver.topic("late") == []
        driver.finish()
        assert counts(driver)["12:00"] == 2


def test_a_function_sees_the_columns_of_the_stream_and_no_others() -> None:
    seen.clear()
    Driver(flow_of(selects)).close()
    assert seen
    assert {tuple(columns) for columns in seen} == {("k", "v", "ot", "junk")}


def test_rows_that_only_tell_the_time_are_not_shown_to_a_function() -> None:
    taken: list[int] = []

    def counted(batches: Any) -> Any:
        for batch in batches:
            taken.extend(batch["v"].to_pylist())
            yield batch

    def function(df: Any) -> Any:
        return df.select("k", "v", "ot").mapInArrow(counted, "k string, v int, ot timestamp")

    with Driver(flow_of(function)) as driver:
        driver.feed("second", [event("00:10"), event("00:11", v=100), event("09:00", v=100)])
        driver.feed("second", event("20:00"))
        driver.feed("second", event("21:00"))
        assert counts(driver) == {"12:00": 1}
        assert set(taken) == {1}


@pytest.mark.parametrize("between", ["selection", "union"])
def test_nor_if_a_selection_or_a_union_is_between_the_filter_and_the_function(between: str) -> None:
    flow = Topology("between")
    rows = flow.source("second", schema="k string, v int, ot timestamp", time="ot")
    few = rows.where("v < 100")
    given = few.select("k", "v", "ot") if between == "selection" else flow.union(few, rows.where("v > 1000"))
    made = given.operator(lambda df: df.mapInArrow(iter, "k string, v int, ot timestamp"), name="mapped")
    made.window(by="v", size="1 minute", emit="final").agg(n="count(*)").to_topic("counts")
    with Driver(flow) as driver:
        driver.feed("second", [event("00:10"), event("00:11", v=100), event("09:00", v=100)])
        driver.finish()
        assert [(row["v"], row["n"]) for row in driver.topic("counts")] == [(1, 1)]


def test_times_that_a_function_sets_back_are_not_late() -> None:
    def by_the_hour(df: Any) -> Any:
        return df.mapInArrow(_to_the_hour, "k string, v int, ot timestamp")

    with Driver(flow_of(by_the_hour)) as driver:
        for time in ("00:10", "10:00", "40:00"):
            driver.feed("second", event(time))
        assert driver.topic("late") == []
        driver.finish()
        assert counts(driver) == {"12:00": 3}


def _to_the_hour(batches: Any) -> Any:
    for batch in batches:
        hour = pa.compute.floor_temporal(batch["ot"], unit="hour")
        yield pa.RecordBatch.from_arrays([batch["k"], batch["v"], hour], names=["k", "v", "ot"])


def test_a_renamed_time_is_declared() -> None:
    def renamed(df: Any) -> Any:
        return df.withColumnRenamed("ot", "ordered").select("k", "v", "ordered")

    with pytest.raises(TopologyError, match=r"'renamed' returns no column 'ot'.*\.operator\(time='column'\)"):
        Driver(flow_of(renamed))
    with Driver(flow_of(renamed, time="ordered")) as driver:
        for time in ("00:10", "02:00", "01:40", "05:00"):
            driver.feed("second", event(time))
        assert driver.topic("late") == []
        assert counts(driver) == {"12:00": 1, "12:01": 1, "12:02": 1}


def chained(function: Callable[[Any], Any], **how: Any) -> Topology:
    flow = Topology("chained")
    events = flow.source("events", schema=SCHEMA, time="ot")
    first = events.window(by=["k", "v"], size="1 minute", emit="final").agg(n="count(*)")
    again = first.operator(function, **how)
    again.window(by="k", size="10 minutes", emit="final").agg(n="sum(v)").to_topic("sums")
    return flow


def test_between_two_stateful_operators_a_function_may_make_columns_of_columns() -> None:
    def thin(df: Any) -> Any:
        return df.selectExpr("k", "2 * v AS v", "window_end")

    with Driver(chained(thin)) as driver:
        driver.feed("events", [event("00:10"), event("00:20", v=2), event("30:00")])
        assert [row["n"] for row in driver.topic("sums")] == [6]


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (lambda df: df.where("v > 0"), {"name": "few"}),
        (lambda df: df.union(df), {"name": "twice"}),
        (lambda df: df.selectExpr("k", "v", "window_start AS began"), {"name": "moved", "time": "began"}),
    ],
)
def test_what_else_it_does_there_is_refused(function: Callable[[Any], Any], how: Any) -> None:
    with pytest.raises(TopologyError, match=f"{how['name']!r} is between two stateful operators"):
        Driver(chained(function, **how))


@pytest.mark.parametrize("emit", ["window", "events"])
def test_columns_may_be_called_as_our_bookkeeping_would_be(emit: str) -> None:
    flow = Topology("named")
    schema = "bucket string, time timestamp, offset int, source string, partition int, clock int, seen int"
    rows = flow.source("rows", schema=schema, time="time")
    if emit == "window":
        rows.window(by="bucket", size="1 minute", emit="final").agg(n="sum(offset)").to_topic("sums")
    else:
        rows.window(by=["bucket", "partition"], size="1 minute", every="event").agg(n="sum(offset)").to_topic(
            "sums"
        )
    rows.late.to_topic("late")
    with Driver(flow) as driver:
        for minute, offset in ((0, 2), (0, 3), (5, 7)):
            row = {"bucket": "a", "time": f"2026-01-01T12:0{minute}:00Z", "offset": offset, "partition": 1}
            driver.feed("rows", row)
        driver.finish()
        assert [row["n"] for row in driver.topic("sums")] == ([5, 7] if emit == "window" else [5, 5, 7])
