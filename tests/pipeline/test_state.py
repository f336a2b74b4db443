"""State of stateful operators on Spark: wherever it is kept, and whatever happens to tasks."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from millstream import Broker, Topology
from millstream.cli import execute as command_line
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import StateConnectionError, TopologyError
from millstream.pipeline.dsl.graph import KeyedInput
from millstream.pipeline.dsl.stateful import ChannelNode, declare
from millstream.pipeline.dsl.streams import Stream
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from millstream.pipeline.spark import jvm
from tests.pipeline.test_job import SCHEMA, payment, produce, records
from tests.support.counting_plan import Count
from tests.support.jobs import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def numbered(fail_at: Path | None = None, **how: Any) -> Topology:
    """Numbers the payments of each card."""
    flow = Topology("numbered", buckets=3, **how)
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    plan = Count(fail_at=None if fail_at is None else str(fail_at))
    counts = declare(
        ChannelNode, "count", [KeyedInput(payments.node, ("card",), ())], plan, at="here", name="cards"
    )
    Stream(counts).to_topic("counts")
    return flow


def run(spark: SparkSession, broker: Broker, checkpoint: Path, flow: Topology) -> list[Any]:
    """Process what is there; what was told on the way."""
    seen: list[Any] = []
    settings = JobSettings(
        Connection(broker.address), str(checkpoint), available_now=True, on_progress=seen.append
    )
    job = Job(flow, settings)
    job.prepare()
    run_once(job, spark)
    return seen


@pytest.mark.parametrize("state", ["memory", "disk", "postgresql"])
def test_state_is_that_of_what_was_delivered_wherever_it_is_kept(
    spark: SparkSession,
    tmp_path: Path,
    millstream_broker: Broker,
    database: str,
    state: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("payments", partitions=2)
    where, marker = database if state == "postgresql" else state, tmp_path / "fail"
    checkpoint = tmp_path / "checkpoint"
    sent: Counter[str] = Counter()
    seen: list[Any] = []
    for number in range(2):
        cards = [f"card {n % (7 + number)}" for n in range(100)] + ["hot"] * 900
        sent.update(cards)
        produce(millstream_broker, [payment(card, 1, number) for card in cards])
        marker.touch()  # one task of this batch is lost after it has done its work
        seen += run(spark, millstream_broker, checkpoint, numbered(marker, state=where))
        assert not marker.exists()
    assert sum(progress.repeats for progress in seen) == 2
    # A batch that is repeated may write again what its other tasks had written, but with the same numbers.
    rows = [json.loads(record.value()) for record in records(millstream_broker, "counts")]
    numbers = {(card, n) for card, count in sent.items() for n in range(1, count + 1)}
    assert {(row["card"], row["n"]) for row in rows} == numbers
    told = seen[-1].operators["cards"]
    assert told.entries == len(sent)
    assert told.bytes > 0
    assert f"state {len(sent)} keys" in seen[-1].line()

    # What the command line shows of it, on the Spark that is there.
    started: Future[SparkSession] = Future()
    started.set_result(spark)
    monkeypatch.setattr(jvm, "start_engine", lambda *arguments, **settings: started)
    monkeypatch.setattr(jvm, "end_engine", lambda session: None)
    address = ["--state", database] if state == "postgresql" else []

    def asked(*arguments: str) -> Any:
        assert command_line(["state", *arguments, *address]) == 0
        return json.loads(capsys.readouterr().out)

    (operator,) = asked("show", str(checkpoint), "--output", "json")
    assert (operator["operator"], operator["entries"], operator["buckets"]) == ("cards", len(sent), 3)
    entries = asked("show", str(checkpoint), "cards", "--output", "json")
    assert {entry["key"]: entry["value"] for entry in entries} == dict(sent)
    (hot,) = asked("show", str(checkpoint), "cards", "--key", "hot", "--output", "json")
    assert (hot["value"], hot["due"]) == (sent["hot"], "2026-01-01T12:01:01+00:00")
    parquet = tmp_path / "state.parquet"
    exported = ["export", str(checkpoint), "--to", str(parquet), "--format", "parquet", *address]
    assert command_line(["state", *exported]) == 0
    rows = pq.read_table(parquet).to_pylist()
    assert {json.loads(row["key"]): json.loads(row["value"]) for row in rows} == dict(sent)

    if state == "postgresql":
        assert command_line(["state", "show", str(checkpoint), "cards"]) == 2
        assert "in a database: name it with --state postgresql://" in capsys.readouterr().err
        with pytest.raises(StateConnectionError, match="can't keep state in PostgreSQL"):
            run(spark, millstream_broker, checkpoint, numbered(state="postgresql://nobody@127.0.0.1:1/none"))
    else:
        with pytest.raises(TopologyError, match=r"kept its state in \w+; now postgresql"):
            run(spark, millstream_broker, checkpoint, numbered(state=database))
