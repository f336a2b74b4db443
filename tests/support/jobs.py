"""Produces records for a job, runs the job to its end, and reads records back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import TopicPartition
from millstream.pipeline.run.bounded.runs import runs
from millstream.pipeline.run.job import Job
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def produce(broker: Broker, values: Iterable[bytes], topic: str = "payments") -> None:
    sender = RecordSender(Connection(broker.address), topic)
    sender.send(Outgoing(value, b"key") for value in values)
    assert sender.finish(20)


def records(broker: Broker, topic: str) -> list[Any]:
    """All records that a topic has now."""
    connection = Connection(broker.address)
    with Admin(connection) as admin:
        places = [TopicPartition(topic, number) for number in range(admin.topics()[topic])]
        bounds = admin.bounds(places)
    starts = {place: bounds[place].start for place in places}
    found: list[Any] = []
    with PartitionReader(connection, starts, {place: bounds[place].end for place in places}) as reader:
        while not reader.finished:
            found += reader.read(1000, 0.5)
    return found


def run_once(job: Job, spark: SparkSession, *, timeout: float = 400) -> None:
    """Run a prepared job with ``available_now`` for one round, until Spark has reported its last batch.
    Raises the error if the job fails.
    """
    try:
        job.start(spark)
        wait_for(lambda: not job.running, timeout=timeout, what="the job has processed what is there")
        error = job.failed()
        if error is None:
            job.last_progress()
    finally:
        job.close()
    if error is not None:
        raise error


def run_to_the_end(job: Job, spark: SparkSession, *, timeout: float = 300, **how: Any) -> None:
    """Run a job with ``available_now`` as ``millstream run --available-now`` does, in all its rounds."""
    job.prepare()
    for this in runs(job, **how):
        this.start(spark)
        wait_for(lambda: not this.running, timeout=timeout, what="the round has ended")  # noqa: B023 - at once
        if (error := this.failed()) is not None:
            raise error
