"""What runs a topology, and brokers for it to run against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from tests.support.apache_kafka import apache_kafka
from tests.support.jobs import run_once
from tests.support.maven import JarsUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def kafka_address() -> Iterator[str]:
    """The address of a broker of our own, empty, in memory, with two partitions a topic."""
    with Broker(num_partitions=2) as broker:
        yield broker.address


@pytest.fixture(scope="session")
def apache_address() -> Iterator[str]:
    """The address of an Apache Kafka, for what only it has, and to show that ours is no special case."""
    try:
        with apache_kafka(quick=True) as kafka:
            yield kafka.address
    except JarsUnavailable as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def our_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of our own, on disk, that tests share."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.address


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> Callable[..., tuple[Job, list[Any]]]:
    """Runs a topology on what is in the topics, from its checkpoint, to the end."""

    def run(
        flow: Topology, checkpoint: str = "checkpoint", views: Path | None = None
    ) -> tuple[Job, list[Any]]:
        seen: list[Any] = []
        settings = JobSettings(
            Connection(millstream_broker.address),
            checkpoint if "://" in checkpoint else str(tmp_path / checkpoint),
            views=views,
            available_now=True,
            on_progress=seen.append,
        )
        job = Job(flow, settings)
        job.prepare()
        run_once(job, spark)
        return job, seen

    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("payments", partitions=2)
    return run
