"""What a query gives, batch by batch, to its topics and views: the one place where results leave Spark.

Records first, acknowledged; then the views in one database transaction; then Spark notes the batch as done.
A crash in between runs the batch again: records may come twice (at-least-once), views take it once. With
at-most-once the batch is noted *before* it is delivered, and never delivered again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.pipeline.checkpoint import Checkpoint
from millstream.pipeline.frames import DELETE, RECORD, SINK, view_column
from millstream.pipeline.plan import Query
from millstream.pipeline.streams import TopicSink
from millstream.pipeline.views import Changes, View, ViewStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Stopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


class Brake:
    """Stops queries between two batches: none is cut off while it delivers, none is begun and half done."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._released = threading.Event()
        self._held: set[str] = set()

    def pull(self) -> None:
        """From now on every query stops before its next delivery."""
        self._wanted.set()

    def release(self) -> None:
        """The queries have been stopped: let go of the calls that wait."""
        self._released.set()

    def holds(self, query: str) -> bool:
        return query in self._held

    def pass_by(self, query: str) -> None:
        """Called before a delivery. Once the brake is pulled it doesn't return, which would mean "done"."""
        if self._wanted.is_set():
            self._held.add(query)
            self._released.wait()
            raise Stopped


class Delivery:
    """The ``foreachBatch`` of one query."""

    def __init__(
        self,
        query: Query,
        views: dict[int, View],
        *,
        store: ViewStore | None,
        write: Callable[[DataFrame], None],
        brake: Brake,
        attempts: Checkpoint | None = None,
        on_unkeyed: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._query = query
        self._views = views
        self._store = store
        self._write = write
        self._brake = brake
        self._attempts = attempts
        self._on_unkeyed = on_unkeyed
        self._has_topics = any(isinstance(sink, TopicSink) for sink in query.sinks)

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._brake.pass_by(self._query.name)
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        if self._attempts is not None and not self._attempts.begin(self._query.name, query_id, number):
            batch.write.format("noop").mode("append").save()  # the state must move on all the same
            return
        both = self._has_topics and bool(self._views)
        if both:
            batch = batch.persist()  # worked out once, given twice
        try:
            if self._has_topics:
                self._write(batch.where(f"{RECORD} IS NOT NULL").select(f"{RECORD}.*"))
            if self._views:
                self._keep(batch, query_id, number)
        finally:
            if both:
                batch.unpersist()

    def _keep(self, batch: DataFrame, query_id: str, number: int) -> None:
        assert self._store is not None
        names = [view_column(index) for index in self._views]
        rows = batch.where(f"{SINK} IN ({', '.join(map(str, self._views))})").select(SINK, *names).collect()
        changes = []
        for index, view in self._views.items():
            found = [row[view_column(index)] for row in rows if row[SINK] == index]
            width = len(view.columns)
            changes.append(
                Changes(view, [tuple(row)[:width] for row in found], [row[DELETE] for row in found])
            )
        unkeyed = self._store.apply(query_id, number, changes)
        if unkeyed:
            self._on_unkeyed(unkeyed)
