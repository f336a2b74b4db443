"""What a job writes to ``millstream.jobs``, by real jobs on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.cli import execute
from millstream.client.connect import Connection
from millstream.client.insight.lag import group_lag
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from millstream.console.observing.job_topic import JobTopic
from millstream.core.clock import SystemClock
from millstream.core.errors import MillstreamError
from millstream.jobs.report import TOPIC
from millstream.pipeline.run.delivery.transactions import JobTakenOver
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.reporting.status_writer import StatusWriter
from millstream.pipeline.run.settings import JobSettings
from tests.pipeline.test_job import SCHEMA, payment
from tests.support.apache_kafka import free_port
from tests.support.jobs import produce, records, run_once
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def told(broker: Broker) -> list[dict[str, Any]]:
    """Every status that was written, the oldest first."""
    found = records(broker, TOPIC)
    assert {record.key() for record in found} <= {b"rules"}
    return [json.loads(record.value()) for record in found]


def rules() -> Topology:
    """Windows of Spark's own, one on the kernel, and a function that fails on a card."""
    flow = Topology("rules")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")

    @payments.operator
    def priced(df):  # type: ignore[no-untyped-def]
        return df.selectExpr("*", "amount * 2 AS eur").where("card != 'unpriced'")

    many = priced.window(by="card", size="1 minute").agg(n="count(*)").where("n > 1")
    large = priced.window(by="card", size="2 minutes").agg(n="count(*)", eur="sum(eur)")
    flow.union(many, large.where("eur > 100"), tag="rule", name="alerts").to_topic("alerts", key="card")
    sliding = payments.window(by="card", size="1 minute", every="event", name="sliding").agg(n="count(*)")
    sliding.where("n > 0").to_view("busy", key="card")
    payments.rejected.to_topic("bad")
    return flow


def test_a_run_tells_its_graph_its_rows_and_its_end(
    spark: SparkSession, millstream_broker: Broker, tmp_path: Path
) -> None:
    connection = Connection(millstream_broker.address)
    with Admin(connection) as admin:
        admin.create_topic("payments", partitions=2)
    values = [payment("a", 5, 1), payment("a", 80, 2), payment("b", 1, 3), payment("unpriced", 1, 4), b"oops"]
    produce(millstream_broker, values)
    with StatusWriter(connection) as status:
        settings = JobSettings(connection, str(tmp_path / "checkpoint"), available_now=True, status=status)
        job = Job(rules(), settings)
        job.prepare()
        run_once(job, spark)
    every = told(millstream_broker)
    assert [every[0]["state"], every[-1]["state"]] == ["starting", "stopped"]
    last = every[-1]
    assert last["guarantee"] == "at-least-once"
    assert last["views"] == ["busy"]
    assert last["views_at"] == str(tmp_path / "checkpoint" / "views.db")
    titles = {node["key"]: f"{node['kind']} {node['title']}" for node in last["nodes"]}
    rows = {(titles[edge["tail"]], titles[edge["head"]]): edge["rows"] for edge in last["edges"]}
    assert rows["topic payments", "operator priced"] == 4
    assert rows["operator priced", "where where 1"] == 3
    assert rows["where where 1", "union alerts"] == 1
    assert rows["union alerts", "topic alerts"] == 2
    assert rows["topic payments", "rejected payments.rejected"] == 1
    assert rows["rejected payments.rejected", "topic bad"] == 1
    by_title = {node["title"]: node for node in last["nodes"]}
    assert by_title["sliding"]["entries"] > 0
    assert by_title["sliding"]["bytes"] > 0
    assert by_title["where 1"]["entries"] == by_title["where 2"]["entries"] > 0, "they share a store"
    assert by_title["payments"]["rejected"] == 1
    (query,) = last["queries"]
    assert (query["rows_in"], query["lag"], query["group"]) == (5, 0, "rules")
    batch = next(batch for batch in last["batches"] if batch["rows_in"])
    assert sum(batch["parts"].values()) == pytest.approx(batch["ms"], abs=10)
    assert batch["parts"]["process"] > 0
    (error,) = last["errors"]
    assert (error["what"], error["record"]) == ("did not parse: not JSON", "oops")
    with Admin(connection) as admin:
        config = {each.name: each.value for each in admin.topic_config(TOPIC)}
    assert config["cleanup.policy"] == "compact"


