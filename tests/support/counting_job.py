"""A job for tests that disturb it: it counts payments into topics and a view, exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Theirs

from millstream import Topology
from millstream.client.connect import Connection
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from millstream.records.build import Record
from millstream.views.opening import open_reader
from tests.support.jobs import run_once
from tests.support.topics import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "card string NOT NULL, amount double, paid_at timestamp"


class Scene:
    """Its own topics, a checkpoint, and a topology that counts: two output topics, a view, rejected rows."""

    def __init__(self, spark: SparkSession, address: str, home: Path, name: str) -> None:
        self.spark = spark
        self.address = address
        self.home = home
        self.name = name
        self.payments = create_topic(address, f"{name}.payments", partitions=2)
        for out in ("alerts", "all", "bad"):
            create_topic(address, f"{name}.{out}", partitions=3)

    def flow(self, guarantee: str = "exactly-once") -> Topology:
        flow = Topology(self.name, guarantee=guarantee)
        payments = flow.source(self.payments, schema=SCHEMA, time="paid_at", name="payments")
        counts = payments.window(by="card", size="1 minute").agg(n="count(*)", spent="sum(amount)")
        counts.where("n > 1").to_topic(f"{self.name}.alerts", key="card")
        counts.to_view("spending", key="card")
        payments.to_topic(f"{self.name}.all")
        payments.rejected.to_topic(f"{self.name}.bad")
        return flow

    def plain_flow(self) -> Topology:
        """A topology without windows: each payment is written as it comes."""
        flow = Topology(self.name, guarantee="exactly-once")
        payments = flow.source(self.payments, schema="card string NOT NULL, amount double", name="payments")
        payments.to_topic(f"{self.name}.all", key="card")
        return flow

    def produce(self, *values: bytes, partition: int = 0) -> None:
        produce(self.address, self.payments, [Record(None, value) for value in values], partition)

    def job(self, flow: Topology | None = None, **settings: Any) -> Job:
        settings = {"checkpoint": str(self.home / "checkpoint"), "available_now": True, **settings}
        return Job(flow or self.flow(), JobSettings(Connection(self.address), **settings))

    def run(self, flow: Topology | None = None, **settings: Any) -> list[Any]:
        """Process everything in the topics, starting from the checkpoint. Returns the progress reports."""
        seen: list[Any] = []
        job = self.job(flow, on_progress=seen.append, **settings)
        job.prepare()
        run_once(job, self.spark)
        return seen

    def read(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """The values of a topic's records, as bytes, sorted."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "unused",
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([Theirs(f"{self.name}.{topic}", number, 0) for number in range(3)])
        found, ended = [], 0
        while ended < 3:
            message = consumer.poll(90)
            assert message is not None, f"the end of {topic} was not reached"
            if message.error() is not None:
                ended += 1
            else:
                found.append(message.value())
        consumer.close()
        return sorted(found)

    def alerts(self) -> list[tuple[str, int]]:
        return sorted((alert["card"], alert["n"]) for alert in map(json.loads, self.read("alerts")))

    def view(self) -> dict[str, tuple[int, float]]:
        reader = open_reader(self.home / "checkpoint" / "views.db")
        try:
            rows = reader.query("SELECT card, n, spent FROM spending")[1]
            return {card: (n, spent) for card, n, spent in rows}
        finally:
            reader.close()

    def forget_last_batch(self) -> None:
        """Leave the checkpoint as a crash would after the last batch was delivered, before Spark noted it."""
        commits = self.home / "checkpoint" / "queries" / self.payments / "commits"
        last = max(int(note.name) for note in commits.iterdir() if note.name.isdigit())
        (commits / str(last)).unlink()
