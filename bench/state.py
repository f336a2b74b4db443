"""Keyed state at one row a key: ours, wherever it is kept, beside per-key transformWithState and Spark's own
aggregation. Batches of a running count per key over so many keys; a batch's rows are all of different keys.

The figures are of Spark's micro-batches after the first few, from its own progress reports, so that start-up
and planning are left out."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.rounds import Figure
from tests.support.counting_plan import Count
from tests.support.postgres import PostgresUnavailable, postgres

BUCKETS = 8
SMALL, LARGE = 10_000, 1_000_000
_TICK_S = 1.0
SAME_BATCHES = "memory, in batches as small as for the fewer keys"
Way = Callable[[Any, int, int], Any]  # of a session, keys and rows a batch: the frame that counts


def events(spark: Any, keys: int, rows: int) -> Any:
    """A stream of batches of ``rows`` rows, each of another key, going round ``keys``."""
    counted = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    frame = counted.option("numPartitions", 2).option("advanceMillisPerBatch", 1000).load()
    return frame.selectExpr(
        f"concat('key-', pmod(value * 7919, {keys})) AS key", "timestamp AS time", "value"
    )


def on_the_kernel(state: str) -> Way:
    """Our kernel by itself: rows packed, shuffled by bucket, counted, given back."""

    def made(spark: Any, keys: int, rows: int) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        from millstream.pipeline.kernel.bucket import KeyedOperator
        from millstream.pipeline.kernel.clock import TimeRules
        from millstream.pipeline.kernel.packing import BUCKET, CLOCK, PACKED, Pack, Unpack
        from millstream.pipeline.kernel.state.containers import OFFSET, PARTITION, SOURCE, TIME
        from millstream.pipeline.spark.kernel_operator import RESULTS, KernelProcessor, StateLocation

        frame = events(spark, keys, rows).selectExpr(
            f"CAST(pmod(hash(key), {BUCKETS}) AS INT) AS {BUCKET}",
            f"time AS {TIME}",
            f"0 AS {SOURCE}",
            f"0 AS {PARTITION}",
            f"value AS {OFFSET}",
            f"false AS {CLOCK}",
            "key",
        )
        schema = to_arrow_schema(frame.select("key").schema)
        operator = KeyedOperator("counts", Count(), (schema,), {(0, 0): TimeRules(lateness=1 << 50)})
        name = uuid.uuid4().hex
        packed = frame.mapInArrow(Pack(0, BUCKETS, {}, at), from_arrow_schema(PACKED))
        keeping = StateLocation(state, name)
        results = packed.groupBy(BUCKET).transformWithState(
            KernelProcessor(operator, name, keeping), RESULTS, "update", "None"
        )
        unpack = Unpack(operator.channels())
        return results.mapInArrow(unpack, from_arrow_schema(unpack.schema))

    return made


def at() -> Any:
    """The time of a batch does not matter here."""
    from millstream.pipeline.kernel.clock import BatchTime

    return BatchTime(0)


def per_key(spark: Any, keys: int, rows: int) -> Any:
    """What Spark's documentation shows: a value for each key, asked for and written one by one."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counting(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "n bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            known = self._count.get()
            n = (0 if known is None else int(known[0])) + sum(1 for _ in rows)
            self._count.update((n,))
            yield Row(key=key[0], n=n)

        def close(self) -> None:
            pass

    frame = events(spark, keys, rows).groupBy("key")
    return frame.transformWithState(Counting(), "key string, n bigint", "update", "None")


def sparks_own(spark: Any, keys: int, rows: int) -> Any:
    return events(spark, keys, rows).groupBy("key").count()


def rate(spark: Any, way: Way, keys: int, rows: int, batches: int) -> float:
    """Rows a second, the median over batches. The keys are all there before the first that counts."""
    home = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    fill = max(1, -(-keys // rows))
    durations: list[float] = []
    writer = way(spark, keys, rows).writeStream.outputMode("update")
    query = (
        writer.option("checkpointLocation", str(home / "checkpoint"))
        .foreachBatch(lambda frame, number: frame.write.format("noop").mode("overwrite").save())
        .start()
    )
    try:
        seen = -1
        while len(durations) < batches:
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            query.awaitTermination(_TICK_S)
            for progress in query.recentProgress:
                if progress["batchId"] > max(seen, fill + 1) and progress["numInputRows"]:
                    durations.append(progress["durationMs"]["addBatch"] / 1000)
                seen = max(seen, progress["batchId"])
    finally:
        query.stop()
        shutil.rmtree(home, ignore_errors=True)
    return rows / statistics.median(durations)


def run(*, quick: bool) -> Iterator[Figure]:
    from millstream.pipeline.spark.session import spark_session

    large = LARGE // 10 if quick else LARGE
    rows = 20_000 if quick else 200_000
    spark = spark_session(
        "bench",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "2g",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        },
    )
    # They are as fast in batches of this size as in larger ones, which would take a minute each.
    of_theirs = 2_000 if quick else 30_000
    rounds = 1 if quick else 2
    batches = 2 if quick else 5
    with contextlib.ExitStack() as stack:
        stack.callback(spark.stop)
        ways: dict[str, Way] = {"memory": on_the_kernel("memory"), "disk": on_the_kernel("disk")}
        with contextlib.suppress(PostgresUnavailable):
            ways["PostgreSQL"] = on_the_kernel(stack.enter_context(postgres()).url)
        found: dict[tuple[str, int], list[float]] = {}
        beside: dict[str, list[float]] = {"transformWithState": [], "Spark's own": []}
        for number in range(rounds):
            order = list(ways.items())
            for name, way in order if number % 2 == 0 else reversed(order):
                for keys in (SMALL, large):
                    here = min(rows, keys)
                    found.setdefault((name, keys), []).append(rate(spark, way, keys, here, batches))
            same = rate(spark, ways["memory"], large, SMALL, batches)
            found.setdefault((SAME_BATCHES, large), []).append(same)
            beside["transformWithState"].append(rate(spark, per_key, of_theirs, of_theirs, 2))
            beside["Spark's own"].append(rate(spark, sparks_own, large, min(rows, large), batches))
    yield from _figures(found, beside, large)


def _figures(
    found: dict[tuple[str, int], list[float]], beside: dict[str, list[float]], large: int
) -> Iterator[Figure]:
    ours = statistics.median(found["memory", large])
    for other, least in (("transformWithState", 20.0), ("Spark's own", None)):
        theirs = statistics.median(beside[other])
        yield Figure(
            "state",
            f"keyed state, one row a key, {large:,} keys, against {other}",
            "rows/s",
            ours,
            theirs,
            True,
            f"≥ {least:g}x" if least else "",
            ours / theirs >= least if least else None,
            {"millstream": found["memory", large], other: beside[other]},
        )
    many, few = (found[SAME_BATCHES, large], found["memory", SMALL])
    ratio = statistics.median(many) / statistics.median(few)
    yield Figure(
        "state",
        f"keyed state, {SMALL:,} rows a batch, {large:,} keys against {SMALL:,}",
        "rows/s",
        statistics.median(many),
        statistics.median(few),
        True,
        "≥ 0.5x",
        ratio >= 0.5,
        {f"{large:,} keys": many, f"{SMALL:,} keys": few},
        "The other is ours where it is against fewer keys or against memory",
    )
    for (name, keys), values in found.items():
        if name not in ("memory", SAME_BATCHES):
            yield Figure(
                "state",
                f"keyed state in {name}, {keys:,} keys, against memory",
                "rows/s",
                statistics.median(values),
                statistics.median(found["memory", keys]),
                True,
                rounds={name: values, "memory": found["memory", keys]},
            )
