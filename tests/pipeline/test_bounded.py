"""A run that ends when all is read: what waits for later events comes out, unless it is to stay open."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from tests.support.jobs import produce, records, run_to_the_end
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Bounded = Callable[..., list[Any]]


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def event(seconds: float, **fields: Any) -> bytes:
    return json.dumps({**fields, "at": at(seconds)}).encode()


@pytest.fixture
def bounded(spark: SparkSession, tmp_path: Path, millstream_broker: Broker) -> Bounded:
    """Runs a topology to its end, as ``millstream run --available-now`` does; the progress of its batches."""

    def run(flow: Topology, **how: Any) -> list[Any]:
        seen: list[Any] = []
        settings = JobSettings(
            Connection(millstream_broker.address),
            str(tmp_path / flow.name),
            available_now=True,
            create_topics=True,
            on_progress=seen.append,
        )
        run_to_the_end(Job(flow, settings), spark, **how)
        return seen

    return run


def values(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value()) for record in records(broker, topic)]


def enriched() -> Topology:
    flow = Topology("enriched")
    orders = flow.source("orders", schema="customer string, at timestamp", time="at")
    customers = flow.table("customers", schema="id string, name string, at timestamp", time="at", key="id")
    orders.join(customers, on={"customer": "id"}).to_topic("named")
    return flow


def test_rows_that_wait_for_a_table_come_out(bounded: Bounded, millstream_broker: Broker) -> None:
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("orders", partitions=2)
    produce(millstream_broker, [event(0, id="ann", name="Ann")], "customers")
    produce(millstream_broker, [event(60 * i, customer="ann") for i in range(9)], "orders")
    seen = bounded(enriched())
    assert [one["name"] for one in values(millstream_broker, "named")] == ["Ann"] * 9
    assert sum(progress.rows_in for progress in seen) == 10
    assert bounded(enriched())[-1].operators  # a second run looks, and finds nothing to do
    assert len(values(millstream_broker, "named")) == 9


@pytest.mark.parametrize("engine", ["native", "kernel"])
def test_final_windows_are_closed_and_later_rows_open_others(
    bounded: Bounded, millstream_broker: Broker, engine: str
) -> None:
    def flow() -> Topology:
        flow = Topology("counts")
        source = flow.source("events", schema="k string, at timestamp", time="at", lateness="10 seconds")
        counts = source.window(by="k", size="1 minute", emit="final", engine=engine).agg(n="count(*)")
        counts.to_topic("counts")
        source.window(by="k", gap="30 seconds", engine=engine).agg(n="count(*)").to_topic("sessions")
        return flow

    def found(topic: str) -> list[tuple[str, int]]:
        return sorted((one["window_start"][11:19], one["n"]) for one in values(millstream_broker, topic))

    produce(millstream_broker, [event(s, k="a") for s in (0, 10, 70, 200)], "events")
    bounded(flow(), finish=False)
    assert found("counts") == [("12:00:00", 2), ("12:01:00", 1)]
    bounded(flow())
    closed = [("12:00:00", 2), ("12:01:00", 1), ("12:03:00", 1)]
    assert found("counts") == closed
    sessions = [("12:00:00", 2), ("12:01:10", 1), ("12:03:20", 1)]
    assert found("sessions") == sessions
    produce(millstream_broker, [event(s, k="a") for s in (400, 401)], "events")
    bounded(flow())
    assert found("counts") == [*closed, ("12:06:00", 2)]
    assert found("sessions") == [*sessions, ("12:06:40", 2)]


def test_what_a_query_writes_at_its_end_is_read_by_the_next(
    bounded: Bounded, millstream_broker: Broker
) -> None:
    flow = Topology("chain")
    source = flow.source("events", schema="k string, at timestamp", time="at")
    minutes = source.window(by="k", size="1 minute", emit="final").agg(n="count(*)")
    minutes.select("k", "n", "window_start AS at").to_topic("minutes")
    again = flow.source("minutes", schema="k string, n bigint, at timestamp", time="at")
    again.window(by="k", size="1 hour", emit="final").agg(n="sum(n)", minutes="count(*)").to_topic("hours")
    produce(millstream_broker, [event(s, k="a") for s in (0, 70, 75, 140)], "events")
    bounded(flow)
    hours = [(one["n"], one["minutes"]) for one in values(millstream_broker, "hours")]
    assert hours == [(4, 3)]


def test_a_query_that_finds_nothing_to_read_is_not_waited_for(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> None:
    """Spark names the batch that it would have run; no report of it ever comes."""
    flow = Topology("copies")
    flow.source("events", schema="k string").to_topic("copies")
    produce(millstream_broker, [b'{"k": "a"}'], "events")
    patience = 120.0
    for batches in (1, 0):
        job = Job(
            flow,
            JobSettings(Connection(millstream_broker.address), str(tmp_path / "copies"), available_now=True),
        )
        job.prepare()
        job.start(spark)
        wait_for(lambda: not job.running, timeout=300, what="the run has ended")  # noqa: B023 - at once
        began = time.monotonic()
        assert len(job.last_progress(patience)) == batches
        assert time.monotonic() - began < patience
        job.close()
