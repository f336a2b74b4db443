"""Growing: the file that ran on one machine runs on a Spark cluster with its log on Apache Kafka, by changing
two addresses, and gives the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.nexmark import feed, generator
from millstream import Broker
from millstream.client.connect import Connection
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from tests.support.apache_kafka import apache_kafka
from tests.support.jobs import run_to_the_end
from tests.support.maven import JarsUnavailable
from tests.support.serve import MILLSTREAM
from tests.support.shared_classes import quick_spark
from tests.support.spark_cluster import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1_500
EVENTS = generator.Settings(seed=3, rate=100)
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": quick_spark(),
    "spark.driver.memory": "512m",
}
PIPELINE = """\
from millstream import Processor, Topology

flow = Topology("hot-items", guarantee="exactly-once", buckets=4)
bids = flow.source(
    "bid",
    schema="auction bigint NOT NULL, bidder bigint, price bigint, dateTime timestamp",
    time="dateTime",
    lateness="1 second",
    max_rows=1000,
)


@bids.operator
def priced(df):  # a function of the file's own, which executors must be given
    return df.selectExpr("*", "price * 0.92D AS eur")


counts = priced.window(by="auction", size="10 seconds", emit="final").agg(n="count(*)", eur="sum(price)")
counts.to_topic("counts", key="auction")


class Raises(Processor):  # as is this class: it has state in the kernel
    def on_event(self, event, context):
        highest = context.state or 0
        if event.eur > highest:
            context.state = event.eur
            context.emit(eur=event.eur, before=highest)


raises = priced.process(key="auction", with_=Raises, output="auction bigint, eur double, before double")
raises.to_topic("raises", key="auction")
"""


def run_here(pipeline: Path, address: str, spark: SparkSession, checkpoint: Path) -> None:
    settings = JobSettings(Connection(address), str(checkpoint), available_now=True)
    run_to_the_end(Job(load_topology(pipeline), settings), spark, timeout=400)


def run_there(pipeline: Path, address: str, master: str, checkpoint: str) -> None:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [MILLSTREAM, "run", str(pipeline), "--available-now", "--broker", address]
    command += ["--master", master, "--checkpoint", checkpoint]
    for setting, value in SMALL.items():
        command += ["--spark", f"{setting}={value}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, cwd=pipeline.parent, env=environment
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def results(address: str, topic: str) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in feed.read(address, topic))


@pytest.fixture
def kafka() -> Iterator[str]:
    try:
        with apache_kafka(quick=True) as running:
            yield running.address
    except JarsUnavailable as problem:
        pytest.skip(str(problem))


def test_the_same_file_on_two_workers_and_apache_kafka_gives_what_one_machine_gave(
    tmp_path: Path, kafka: str, spark: SparkSession
) -> None:
    pipeline = tmp_path / "hot_items.py"
    pipeline.write_text(PIPELINE)
    with Broker() as broker:
        feed.write(broker.address, COUNT, EVENTS)
        run_here(pipeline, broker.address, spark, tmp_path / "local")
        expected = {topic: results(broker.address, topic) for topic in ("counts", "raises")}
    assert all(len(rows) > 50 for rows in expected.values())

    feed.write(kafka, COUNT, EVENTS)
    with spark_cluster() as master:
        run_there(pipeline, kafka, master, f"file://{tmp_path}/shared")
    assert {topic: results(kafka, topic) for topic in expected} == expected
