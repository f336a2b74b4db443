"""A copy of a job over what is past: it ends by itself, and the original is as if it had never run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import ConfigError
from millstream.pipeline.run.engine import Engine
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.launch import Launch
from millstream.pipeline.run.settings import JobSettings
from millstream.pipeline.run.shadow_copy import write_elsewhere
from millstream.views.opening import open_reader
from tests.pipeline.test_job import SCHEMA, payment, produce, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream import Broker


def flow(factor: int = 1) -> Topology:
    """Two queries with a topic of the flow's own between them."""
    made = Topology("spending", guarantee="exactly-once")
    payments = made.source("payments", schema=SCHEMA)
    payments.select("card", f"amount * {factor} AS eur").to_topic("euros", key="card")
    euros = made.source("euros", schema="card string NOT NULL, eur double", include=["offset"])
    euros.to_view("latest", key="card", order="record_offset", changelog="latest.changes")
    return made


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def state(broker: Broker, checkpoint: Path) -> Any:
    """All that belongs to the original: offsets, files and results."""
    with Admin(Connection(broker.address)) as admin:
        offsets = {group: admin.committed(group) for group in ("spending.payments", "spending.euros")}
    return (
        offsets,
        files(checkpoint),
        [
            [(record.offset(), record.key(), record.value()) for record in records(broker, topic)]
            for topic in ("payments", "euros", "latest.changes")
        ],
    )


def view(views: Path, name: str) -> dict[str, float]:
    reader = open_reader(views)
    try:
        return dict(reader.query(f"SELECT card, eur FROM {name}")[1])
    finally:
        reader.close()


def test_a_copy_reads_the_past_and_writes_elsewhere(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> None:
    connection = Connection(millstream_broker.address)
    with Admin(connection) as admin:
        admin.create_topic("payments", partitions=1)
    produce(millstream_broker, [payment(card, 10, 1) for card in "abc"])

    def run(made: Topology, name: str, **more: Any) -> None:
        settings = JobSettings(connection, str(tmp_path / name), available_now=True, **more)
        job = Job(made, settings)
        job.prepare()
        launch = Launch(made, settings, Engine())
        launch.run_prepared(job, spark)
        assert launch.totals.progress().unkeyed == 0

    run(flow(), "original")
    assert view(tmp_path / "original" / "views.db", "latest") == {"a": 10, "b": 10, "c": 10}
    before = state(millstream_broker, tmp_path / "original")

    copy = flow(factor=2)
    write_elsewhere(copy, "replay-")
    run(copy, "copy", start="-2")
    assert view(tmp_path / "copy" / "views.db", "replay_latest") == {"b": 20, "c": 20}
    euros = [json.loads(record.value()) for record in records(millstream_broker, "replay-euros")]
    assert sorted((row["card"], row["eur"]) for row in euros) == [("b", 20), ("c", 20)]
    changes = {
        json.loads(record.key())["card"]: json.loads(record.value())["eur"]
        for record in records(millstream_broker, "replay-latest.changes")
    }
    assert changes == {"b": 20, "c": 20}
    with Admin(connection) as admin:
        assert sum(admin.committed("replay-spending.payments").values()) == 3
    assert state(millstream_broker, tmp_path / "original") == before

    again = Job(copy, JobSettings(connection, str(tmp_path / "copy"), start="earliest"))
    with pytest.raises(ConfigError, match="already says where to continue"):
        again.prepare()
    with pytest.raises(ConfigError, match="already says where to continue"):
        Job(flow(), JobSettings(connection, str(tmp_path / "original"), start="earliest")).prepare()
    assert state(millstream_broker, tmp_path / "original") == before
    shutil.rmtree(tmp_path / "copy")
