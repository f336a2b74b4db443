"""Jobs that a program starts itself: ``flow.run`` and ``flow.start``, and what they leave behind: nothing."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn

from millstream import Broker, Processor, Topology
from millstream.core.errors import BrokerUnavailable, ConfigError, MillstreamError, TopologyError
from millstream.registry.service.running import Registry
from tests.pipeline.test_job import SCHEMA, payment, produce, records
from tests.support import footprint
from tests.support.apache_kafka import free_port
from tests.support.command import CommandLine
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def address(millstream_broker: Broker) -> str:
    create_topic(millstream_broker.address, "payments", partitions=1)
    return millstream_broker.address


def copying(name: str, **how: Any) -> Topology:
    """Every payment, as it comes."""
    flow = Topology(name, **how)
    payments = flow.source("payments", schema=SCHEMA)
    payments.to_topic(f"{name}.out", key="card")
    return flow


def failing(name: str) -> Topology:
    """A job that fails at the first payment."""
    flow = Topology(name)
    payments = flow.source("payments", schema=SCHEMA)

    @fn.udf("double")
    def broken(amount: float) -> float:
        return amount / 0

    @payments.operator
    def divided(df: Any) -> Any:
        return df.withColumn("amount", broken("amount"))

    divided.to_topic(f"{name}.out")
    return flow


class Count(Processor):
    n: int = 0

    def on_event(self, event: Any, context: Any) -> None:
        context.emit(n=1)


def everything(name: str, registry: str) -> Topology:
    """What needs settings or functions of its own: state on the kernel, transactions, a value with a schema,
    one of Spark's windows, a UDF in SQL text."""

    @fn.udf("string")
    def my_function(text: str) -> str:
        return text.upper()

    flow = Topology(name, guarantee="exactly-once")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    payments.process(key="card", with_=Count, output="card string, n int").to_topic(f"{name}.counts")
    payments.window(by="card", size="1 minute").agg(n="count(*)").to_view("windows", key="card")
    payments.to_topic(f"{name}.avro", format="avro", registry=registry)
    payments.select(my_function("card").alias("card")).to_topic(f"{name}.loud")
    return flow


def values(broker: Broker, topic: str) -> list[Any]:
    return [json.loads(record.value()) for record in records(broker, topic)]


def test_a_run_ends_with_what_it_did_and_the_next_one_continues(
    spark: SparkSession, address: str, millstream_broker: Broker, tmp_path: Path
) -> None:
    produce(millstream_broker, [payment("a", 5, 1), payment("b", 7, 2), b"oops"])
    batches: list[Any] = []
    how: dict[str, Any] = {"broker": address, "checkpoint": tmp_path / "c", "available_now": True}
    flow = copying("copies")
    summary = flow.run(spark, **how, on_progress=batches.append)
    assert (summary.job, summary.rows_in, summary.rejected, summary.interrupted) == ("copies", 3, 1, False)
    assert summary.rows_out == {"topic copies.out": 2}
    assert sum(batch.rows_in for batch in batches) == 3
    assert [value["card"] for value in values(millstream_broker, "copies.out")] == ["a", "b"]

    produce(millstream_broker, [payment("c", 1, 3)])
    assert flow.run(spark, **how).rows_in == 1, "the same topology runs a second time"
    assert [value["card"] for value in values(millstream_broker, "copies.out")] == ["a", "b", "c"]


def test_a_job_in_the_background_shows_what_it_does_until_it_is_stopped(
    spark: SparkSession, address: str, millstream_broker: Broker, tmp_path: Path
) -> None:
    with copying("watched").start(spark, broker=address, checkpoint=tmp_path / "c") as job:
        assert (job.name, job.is_active, job.status.state) == ("watched", True, "running")
        assert job.await_termination(timeout=0) is False
        assert [query.name for query in spark.streams.active] == ["watched: payments"]
        produce(millstream_broker, [payment("a", 5, 1), payment("b", 7, 2)])
        wait_for(lambda: job.progress.rows_in == 2, timeout=90, what="the job has read both payments")
        assert job.progress.rows_out == {"topic watched.out": 2}
        assert job.last_progress is not None
        assert job.last_progress in job.recent_progress
        assert "<b>watched</b> running" in job._repr_html_()
        assert "2 records in" in repr(job)
    assert (job.is_active, job.status.state, job.exception()) == (False, "stopped", None)
    assert job.await_termination() is None
    assert job.await_termination(timeout=1) is True
    assert job.stop().interrupted
    assert spark.streams.active == []
    assert len(values(millstream_broker, "watched.out")) == 2


