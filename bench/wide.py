"""How long a job takes from its start to the end of its first batch, by the number of its source's columns.

Spark plans a query again for every batch. The time for that must not grow faster than the columns do."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from bench.rounds import Figure, Wanted
from bench.servers import Server
from bench.topics import fresh_topic

COLUMNS = (10, 100, 500)
ROWS = 400
# What one column in so many is of: those that our own reader takes, and those that only Spark's does.
KINDS: dict[str, dict[str, Any]] = {
    "strings and a decimal": {"string": "text"},
    "every type": {
        "string": "text", "boolean": True, "int": 7, "bigint": 7, "double": 1.5, "float": 1.5,
        "date": "2026-01-01", "timestamp": "2026-01-01T12:00:00Z", "binary": "AAAA",
        "decimal(10,2)": 1.25, "array<int>": [1, 2],
        "map<string,int>": {"a": 1}, "struct<a:int,b:array<string>>": {"a": 1, "b": ["x"]},
    },
}  # fmt: skip


def first_batch(spark: Any, server: Server, columns: int, kinds: dict[str, Any]) -> float:
    """Seconds until the one batch of a job with so many columns, a copy and a window, is delivered."""
    from millstream import Topology
    from millstream.client.connect import Connection
    from millstream.client.librdkafka.produce import RecordSender
    from millstream.client.text.lines import Outgoing
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.settings import JobSettings

    own = dict(enumerate(islice(cycle(kinds.items()), columns - 2)))
    schema = [f"c{number} {kind}" for number, (kind, _) in own.items()]
    value = {f"c{number}": one for number, (_, one) in own.items()}
    value |= {"price": 1.25, "at": "2026-01-01T12:00:00Z"}
    topic, target = fresh_topic(server, 2), fresh_topic(server, 2)
    connection = Connection(server.address)
    sender = RecordSender(connection, topic)
    sender.send(Outgoing(json.dumps(value).encode(), b"key") for _ in range(ROWS))
    assert sender.finish(30)
    flow = Topology("wide")
    rows = flow.source(topic, schema=", ".join([*schema, "price decimal(10,2)", "at timestamp"]), time="at")
    rows.window(by="c0", size="1 minute", engine="kernel").agg(spent="sum(price)").to_topic(target)
    rows.to_topic(fresh_topic(server, 2))
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        job = Job(flow, JobSettings(connection, scratch, available_now=True))
        began = time.monotonic()
        job.prepare()
        job.start(spark)
        while job.running:
            time.sleep(0.05)
        took = time.monotonic() - began
        problem = job.failed()
        job.close()
        if problem is not None:
            raise problem
    return took


def run(server: Server, *, quick: bool) -> Iterator[Figure]:
    from millstream.pipeline.spark.session import spark_session

    spark = spark_session("bench", settings={"spark.sql.shuffle.partitions": "2"})
    rounds = 1 if quick else 3
    try:
        first_batch(spark, server, 10, KINDS["every type"])  # to warm up
        for what, kinds in KINDS.items():
            for columns in COLUMNS:
                times = [first_batch(spark, server, columns, kinds) for _ in range(rounds)]
                wanted = Wanted("time", f"from the start to the first batch, {columns} columns, {what}", "s")
                yield wanted.figure("wide", {"millstream": times})
    finally:
        spark.stop()
