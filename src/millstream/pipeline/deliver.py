"""What a query gives, batch by batch, to its topics and views: the one place where results leave Spark.

Records first, acknowledged; then the views in one database transaction; then Spark notes the batch as done.
A crash in between runs the batch again: records may come twice (at-least-once), views take it once. With
at-most-once the batch is noted *before* it is delivered, and never delivered again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as fn

from millstream.pipeline.checkpoint import Checkpoint
from millstream.pipeline.frames import TAP, tap_column
from millstream.pipeline.outgoing import arriving, deleted, record
from millstream.pipeline.plan import Query
from millstream.pipeline.streams import Stream, TopicSink, ViewSink
from millstream.pipeline.views import Changes, View, ViewStore

_DELETED = "millstream_deleted"


class Stopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


class Delivery:
    """The ``foreachBatch`` of one query; ``views`` are those that it fills."""

    def __init__(
        self,
        query: Query,
        views: list[tuple[View, ViewSink]],
        *,
        store: ViewStore | None,
        write: Callable[[DataFrame], None],
        stopping: threading.Event,
        attempts: Checkpoint | None = None,
    ) -> None:
        self._query = query
        self._views = views
        self._store = store
        self._write = write
        self._stopping = stopping
        self._attempts = attempts
        self._topics = [sink for sink in query.sinks if isinstance(sink, TopicSink)]
        self.written: dict[int, dict[str, int]] = {}  # rows by sink, of batches not yet reported
        self.unkeyed = 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        if self._stopping.is_set():
            raise Stopped  # to return would mean that it was delivered
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        if self._attempts is not None and not self._attempts.begin(self._query.name, query_id, number):
            batch.write.format("noop").mode("append").save()  # the state must move on all the same
            return
        shared = len(self._query.sinks) > 1
        if shared:
            batch = batch.persist()  # worked out once, given several times
        try:
            counts = self._produce(batch) if self._topics else {}
            if self._views:
                counts.update(self._keep(batch, query_id, number))
            self.written[number] = counts
        finally:
            if shared:
                batch.unpersist()

    def _rows(self, batch: DataFrame) -> Callable[[Stream], DataFrame]:
        """The rows of a tap in this batch."""
        taps = self._query.taps

        def of(stream: Stream) -> DataFrame:
            index = next(index for index, tap in enumerate(taps) if tap is stream)
            rows = batch if len(taps) == 1 else batch.where(f"{TAP} = {index}")
            return rows.select(f"{tap_column(index)}.*")

        return of

    def _produce(self, batch: DataFrame) -> dict[str, int]:
        """All topics with one write: a record says where it goes."""
        rows = self._rows(batch)
        parts = [
            arriving(self._query, sink, rows).selectExpr(f"{record(sink)} AS record") for sink in self._topics
        ]
        records = parts[0]
        for part in parts[1:]:
            records = records.union(part)
        topics = sorted({sink.topic for sink in self._topics})
        counts = [fn.count_if(fn.col("topic") == topic).alias(topic) for topic in topics]
        counted = Observation()
        self._write(records.select("record.*").observe(counted, *counts))
        return {f"topic {topic}": int(counted.get[topic] or 0) for topic in topics}

    def _keep(self, batch: DataFrame, query_id: str, number: int) -> dict[str, int]:
        """All views in one transaction."""
        assert self._store is not None
        rows = self._rows(batch)
        changes = []
        for view, sink in self._views:
            found = (
                arriving(self._query, sink, rows).selectExpr("*", f"{deleted(sink)} AS {_DELETED}").collect()
            )
            changes.append(Changes(view, [row[:-1] for row in found], [row[-1] for row in found]))
        unkeyed = self._store.apply(query_id, number, changes)
        self.unkeyed += unkeyed or 0
        return {f"view {change.view.name}": len(change.rows) for change in changes}
