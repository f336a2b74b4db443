"""What a job's guarantee costs: the same rows from topic to topic, by batches of a fixed size, beside Spark's
own Kafka source and sink, which are at-least-once, on the same broker."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import bulk
from bench.memory import make_ready
from bench.rounds import Figure, Wanted
from bench.servers import Server
from bench.spark import POM
from bench.topics import fresh_topic
from tests.support.maven import fetch_jars

PARTITIONS = 2
ROWS = 100_000  # of a batch
SIZE = 100
SPARKS_OWN = "Spark's own, at-least-once"
GUARANTEES = ("exactly-once", "at-least-once", "at-most-once")
_WARM_UP = 2  # batches of every query that are not counted


def run_ours(
    spark: Any, server: Server, source: str, guarantee: str, rows: int, batches: int
) -> tuple[list[float], list[dict[str, float]]]:
    """Milliseconds of every counted batch, and of the steps of its delivery."""
    from millstream import Topology
    from millstream.client.connect import Connection
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.reporting.progress import BatchProgress
    from millstream.pipeline.run.settings import JobSettings

    target = fresh_topic(server, PARTITIONS)
    flow = Topology(target, guarantee=guarantee)
    flow.source(source, format="binary", include=["key"], max_rows=rows).to_topic(
        target, key="record_key", value="value"
    )
    seen: list[BatchProgress] = []
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        job = Job(
            flow,
            JobSettings(
                Connection(server.address),
                str(Path(scratch) / "checkpoint"),
                available_now=True,
                on_progress=seen.append,
            ),
        )
        job.prepare()
        job.start(spark)
        for query in spark.streams.active:
            query.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        problem = job.failed()
        job.close()
        if problem is not None:
            raise problem
    whole = [progress for progress in seen if progress.rows_in == rows][_WARM_UP:]
    if len(whole) < batches:
        raise RuntimeError(f"{guarantee}: {len(whole)} whole batches, not {batches}")
    return [float(progress.milliseconds) for progress in whole], [progress.steps for progress in whole]


def run_theirs(spark: Any, server: Server, source: str, rows: int) -> list[float]:
    target = fresh_topic(server, PARTITIONS)
    reading = spark.readStream.format("kafka").option("kafka.bootstrap.servers", server.address)
    reading = reading.option("subscribe", source).option("startingOffsets", "earliest")
    frame = reading.option("maxOffsetsPerTrigger", str(rows)).load().selectExpr("key", "value")
    writing = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", server.address)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        writing = writing.option("topic", target).option("checkpointLocation", scratch)
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        if (problem := query.exception()) is not None:
            raise problem
        # It shares a limit out among partitions and rounds down, so that its batches are a row short.
        whole = [report for report in query.recentProgress if report["numInputRows"] > 0.9 * rows]
        return [float(report["durationMs"]["triggerExecution"]) for report in whole[_WARM_UP:]]


def run(server: Server, *, quick: bool) -> Iterator[Figure]:
    from millstream.pipeline.spark.session import spark_session

    jars = ",".join(str(jar) for jar in sorted(fetch_jars(POM).glob("*.jar")))
    spark = spark_session("bench", settings={"spark.jars": jars, "spark.sql.shuffle.partitions": "2"})
    batches = 3 if quick else 10
    rounds = 1 if quick else 3
    try:
        rows = ROWS * (batches + _WARM_UP + 1)
        source = fresh_topic(server, PARTITIONS)
        bulk.produce(server, source, SIZE, rows, PARTITIONS)
        rates: dict[str, list[float]] = {name: [] for name in (*GUARANTEES, SPARKS_OWN)}
        for number in range(rounds + 1):
            for name in rates if number % 2 == 0 else reversed(rates):
                make_ready(rows * SIZE * 2)
                if name == SPARKS_OWN:
                    times = run_theirs(spark, server, source, ROWS)
                else:
                    times, _ = run_ours(spark, server, source, name, ROWS, batches)
                if number:  # the first round warms all of them up
                    rates[name].append(ROWS / statistics.median(times) * 1000)
        for guarantee in GUARANTEES:
            sides = {"millstream": rates[guarantee], SPARKS_OWN: rates[SPARKS_OWN]}
            target = 1.5 if guarantee == "exactly-once" else None
            what = f"topic to topic by batches of {ROWS:,} rows, {guarantee}"
            yield Wanted("rate", what, "rows/s", at_least=target).figure("guarantees", sides)
        small = fresh_topic(server, PARTITIONS)
        bulk.produce(server, small, SIZE, 100 * (batches * 2 + _WARM_UP + 1), PARTITIONS)
        for guarantee in GUARANTEES:
            times, steps = run_ours(spark, server, small, guarantee, 100, batches)
            figure = Wanted("time", f"a batch of 100 rows, {guarantee}", "ms").figure(
                "guarantees", {"millstream": times}
            )
            figure.note = ", ".join(
                f"{name} {statistics.median(step.get(name, 0.0) for step in steps):.0f} ms"
                for name in steps[0]
            )
            yield figure
    finally:
        spark.stop()
