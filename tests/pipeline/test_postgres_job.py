"""A job whose views are in PostgreSQL, by their URL alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from tests.pipeline.test_job import counting, payment, produce
from tests.support.command import CommandLine
from tests.support.jobs import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_views_are_kept_in_postgresql_and_asked_there(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker, database: str
) -> None:
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("payments", partitions=2)

    def run() -> None:
        settings = JobSettings(
            Connection(millstream_broker.address),
            str(tmp_path / "checkpoint"),
            views=database,
            available_now=True,
        )
        job = Job(counting(), settings)
        job.prepare()
        run_once(job, spark)

    produce(millstream_broker, [payment("a", 5, 1), payment("a", 7, 2), payment("b", 1, 3)])
    run()
    produce(millstream_broker, [payment("b", 2, 4), payment("a", -50, 5)])
    run()
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT card, n, spent, window_start FROM spending").fetchall()
        assert [(card, n, spent) for card, n, spent, _ in rows] == [("b", 2, 3.0)], "a's row was taken out"
        assert rows[0][3].isoformat().startswith("2026-01-01T12:00:00")
        (types,) = connection.execute(
            "SELECT array_agg(data_type::text) FROM information_schema.columns"
            " WHERE table_name = 'spending' AND column_name IN ('n', 'spent', 'window_start')"
        ).fetchall()
        assert set(types[0]) == {"bigint", "double precision", "timestamp with time zone"}
    asking = CommandLine(millstream_broker.address)
    found = json.loads(
        asking.ok("view", "query", "spending", "--key", "b", "--views", database, "--output", "json")
    )
    assert [(row["card"], row["n"], row["window_start"]) for row in found] == [
        ("b", 2, "2026-01-01T12:00:00.000000Z")
    ]
    assert asking.json("view", "list", "--views", database) == [
        {"view": "spending", "key": ["card"], "rows": 1}
    ]
    asking.ok("view", "drop", "spending", "--yes", "--views", database)
    assert asking.json("view", "list", "--views", database) == []
