"""A topology as a job against a real broker: results, rejected records, restarts, guarantees."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import TopologyError
from millstream.pipeline.run.job import Job
from millstream.views.opening import open_reader
from tests.support.jobs import produce, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = "card string NOT NULL, amount double, paid_at timestamp"


def payment(card: str, amount: float, seconds: float) -> bytes:
    at = (NOON + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"card": card, "amount": amount, "paid_at": at}).encode()


def counting(guarantee: str = "at-least-once", size: str = "1 minute") -> Topology:
    flow = Topology("counting", guarantee=guarantee)
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    counts = payments.window(by="card", size=size).agg(n="count(*)", spent="sum(amount)")
    counts.where("n > 1").to_topic("alerts", key="card")
    counts.to_view("spending", key="card", delete_when="spent < 0")
    payments.rejected.to_topic("bad")
    return flow


def view(tmp_path: Path) -> dict[str, tuple[int, float]]:
    reader = open_reader(tmp_path / "checkpoint" / "views.db")
    try:
        return {card: (n, spent) for card, n, spent in reader.query("SELECT card, n, spent FROM spending")[1]}
    finally:
        reader.close()


def test_results_go_to_topics_and_views_and_a_second_run_goes_on(
    run: Callable[[Topology], tuple[Job, list[Any]]], millstream_broker: Broker, tmp_path: Path
) -> None:
    produce(millstream_broker, [payment("a", 5, 1), payment("a", 7, 2), payment("b", 1, 3), b"oops"])
    _, seen = run(counting())
    alerts = [json.loads(record.value()) for record in records(millstream_broker, "alerts")]
    assert [(alert["card"], alert["n"], alert["spent"]) for alert in alerts] == [("a", 2, 12.0)]
    assert alerts[0]["window_start"] == "2026-01-01T12:00:00.000000Z"
    assert alerts[0]["time_basis"] == "event time (paid_at)"
    (bad,) = records(millstream_broker, "bad")
    assert bad.value() == b"oops"
    assert dict(bad.headers())["millstream-reason"] == b"not JSON"
    assert dict(bad.headers())["millstream-topic"] == b"payments"
    assert view(tmp_path) == {"a": (2, 12.0), "b": (1, 1.0)}
    assert sum(progress.rows_in for progress in seen) == 4
    assert sum(progress.rejected for progress in seen) == 1
    assert sum(progress.rows_out["view spending"] for progress in seen) == 2
    with Admin(Connection(millstream_broker.address)) as admin:
        assert sum(admin.committed("counting").values()) == 4

    produce(millstream_broker, [payment("b", 2, 4), payment("a", -50, 5)])
    run(counting())
    alerts = [json.loads(record.value()) for record in records(millstream_broker, "alerts")]
    assert sorted((alert["card"], alert["n"]) for alert in alerts) == [("a", 2), ("a", 3), ("b", 2)]
    assert view(tmp_path) == {"b": (2, 3.0)}  # a's row was taken out

    with pytest.raises(TopologyError, match="had window 1 minute by card; now 2 minutes by card"):
        run(counting(size="2 minutes"))


def test_a_checkpoint_is_kept_on_a_file_system_that_only_spark_can_reach(
    run: Callable[..., tuple[Job, list[Any]]], spark: SparkSession, millstream_broker: Broker, tmp_path: Path
) -> None:
    """Hadoop's view of a directory: another scheme, and all that HDFS is asked for."""
    shared = tmp_path / "shared"
    shared.mkdir()
    spark.sparkContext._jsc.hadoopConfiguration().set(
        "fs.viewfs.mounttable.jobs.link./shared", f"file://{shared}"
    )
    there = "viewfs://jobs/shared/counting"
    for amounts in ((1, 2), (3,), (4,)):
        produce(millstream_broker, [payment("a", amount, 1) for amount in amounts])
        run(counting(), there, tmp_path / "views.db")
    alerts = [json.loads(record.value()) for record in records(millstream_broker, "alerts")]
    assert [(alert["n"], alert["spent"]) for alert in alerts] == [(2, 3.0), (3, 6.0), (4, 10.0)]
    kept = [path.name for path in shared.rglob("*")]
    assert "topology.json" in kept
    assert not [name for name in kept if name.endswith(".new")]
    with pytest.raises(TopologyError, match="had window 1 minute by card; now 2 minutes by card"):
        run(counting(size="2 minutes"), there, tmp_path / "views.db")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_job_that_fails_in_its_first_batch_reads_all_of_it_when_it_is_started_again(
    run: Callable[[Topology], tuple[Job, list[Any]]], millstream_broker: Broker, guarantee: str
) -> None:
    def flow(start: str, refuse: bool) -> Topology:
        flow = Topology("copying", guarantee=guarantee)
        payments = flow.source("payments", schema=SCHEMA, start=start)

        @payments.operator
        def checked(df: Any) -> Any:
            return df.where("raise_error('not today') IS NULL") if refuse else df

        checked.to_topic("copied", key="card")
        return flow

    produce(millstream_broker, [payment(f"c{i}", i, i) for i in range(10)])
    with pytest.raises(TopologyError, match="not today"):
        run(flow("earliest", refuse=True))
    run(flow("latest", refuse=False))
    copied = [json.loads(record.value())["card"] for record in records(millstream_broker, "copied")]
    assert sorted(copied) == [f"c{i}" for i in range(10)]


def test_final_windows_and_sessions_come_once_when_the_watermark_has_passed(
    run: Callable[[Topology], tuple[Job, list[Any]]], millstream_broker: Broker
) -> None:
    flow = Topology("finals")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at", lateness="10 seconds")
    minutes = payments.window(by="card", size="1 minute", emit="final", name="minutes").agg(n="count(*)")
    halves = payments.window(by="card", size="30 s", emit="final", name="halves").agg(n="count(*)")
    sessions = payments.window(by="card", gap="20 seconds", name="sessions").agg(n="count(*)")
    flow.union(minutes, halves, sessions, tag="kind").to_topic("results", key="card")
    produce(millstream_broker, [payment("a", 1, second) for second in (1, 5, 40, 200)])
    run(flow)
    found = [json.loads(record.value()) for record in records(millstream_broker, "results")]
    # the event at 200 s moves the watermark to 190 s: all before is final, its own windows are not
    assert sorted((row["kind"], row["window_start"][11:19], row["n"]) for row in found) == [
        ("halves", "12:00:00", 2),
        ("halves", "12:00:30", 1),
        ("minutes", "12:00:00", 3),
        ("sessions", "12:00:01", 2),
        ("sessions", "12:00:40", 1),
    ]


def test_an_exception_in_a_users_function_on_spark_is_one_line(
    run: Callable[[Topology], tuple[Job, list[Any]]], millstream_broker: Broker
) -> None:
    flow = Topology("failing")
    payments = flow.source("payments", schema=SCHEMA)

    @payments.operator
    def halved(df):  # type: ignore[no-untyped-def]
        def half(batches):  # type: ignore[no-untyped-def]
            for _ in batches:
                raise ValueError("no half measures")
            yield

        return df.mapInArrow(half, "card string")

    halved.to_topic("halves")
    produce(millstream_broker, [payment("a", 1, 1)])
    with pytest.raises(TopologyError) as caught:
        run(flow)
    assert "query 'payments' failed: ValueError: no half measures" in str(caught.value)
    assert "test_job.py:" in str(caught.value.where)
    assert len(str(caught.value).splitlines()) == 1
