"""A topology that runs: its topics checked, its queries started, watched and stopped."""

from __future__ import annotations

import difflib
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client.admin import Admin
from millstream.client.connect import Connection
from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.checkpoint import Checkpoint
from millstream.pipeline.plan import Plan, Query, plan
from millstream.pipeline.streams import Source
from millstream.pipeline.topology import Topology
from millstream.pipeline.views import ViewStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from millstream.pipeline.deliver import Delivery
    from millstream.pipeline.progress import Progress


@dataclass(slots=True)
class Settings:
    """How a job is run, as opposed to what it does."""

    connection: Connection
    checkpoint: str
    views: str | Path | None = None  # a file or a URL; beside the checkpoint, if left out
    trigger: str | None = None  # a batch every so often; as fast as they go, if left out
    available_now: bool = False  # read what is there, and end
    create_topics: bool = False  # source topics too
    on_progress: Callable[[Progress], None] = field(default=lambda progress: None)


class Job:
    """One run of a topology. ``prepare`` needs no Spark and finds most mistakes; ``start`` does the rest."""

    def __init__(self, flow: Topology, settings: Settings) -> None:
        self.flow = flow
        self.settings = settings
        self.plan: Plan = plan(flow)
        self.checkpoint = Checkpoint(settings.checkpoint)
        self.views = settings.views or (self.checkpoint.local or Path(".millstream") / flow.name) / "views.db"
        self._stopping = threading.Event()
        self._store: ViewStore | None = None
        self._listener: Any = None
        self._spark: SparkSession | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._deliveries: dict[str, Delivery] = {}

    # ---- before Spark -------------------------------------------------------------------------------

    def prepare(self) -> list[str]:
        """Look at the broker and the checkpoint; returns the topics that were created."""
        created = self._topics()
        if self.checkpoint.local is not None:
            self.checkpoint.claim(self.plan)
        return created

    def _topics(self) -> list[str]:
        with Admin(self.settings.connection) as admin:
            there = admin.topics()
            for source in (source for query in self.plan.queries for source in query.sources):
                topic = source.topic
                made_here = topic in self.plan.writes or self.settings.create_topics
                if topic not in there and not made_here:
                    near = difflib.get_close_matches(topic, there, n=1)
                    hint = f"did you mean {near[0]!r}? Otherwise create" if near else "create"
                    raise TopologyError(
                        f"there is no topic {topic!r} at {self.settings.connection.address}; {hint} it with"
                        f" `millstream topic create {topic}`, or run with --create-topics",
                        where=source.at,
                    )
            wanted = dict.fromkeys((*self.plan.reads, *self.plan.writes))
            return [topic for topic in wanted if topic not in there and admin.create_topic(topic)]

    # ---- running ------------------------------------------------------------------------------------

    def start(self, spark: SparkSession) -> None:
        """Plan every query on Spark, and only then start them."""
        from millstream.pipeline.deliver import Delivery
        from millstream.pipeline.frames import Frames
        from millstream.pipeline.options import WriteOptions
        from millstream.pipeline.outgoing import output
        from millstream.pipeline.progress import Listener

        _hush_pyspark()
        _ship_user_code(self.flow)
        self._spark = spark
        self.checkpoint.attach(spark)
        if self.checkpoint.local is None:
            self.checkpoint.claim(self.plan)
        outputs = []
        for query in self.plan.queries:
            frames = Frames(partial(self._read, spark, query))
            for sink in query.sinks:
                frames.of(sink.stream)  # the whole way to every sink once, for what Spark has to say
            for tap in query.taps:
                _check_supported(spark, frames.tap(tap), query.output_mode, tap.at)
            outputs.append((query, *output(query, frames)))
        if self.plan.views:
            self._store = open_store(self.views)
            for query, _, views in outputs:
                for number, view in views.items():
                    self._store.prepare(view, where=query.sinks[number].at)
        self._listener = Listener(list(self.plan.queries), self._written, self.settings.on_progress)
        spark.streams.addListener(self._listener)
        # Each tap alone has passed Spark's check. It refuses several windows side by side in update mode,
        # which is only wrong for windows over windows; those are refused when they are declared.
        spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        for query, rows, views in outputs:
            delivery = Delivery(
                query,
                views,
                store=self._store,
                to_topics=WriteOptions.of(self._options()),
                stopping=self._stopping,
                attempts=self.checkpoint if self.flow.guarantee == "at-most-once" else None,
            )
            self._deliveries[query.name] = delivery
            writer = rows.writeStream.queryName(query.name).outputMode(query.output_mode)
            writer = writer.option("checkpointLocation", self.checkpoint.query(query.name)).foreachBatch(
                delivery
            )
            if self.settings.available_now:
                writer = writer.trigger(availableNow=True)
            elif self.settings.trigger is not None:
                writer = writer.trigger(processingTime=self.settings.trigger)
            self._queries[query.name] = writer.start()

    def _read(self, spark: SparkSession, query: Query, source: Source) -> DataFrame:
        reader = spark.readStream.format("millstream")
        for name, value in self._options().items():
            reader = reader.option(name, value)
        reader = reader.option("topic", source.topic).option("startingOffsets", source.start)
        reader = reader.option("groupId", self.plan.group(query))
        if source.max_rows is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(source.max_rows))
        return reader.load()

    def _options(self) -> dict[str, str]:
        connection = self.settings.connection
        secrets = {f"kafka.{name}": value for name, value in connection.options.items()}
        return {"bootstrap": connection.address, **secrets}

    def _written(self, query: str, batch: int) -> dict[str, int]:
        return self._deliveries[query].written.pop(batch, {})

    @property
    def unkeyed(self) -> int:
        """Rows that were left out of a view because their key was null."""
        return sum(delivery.unkeyed for delivery in self._deliveries.values())

    @property
    def running(self) -> bool:
        return any(query.isActive for query in self._queries.values())

    def failed(self) -> MillstreamError | None:
        """Why a query ended on its own, None if none did or all is well."""
        from millstream.pipeline.causes import condensed, line_in

        for name, query in self._queries.items():
            error = None if query.isActive or self._stopping.is_set() else query.exception()
            if error is not None:
                return TopologyError(f"query {name!r} failed: {condensed(error)}", where=line_in(str(error)))
        return None

    def stop(self, patience: float = 60.0) -> None:
        """End between two batches; what was read and not delivered is read again by the next run.

        A delivery under way is waited for. A query that has a batch to begin ends itself when it comes to
        deliver it; one that has nothing to do is stopped. (Spark can't interrupt a thread that waits for
        Python, so stopping it in the middle of a delivery would only wait, and then fail.)
        """
        self._stopping.set()
        deadline = time.monotonic() + patience
        for query in self._queries.values():
            while query.isActive and time.monotonic() < deadline:
                if str(query.status["message"]).startswith("Waiting"):
                    query.stop()
                time.sleep(0.02)
        self.close()

    def close(self) -> None:
        """Let go of the listener and the views; the session is the caller's."""
        if self._spark is not None and self._listener is not None:
            self._spark.streams.removeListener(self._listener)
            self._listener = None
        if self._store is not None:
            self._store.close()
            self._store = None


def _check_supported(spark: SparkSession, frame: DataFrame, mode: str, at: str) -> None:
    """Spark's own check of what a streaming query may do, on one arm."""
    from millstream.pipeline.causes import condensed

    java: Any = spark._jvm
    modes = java.org.apache.spark.sql.streaming.OutputMode
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), modes.Append() if mode == "append" else modes.Update()
        )
    except Exception as error:
        raise TopologyError(f"Spark can't run this as a stream: {condensed(error)}", where=at) from error


def _hush_pyspark() -> None:
    """PySpark logs every failed analysis, with its whole plan, before it raises it. We report it once."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).disabled = True


def _ship_user_code(flow: Topology) -> None:
    """Executors can't import the user's file: what they need of it travels with the job."""
    from pyspark import cloudpickle

    for stream in flow.streams:
        module = sys.modules.get(getattr(getattr(stream, "function", None), "__module__", ""))
        if module is not None and module.__name__.startswith("millstream_pipeline_"):
            cloudpickle.register_pickle_by_value(module)