def test_lag_is_one_figure_for_the_job_its_status_and_its_group(
    spark: SparkSession, millstream_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was appended after a batch was planned is unread too, and shows without another batch."""
    connection = Connection(millstream_broker.address)
    with Admin(connection) as admin:
        admin.create_topic("payments", partitions=2)
    produce(millstream_broker, [payment("a", 5, 1)])
    flow = Topology("rules")
    flow.source("payments", schema=SCHEMA).where("amount > 1").to_topic("large")
    seen: list[Any] = []
    with StatusWriter(connection) as status:
        job = Job(
            flow,
            JobSettings(
                connection,
                str(tmp_path / "checkpoint"),
                trigger="1 hour",
                on_progress=seen.append,
                status=status,
            ),
        )
        job.prepare()
        job.start(spark)
        try:
            wait_for(lambda: seen, timeout=120, what="the first batch")
            assert (seen[0].lag, job.lag) == (0, 0)
            produce(millstream_broker, [payment("b", 5, n) for n in range(25)])
            wait_for(
                lambda: told(millstream_broker)[-1]["queries"][0]["lag"] == 25,
                timeout=60,
                what="the status tells what is unread",
            )
            assert job.lags() == {"payments": {"payments": 25}}
            with Admin(connection) as admin:
                lags = group_lag(admin, "rules", SystemClock().now_ms())
                assert sum(lag.records or 0 for lag in lags) == 25
            broker = ("--broker", millstream_broker.address)
            assert execute(["group", "describe", "rules", *broker]) == 0
            assert "owned by pipeline rules, running as process" in capsys.readouterr().out
            assert execute(["group", "seek", "rules", "--to", "start", *broker]) == 1
            assert "pipeline rules is running" in capsys.readouterr().err
        finally:
            job.stop()
    assert execute(["group", "list", *broker]) == 0
    assert "pipeline rules, stopped" in capsys.readouterr().out


def test_a_run_that_fails_tells_why_and_one_that_was_taken_over_nothing_more(
    millstream_broker: Broker, tmp_path: Path
) -> None:
    connection = Connection(millstream_broker.address)

    def begun() -> bool:
        return (
            TOPIC in _topics(connection)
            and told(millstream_broker)[-1:] != []
            and (told(millstream_broker)[-1]["state"] == "starting")
        )

    def ended_by(error: MillstreamError) -> None:
        with StatusWriter(connection) as status:
            settings = JobSettings(connection, str(tmp_path), create_topics=True, status=status)
            Job(rules(), settings).prepare()
            wait_for(begun, what="a status")
            raise error

    with pytest.raises(MillstreamError):
        ended_by(MillstreamError("operator 'sliding' failed for card='a': ValueError: no (card='a', n=1)"))
    last = told(millstream_broker)[-1]
    assert (last["state"], last["errors"][0]["record"]) == ("failed", "card='a', n=1")
    with pytest.raises(JobTakenOver):
        ended_by(JobTakenOver("another run of this job has taken over"))
    assert told(millstream_broker)[-1]["state"] == "starting"


def _topics(connection: Connection) -> dict[str, int]:
    with Admin(connection) as admin:
        return admin.topics()


def test_a_job_goes_on_where_nobody_takes_its_status(tmp_path: Path, millstream_broker: Broker) -> None:
    said: list[str] = []
    away = Connection(f"127.0.0.1:{free_port()}", patience=0.2)
    with StatusWriter(away, say=said.append) as status:
        settings = JobSettings(
            Connection(millstream_broker.address), str(tmp_path), create_topics=True, status=status
        )
        Job(rules(), settings).prepare()
        wait_for(lambda: said, what="it is said")
    assert len(said) == 1
    assert f"{TOPIC!r} can't be written" in said[0]
    assert TOPIC not in _topics(Connection(millstream_broker.address))


def test_a_job_that_was_told_to_be_silent_is(
    run: Callable[[Topology], tuple[Job, list[Any]]], millstream_broker: Broker
) -> None:
    flow = Topology("silent")
    flow.source("payments", schema=SCHEMA).where("amount > 1").to_topic("large")
    produce(millstream_broker, [payment("a", 5, 1)])
    run(flow)
    assert TOPIC not in _topics(Connection(millstream_broker.address))


def test_apache_kafka_takes_and_gives_it_as_well(apache_address: str, tmp_path: Path) -> None:
    connection = Connection(apache_address)
    with StatusWriter(connection) as status:
        settings = JobSettings(connection, str(tmp_path), create_topics=True, status=status)
        Job(rules(), settings).prepare()
    following = JobTopic(SystemClock())
    with Admin(connection) as admin:
        ends = admin.ends([TopicPartition(TOPIC, 0)])
        config = {each.name: each.value for each in admin.topic_config(TOPIC)}
    try:
        jobs = wait_for(lambda: following.look(connection, ends), what="it is read")
    finally:
        following.close()
    assert jobs["rules"].status.state == "stopped"
    assert config["cleanup.policy"] == "compact"
