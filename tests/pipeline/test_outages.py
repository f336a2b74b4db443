"""A job with state, and what happens to its log: a broker that goes away, a topic that is deleted, records
that retention took. It waits or says what is lost, and its state stays what was delivered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import MillstreamError
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from tests.pipeline.test_job import payment, produce, records
from tests.pipeline.test_state import numbered
from tests.support.jobs import run_once
from tests.support.serve import ServeProcess
from tests.support.topics import delete_records, delete_topic
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServeProcess]:
    with ServeProcess(tmp_path / "data") as broker:
        with Admin(Connection(broker.address)) as admin:
            admin.create_topic("payments", partitions=1)
        yield broker


def counted(broker: Any) -> dict[str, list[int]]:
    """The numbers that the payments of each card were given."""
    found: dict[str, list[int]] = {}
    for record in records(broker, "counts"):
        row = json.loads(record.value())
        found.setdefault(row["card"], []).append(row["n"])
    return found


def pay(broker: Any, *cards: str) -> None:
    produce(broker, [payment(card, 1, 1) for card in cards])


def job_of(broker: ServeProcess, checkpoint: Path, **how: Any) -> Job:
    flow = numbered(guarantee="exactly-once")
    job = Job(flow, JobSettings(Connection(broker.address), str(checkpoint), **how))
    job.prepare()
    return job


def process(spark: SparkSession, broker: ServeProcess, checkpoint: Path, **how: Any) -> None:
    """Run until all is read. Raises what ended it otherwise."""
    run_once(job_of(broker, checkpoint, available_now=True, **how), spark)


def test_a_broker_that_goes_away_and_comes_back_is_waited_for(
    spark: SparkSession, broker: ServeProcess, tmp_path: Path
) -> None:
    said: list[str] = []
    job = job_of(broker, tmp_path / "checkpoint", on_trouble=said.append)
    job.start(spark)
    try:
        for number in range(1, 3):
            pay(broker, "a", "b")
            wanted = [*range(1, number + 1)]
            wait_for(lambda wanted=wanted: counted(broker).get("a") == wanted, timeout=400, what="counted")
            broker.kill()
            broker.start()
        pay(broker, "a", "c")
        wait_for(lambda: "c" in counted(broker), timeout=400, what="the job went on")
        assert job.failed() is None
        assert counted(broker) == {"a": [1, 2, 3], "b": [1, 2], "c": [1]}
    finally:
        job.stop()


def test_records_deleted_before_they_were_read_are_named_and_state_goes_on_without_them(
    spark: SparkSession, broker: ServeProcess, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    pay(broker, "a", "a")
    process(spark, broker, checkpoint)
    pay(broker, "a", "lost", "a", "b")
    delete_records(broker.address, "payments", 0, 5)
    for _ in range(2):  # it is no better the next time
        with pytest.raises(MillstreamError, match=r"offsets 2 to 4 \(3 records\) are gone.*--skip-lost"):
            process(spark, broker, checkpoint)
    assert counted(broker) == {"a": [1, 2]}
    process(spark, broker, checkpoint, skip_lost=True)
    pay(broker, "a")
    process(spark, broker, checkpoint)
    assert counted(broker) == {"a": [1, 2, 3], "b": [1]}


def test_a_topic_deleted_under_a_job_is_named_and_nothing_of_a_new_one_is_taken_for_it(
    spark: SparkSession, broker: ServeProcess, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    pay(broker, "a", "a", "b")
    job = job_of(broker, checkpoint)
    job.start(spark)
    try:
        wait_for(lambda: sum(map(len, counted(broker).values())) == 3, timeout=400, what="all are counted")
        delete_topic(broker.address, "payments")
        error = wait_for(job.failed, timeout=400, what="the job has noticed")
        assert "payments" in str(error)
        assert "deleted while they were being read" in str(error)
    finally:
        job.stop()
    with Admin(Connection(broker.address)) as admin:
        admin.create_topic("payments", partitions=1)
    pay(broker, "new")
    with pytest.raises(MillstreamError, match="deleted and created again since the last batch"):
        process(spark, broker, checkpoint)
    assert Counter(counted(broker)) == {"a": [1, 2], "b": [1]}
