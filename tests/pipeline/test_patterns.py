"""Patterns and processors of a user's file on Spark: results, what fails, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from tests.pipeline.test_job import payment, produce, records
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.pipeline.run.reporting.progress import BatchProgress

PAYMENTS = """\
from millstream import Processor, Topology, absent, step

flow = Topology("fraud", buckets=2)
columns = "card string NOT NULL, amount double, paid_at timestamp"
payments = flow.source("payments", schema=columns, time="paid_at")
counted = payments.where("amount != 0")
"""
PATTERN = """\


def risen(event, so_far):
    return event.amount > 100 * so_far["small"][-1].amount


testing = counted.pattern(
    by="card",
    within="5 minutes",
    steps=[
        step("small", "1 / amount > 0.5").times(3),
        absent("refund", "amount < 0"),
        step("big", where=risen),
    ],
    give={"n": "count(small)", "total": "sum(small.amount)", "spent": "big.amount"},
)
testing.to_topic("testing", key="card")
"""
PROCESSOR = """\


class Quiet(Processor):
    def __init__(self, wait):
        self.wait = wait

    def on_event(self, event, context):
        context.state = {"n": (context.state or {"n": 0})["n"] + 1, "inverse": 1 / (event.amount - 7)}
        context.timer(after=self.wait)

    def on_timer(self, timer, context):
        context.emit(n=context.state["n"])
        context.emit_to("told", at=timer.time)


quiet = counted.process(
    key="card",
    with_=Quiet("1 minute"),
    output="card string, n bigint, seen timestamp",
    time="seen",
    channels={"told": "card string, at timestamp"},
    ON_ERROR
)
quiet.to_topic("quiet", key="card")
quiet.channel("told").to_topic("told")
"""


def fails_at(text: str) -> str:
    """The line of the file that fails."""
    return f"fraud.py:{1 + next(at for at, line in enumerate(text.splitlines()) if 'amount - 7' in line)}"


def run(
    spark: SparkSession, broker: Broker, directory: Path, text: str, seen: list[BatchProgress] | None = None
) -> Job:
    file = directory / "fraud.py"
    file.write_text(text)
    settings = JobSettings(Connection(broker.address), str(directory / "checkpoint"), available_now=True)
    if seen is not None:
        settings.on_progress = seen.append
    job = Job(load_topology(file), settings)
    job.prepare()
    job.start(spark)
    wait_for(lambda: not job.running, timeout=400, what="the job has processed what is there")
    return job


@pytest.fixture
def broker(millstream_broker: Broker) -> Broker:
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("payments", partitions=1)
    amounts = [("a", 1.0), ("a", 1.0), ("b", 5.0), ("a", 0.0), ("a", 1.5), ("a", 7.0), ("a", 500.0)]
    values = [payment(card, amount, second) for second, (card, amount) in enumerate(amounts)]
    produce(millstream_broker, [*values, payment("z", 2.0, 10_000), payment("z", 2.0, 10_001)])
    return millstream_broker


def rows(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value()) for record in records(broker, topic)]


def test_patterns_and_processors_of_a_file_run_on_spark(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    text = PAYMENTS + PATTERN + PROCESSOR.replace("ON_ERROR", "on_error='channel',")
    seen: list[BatchProgress] = []
    job = run(spark, broker, tmp_path, text + 'quiet.failed.to_topic("failed")\n', seen)
    error = job.failed()
    job.close()
    assert error is None
    (match,) = rows(broker, "testing")
    assert (match["card"], match["n"], match["total"], match["spent"]) == ("a", 3, 3.5, 500.0)
    assert match["match_start"] == "2026-01-01T12:00:00.000000Z"
    assert match["match_end"] == "2026-01-01T12:00:06.000000Z"
    assert match["time_basis"] == "event time (paid_at)"
    quiet = {row["card"]: (row["n"], row["seen"]) for row in rows(broker, "quiet")}
    assert quiet == {"a": (4, "2026-01-01T12:01:06.000000Z"), "b": (1, "2026-01-01T12:01:02.000000Z")}
    assert sorted(row["card"] for row in rows(broker, "told")) == ["a", "b"]
    (failed,) = rows(broker, "failed")
    assert (failed["card"], failed["amount"]) == ("a", 7.0)
    assert failed["error"] == "ZeroDivisionError: float division by zero"
    assert failed["error_at"].endswith(fails_at(text))
    wait_for(lambda: seen, timeout=60, what="the batch is reported")
    assert sum(progress.operators["quiet"].failed for progress in seen) == 1
    assert "failed 1" in seen[0].line()


def test_a_processor_that_fails_is_told_with_operator_key_record_and_line(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    text = PAYMENTS + PROCESSOR.replace("ON_ERROR", "")
    job = run(spark, broker, tmp_path, text)
    error = job.failed()
    job.close()
    assert isinstance(error, TopologyError)
    assert str(error).split(": ", 1) == [
        f"{tmp_path}/{fails_at(text)}",
        "query 'payments' failed: operator 'quiet' failed for card='a':"
        " ZeroDivisionError: float division by zero"
        " (the event: card='a', amount=7.0, paid_at=2026-01-01T12:00:05+00:00)",
    ]
