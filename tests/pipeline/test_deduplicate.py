"""``stream.deduplicate`` as a job on Spark: beside Spark's own, over restarts, edits and kinds of state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.core.errors import TopologyError
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from tests.support.jobs import produce, records, run_to_the_end
from tests.support.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Run = Callable[..., tuple[Job, list[Any]]]
END = 59 * 60  # seconds: far enough to release everything before it


def order(id_: str | None, second: int, n: int) -> bytes:
    at = f"2026-01-01T{12 + second // 3600}:{second // 60 % 60:02}:{second % 60:02}Z"
    return json.dumps({"id": id_, "at": at, "n": n}).encode()


def flow(
    within: str = "10 minutes", *, name: str | None = None, state: str = "memory", more: str = ""
) -> Topology:
    flow = Topology("dedup", guarantee="exactly-once", buckets=2, state=state)
    schema = "id string, at timestamp, n int" + more
    orders = flow.source("payments", schema=schema, time="at", lateness="1 minute", name="orders")
    first = orders.where("n >= 0").deduplicate(by="id", within=within, name=name)
    first.to_topic("first")
    first.duplicates.to_topic("again")
    first.late.to_topic("late")
    return flow


def numbers(broker: Broker, topic: str) -> list[int]:
    return sorted(json.loads(record.value())["n"] for record in records(broker, topic))


# Events 0 and 5 are late in their partition by less than a minute; 8 is late by more. Time ends with 9.
EVENTS = [
    order("a", 100, 0),
    order("b", 110, 1),
    order("a", 60, 2),  # before 0, so it is the first
    order(None, 120, 3),
    order(None, 130, 4),
    order("b", 400, 5),
    order("a", 660, 6),  # ten minutes after 2: a first event again
    order("b", 700, 7),
    order("a", 90, 8),
    order("end", END, 9),
]
PASSED, DROPPED, LATE = [1, 2, 3, 6], [0, 4, 5, 7], [8]


def test_it_takes_the_first_event_over_restarts(run: Run, millstream_broker: Broker) -> None:
    seen: list[Any] = []
    for start, end in ((0, 4), (4, 10)):  # each run is a batch, and finds the state of the one before
        produce(millstream_broker, EVENTS[start:end])
        seen += run(flow(state="disk"))[1]
    assert numbers(millstream_broker, "first") == PASSED
    assert numbers(millstream_broker, "again") == DROPPED
    assert numbers(millstream_broker, "late") == LATE
    counted = [one for progress in seen for one in progress.operators.values()]
    assert (sum(one.duplicates for one in counted), sum(one.late for one in counted)) == (4, 1)
    assert any("duplicates" in progress.line() for progress in seen)
    first = json.loads(records(millstream_broker, "first")[0].value())
    assert list(first) == ["id", "at", "n"]  # the columns are those of the stream, in their order


def test_it_passes_what_sparks_own_passes_where_both_mean_the_same(
    spark: SparkSession, run: Run, millstream_broker: Broker, tmp_path: Path
) -> None:
    """Spark passes on the first event that it gets, and forgets a key at the end of a batch that began with
    the watermark past the key's time. So events come in order here, and before a key comes back, two batches
    move time on."""
    batches = []
    for hour in range(3):
        batch = [
            order(f"key {n % 7}" if n % 11 else None, 3600 * hour + 10 * n, 100 * hour + n) for n in range(40)
        ]
        ends = [[order(f"end {hour}.{n}", 3600 * hour + END + n, 1000 + 10 * hour + n)] for n in (0, 1)]
        batches += [batch, *ends]
    source, theirs = tmp_path / "source", []
    source.mkdir()
    for number, batch in enumerate(batches):
        (source / f"{number}.json").write_bytes(b"\n".join(batch))
        os.utime(source / f"{number}.json", (number, number))  # Spark reads files in the order of their times
        produce(millstream_broker, batch)

    def keep(batch: DataFrame, number: int) -> None:
        theirs.extend(row.n for row in batch.collect())

    read = spark.readStream.schema("id string, at timestamp, n int").option("maxFilesPerTrigger", 1)
    rows = read.json(str(source)).withWatermark("at", "10 minutes").dropDuplicatesWithinWatermark(["id"])
    written = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "theirs"))
    query = written.trigger(availableNow=True).start()
    query.awaitTermination()
    produce(millstream_broker, [order("last", 9 * 3600, 2000)])
    run(flow())
    assert len(theirs) == 3 * (7 + 1 + 2)
    assert numbers(millstream_broker, "first") == sorted(theirs)


def test_state_stays_with_what_it_was_made_by(run: Run, millstream_broker: Broker) -> None:
    produce(millstream_broker, EVENTS[:2])
    run(flow(name="first"))
    with pytest.raises(TopologyError, match=r"'first' had within 600000000; now 3600000000"):
        run(flow("1 hour", name="first"))
    produce(millstream_broker, EVENTS[2:])
    run(flow(name="first", more=", note string"))  # the events that wait have no note
    assert numbers(millstream_broker, "first") == PASSED


def test_without_a_time_events_go_by_their_arrival_in_the_log(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> None:
    create_topic(millstream_broker.address, "payments", partitions=1)
    flow = Topology("arrived", buckets=2)
    plain = flow.source("payments", schema="id string, n int")

    @plain.operator
    def doubled(df: Any) -> Any:
        return df.selectExpr("id", "n", "n * 2 AS twice")

    first = doubled.where("n < 5").deduplicate(by="lower(id)", within="10 minutes")
    first.to_topic("first")
    first.duplicates.to_topic("again")
    ids = [("a", 1), ("A", 2), ("b", 3), ("a", 4), ("c", 5)]
    produce(millstream_broker, [json.dumps({"id": id_, "n": n}).encode() for id_, n in ids])
    settings = JobSettings(Connection(millstream_broker.address), str(tmp_path / "c"), available_now=True)
    run_to_the_end(Job(flow, settings), spark)
    assert numbers(millstream_broker, "first") == [1, 3]
    assert numbers(millstream_broker, "again") == [2, 4]


def test_the_arrival_of_rows_that_a_function_combined_is_not_known(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> None:
    flow = Topology("arrived")
    plain = flow.source("payments", schema="id string, n int")

    @plain.operator
    def counted(df: Any) -> Any:
        return df.groupBy("id").count()

    counted.deduplicate(by="id", within="10 minutes").to_topic("first")
    settings = JobSettings(Connection(millstream_broker.address), str(tmp_path / "c"), create_topics=True)
    job = Job(flow, settings)
    job.prepare()
    try:
        with pytest.raises(TopologyError, match=r"'counted' does more than take rows one by one"):
            job.start(spark)
    finally:
        job.close()
