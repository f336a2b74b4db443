"""Our Spark source and sink beside Spark's own Kafka connector, on the same topics of the same broker."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import bulk
from bench.processes import tree_cpu_seconds
from bench.rounds import Figure, Wanted
from bench.servers import Server
from bench.topics import fresh_topic
from tests.support.maven import fetch_jars

POM = Path(__file__).resolve().parents[1] / "tests" / "support" / "spark_kafka" / "pom.xml"
PARTITIONS = 2


def read(spark: Any, name: str, server: Server, topic: str) -> None:
    source = spark.read.format(name).option("kafka.bootstrap.servers", server.address)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    source.load().write.format("noop").mode("overwrite").save()


def write(spark: Any, name: str, server: Server, topic: str, rows: int, size: int) -> None:
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr(
        "cast(id as string) AS key", f"cast(repeat('x', {size}) as binary) AS value"
    )
    sink = frame.write.format(name).option("kafka.bootstrap.servers", server.address).option("topic", topic)
    sink.mode("append").save()


def timed(work: Callable[[], None], rows: int, server: Server) -> dict[str, float]:
    cpu = tree_cpu_seconds(os.getpid())
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return {"rate": rows / seconds, "cpu": (tree_cpu_seconds(os.getpid()) - cpu) / rows * 1e6}


def run(server: Server, *, quick: bool) -> Iterator[Figure]:
    from millstream.pipeline.spark.session import spark_session

    jars = ",".join(str(jar) for jar in sorted(fetch_jars(POM).glob("*.jar")))
    spark = spark_session("bench", settings={"spark.jars": jars, "spark.sql.shuffle.partitions": "2"})
    rounds = 2 if quick else 5
    try:
        for size, rows, read_target in ((100, 2_000_000, 3.0), (1000, 500_000, 1.0)):
            rows = rows // 10 if quick else rows
            topic = fresh_topic(server, PARTITIONS)
            bulk.produce(server, topic, size, rows, PARTITIONS)

            def reading(name: str, topic: str = topic, rows: int = rows) -> dict[str, float]:
                return timed(lambda: read(spark, name, server, topic), rows, server)

            def writing(name: str, size: int = size, rows: int = rows) -> dict[str, float]:
                target = fresh_topic(server, PARTITIONS)
                return timed(lambda: write(spark, name, server, target, rows, size), rows, server)

            for verb, measure, target in (("read", reading, read_target), ("write", writing, 1.5)):
                seen: dict[str, dict[str, list[float]]] = {}
                for number in range(rounds + 1):
                    names = ["millstream", "kafka"] if number % 2 == 0 else ["kafka", "millstream"]
                    for name in names:
                        result = measure(name)
                        if number:  # the first round warms both up
                            for key, value in result.items():
                                seen.setdefault(key, {"millstream": [], "kafka": []})[name].append(value)
                shape = f"{verb} {size} B rows"
                yield Wanted("rate", shape, "rows/s", at_least=target).figure("spark", seen["rate"])
                cpu = Wanted("cpu", f"{shape}: CPU of Spark and its workers", "µs/row")
                yield cpu.figure("spark", seen["cpu"])
                assert all(statistics.median(values) > 0 for values in seen["rate"].values())
    finally:
        spark.stop()