def test_a_job_of_a_program_is_stopped_from_elsewhere_and_not_restarted(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    elsewhere = CommandLine(address)
    with copying("commanded").start(spark, broker=address, checkpoint=tmp_path / "c") as job:
        refused = elsewhere.run("job", "restart", "commanded")
        assert refused.returncode == 1
        assert b"does not take the command 'restart'" in refused.stderr
        assert job.is_active
        elsewhere.ok("job", "stop", "commanded")
        job.await_termination(timeout=300)
        assert (job.status.state, job.summary().interrupted) == ("stopped", True)


def test_two_jobs_run_in_one_session_at_once(
    spark: SparkSession, address: str, millstream_broker: Broker, tmp_path: Path
) -> None:
    """They read the same topic, and start at the same time."""
    produce(millstream_broker, [payment("a", 5, 1)])
    before = footprint.of_session(spark)
    jobs: dict[str, Any] = {}

    def start(name: str) -> None:
        jobs[name] = copying(name, guarantee="exactly-once").start(
            spark, broker=address, checkpoint=tmp_path / name
        )

    threads = [threading.Thread(target=start, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job in jobs.values():
        wait_for(lambda job=job: job.progress.rows_in == 1, timeout=120, what=f"{job.name} has read")
    jobs["one"].stop()
    assert footprint.of_session(spark)["settings"] == before["settings"], "while the other one runs"
    produce(millstream_broker, [payment("b", 6, 2)])
    wait_for(lambda: jobs["two"].progress.rows_in == 2, timeout=90, what="the other one goes on")
    jobs["two"].stop()
    assert [len(values(millstream_broker, f"{name}.out")) for name in ("one", "two")] == [1, 2]
    assert footprint.changes(before, footprint.of_session(spark)) == {}


@pytest.mark.parametrize("how", ["ends", "fails", "is wrong"])
def test_session_and_process_are_left_as_they_were(
    how: str,
    spark: SparkSession,
    address: str,
    millstream_broker: Broker,
    millstream_registry: Registry,
    tmp_path: Path,
) -> None:
    produce(millstream_broker, [payment("a", 5, 1)])
    spark.range(1).createOrReplaceTempView("mine")
    spark.udf.register("my_function", lambda text: text)
    logging.getLogger("mine").setLevel(logging.DEBUG)
    flow = {
        "ends": lambda: everything("all", millstream_registry.url),
        "fails": lambda: failing("failing"),
        "is wrong": lambda: wrong("wrong"),
    }[how]()
    try:
        session, process = footprint.of_session(spark), footprint.of_process()
        if how == "ends":
            flow.run(spark, broker=address, checkpoint=tmp_path / "c", available_now=True)
            assert len(values(millstream_broker, "all.counts")) == 1
            assert values(millstream_broker, "all.loud")[0]["card"].isupper()
        else:
            with pytest.raises(TopologyError):
                flow.run(spark, broker=address, checkpoint=tmp_path / "c", available_now=True)
        assert footprint.changes(session, footprint.of_session(spark)) == {}
        assert footprint.changes(process, footprint.of_process()) == {}
        assert spark.sql("SELECT my_function('a')").collect() == [("a",)]  # the job had one of that name too
    finally:
        spark.catalog.dropTempView("mine")
        spark.sql("DROP TEMPORARY FUNCTION my_function")


def wrong(name: str) -> Topology:
    """A mistake that only Spark finds."""
    flow = Topology(name)
    flow.source("payments", schema=SCHEMA).where("no_such_function(card)").to_topic(f"{name}.out")
    return flow


def test_spark_logs_the_users_own_mistakes_as_before(
    spark: SparkSession, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with copying("quiet").start(spark, broker=address, checkpoint=tmp_path / "c"):
        with pytest.raises(TopologyError, match="no_such_function"):
            wrong("wrong").start(spark, broker=address, checkpoint=tmp_path / "other")
        logger = logging.getLogger("SQLQueryContextLogger")
        assert logger.filters == []
        said: list[logging.LogRecord] = []
        handler = logging.Handler()
        handler.emit = said.append  # type: ignore[method-assign]
        logger.addHandler(handler)
        try:
            with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
                spark.sql("SELECT missing FROM range(1)")
        finally:
            logger.removeHandler(handler)
        assert len(said) == 1


def test_a_job_that_fails_raises_where_it_is_waited_for(
    spark: SparkSession, address: str, millstream_broker: Broker, tmp_path: Path
) -> None:
    job = failing("failing").start(spark, broker=address, checkpoint=tmp_path / "c")
    produce(millstream_broker, [payment("a", 5, 1)])
    with pytest.raises(TopologyError, match="ZeroDivisionError"):
        job.await_termination(timeout=120)
    assert (job.is_active, job.status.state) == (False, "failed")
    assert "ZeroDivisionError" in job.status.message
    assert isinstance(job.exception(), TopologyError)
    job.stop()
    assert job.status.state == "failed", "stopping it changes nothing"
    with pytest.raises(TopologyError, match="ZeroDivisionError"), job:
        pass


def test_a_failing_on_progress_does_not_fail_the_job_and_may_stop_it(
    spark: SparkSession,
    address: str,
    millstream_broker: Broker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    started: list[Any] = []

    def on_progress(progress: Any) -> None:
        if progress.rows_in:
            started[0].stop()
            raise ValueError("no dashboard")

    job = copying("told").start(spark, broker=address, checkpoint=tmp_path / "c", on_progress=on_progress)
    started.append(job)
    produce(millstream_broker, [payment("a", 5, 1)])
    assert job.await_termination(timeout=120) is True
    assert job.exception() is None
    assert "on_progress failed" in caplog.text


def test_mistakes_are_said_at_once_and_leave_nothing_running(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    flow = copying("careful")
    at: dict[str, Any] = {"broker": address, "checkpoint": tmp_path / "c"}
    with pytest.raises(BrokerUnavailable, match="no broker answers"):
        flow.start(spark, **{**at, "broker": f"127.0.0.1:{free_port()}"})
    with pytest.raises(ConfigError, match="is not one"):
        flow.start("local[2]", **at)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a session is running in this process already"):
        flow.start(master="local[2]", **at)
    with pytest.raises(ConfigError, match="trigger: 'soon' is not a duration"):
        flow.start(spark, trigger="soon", **at)
    with pytest.raises(ConfigError, match="leave_open=True requires available_now=True"):
        flow.run(spark, leave_open=True, **at)
    with pytest.raises(ConfigError, match=r"reset=\['sums'\]"):
        flow.run(spark, reset="sums", **at)
    empty, other = Topology("empty"), Topology("orders")
    empty.source("payments", schema=SCHEMA)
    with pytest.raises(TopologyError, match="writes nothing"):
        empty.start(spark, **at)
    other.source("orders", schema="n int").to_topic("out")
    with pytest.raises(TopologyError, match="there is no topic 'orders'"):
        other.start(spark, **at)
    assert spark.streams.active == []
    with flow.start(**at) as job:  # the session of this process, as with getOrCreate
        with pytest.raises(ConfigError, match="the job 'careful' is running in this process already"):
            flow.start(spark, **{**at, "checkpoint": tmp_path / "other"})
        with pytest.raises(ConfigError, match="is in use by the job 'careful'"):
            copying("another").start(spark, **at)
        with pytest.raises(ConfigError, match="must not be negative"):
            job.await_termination(timeout=-1)
        assert job.is_active
    with flow.start(spark, **at) as job:
        assert job.is_active


def test_a_session_that_was_stopped_is_refused(spark: SparkSession) -> None:
    class Stopped:
        """A session after stop(): Spark can't have a second one here."""

        _jsparkSession = None  # noqa: N815 - Spark's name

        class _sc:  # noqa: N801
            _jsc = None

    with pytest.raises(ConfigError, match="has been stopped"):
        copying("late").start(Stopped())  # type: ignore[arg-type]


def test_waiting_in_on_progress_would_never_end_and_is_refused(
    spark: SparkSession, address: str, millstream_broker: Broker, tmp_path: Path
) -> None:
    jobs: list[Any] = []
    errors: list[BaseException] = []

    def on_progress(progress: Any) -> None:
        try:
            jobs[0].await_termination()
        except MillstreamError as error:
            errors.append(error)

    with copying("waits").start(
        spark, broker=address, checkpoint=tmp_path / "c", on_progress=on_progress
    ) as job:
        jobs.append(job)
        produce(millstream_broker, [payment("a", 5, 1)])
        wait_for(lambda: errors, timeout=90, what="a batch was reported")
    assert "its own on_progress" in str(errors[0])
