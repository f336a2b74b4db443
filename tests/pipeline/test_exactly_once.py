"""``guarantee="exactly-once"``: what a batch writes is there once, whatever happens on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Theirs

from millstream import Topology
from millstream.client.admin import Admin
from millstream.client.connect import Connection
from millstream.pipeline.job import Job, Settings
from millstream.pipeline.views import open_reader
from millstream.records.build import Record
from tests.pipeline.test_job import SCHEMA, payment
from tests.support.topics import create_topic, produce
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Scene:
    """Topics of their own, a checkpoint, and a topology that counts: two channels, a view, rejected rows."""

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

    def produce(self, *values: bytes, partition: int = 0) -> None:
        produce(self.address, self.payments, [Record(None, value) for value in values], partition)

    def job(self, flow: Topology | None = None, **settings: Any) -> Job:
        settings = {"checkpoint": str(self.home / "checkpoint"), "available_now": True, **settings}
        return Job(flow or self.flow(), Settings(Connection(self.address), **settings))

    def run(self, flow: Topology | None = None, **settings: Any) -> list[Any]:
        """Everything that is there, from the checkpoint, to the end."""
        seen: list[Any] = []
        job = self.job(flow, on_progress=seen.append, **settings)
        job.prepare()
        try:
            job.start(self.spark)
            wait_for(lambda: not job.running, timeout=120, what="the job has processed what is there")
            error = job.failed()
        finally:
            job.close()
        if error is not None:
            raise error
        return seen

    def read(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """The values of a topic's records, sorted; JSON where it is."""
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
            message = consumer.poll(20)
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

    def forget_last_batch(self) -> int:
        """As a crash after its delivery, before Spark notes it."""
        commits = self.home / "checkpoint" / "queries" / self.payments / "commits"
        last = max(int(note.name) for note in commits.iterdir() if note.name.isdigit())
        (commits / str(last)).unlink()
        return last


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, spark: SparkSession, transactional_address: str, tmp_path: Path
) -> Scene:
    name = f"job{abs(hash(request.node.nodeid)) % 10**10}"
    return Scene(spark, transactional_address, tmp_path, name)


def test_results_offsets_and_view_come_together(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1), payment("a", 7, 2), payment("b", 1, 3), b"oops")
    seen = scene.run()
    assert scene.alerts() == [("a", 2)]
    assert len(scene.read("all")) == 3
    assert scene.read("bad") == [b"oops"]
    assert scene.view() == {"a": (2, 12.0), "b": (1, 1.0)}
    assert sum(progress.rows_out[f"topic {scene.name}.all"] for progress in seen) == 3
    assert list(seen[0].steps) == ["ledger", "begin", "send", "offsets", "commit", "views"]
    with Admin(Connection(scene.address)) as admin:
        assert sum(admin.committed(scene.name).values()) == 4

    scene.produce(payment("b", 2, 4), partition=1)
    scene.run()
    assert scene.alerts() == [("a", 2), ("b", 2)]
    assert scene.view() == {"a": (2, 12.0), "b": (2, 3.0)}
