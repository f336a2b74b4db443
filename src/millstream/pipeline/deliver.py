"""What a query gives, batch by batch, to its topics and views: the one place where results leave Spark.

Records first, acknowledged; then the views in one database transaction; then Spark notes the batch as done.
A crash in between runs the batch again: records may come twice (at-least-once), views take it once. With
at-most-once the batch is noted *before* it is delivered, and never delivered again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from millstream.pipeline.checkpoint import Checkpoint
from millstream.pipeline.options import WriteOptions
from millstream.pipeline.outgoing import BATCH
from millstream.pipeline.plan import Query
from millstream.pipeline.views import Changes, View, ViewStore

_SENT = "topic string, rows bigint"


class Stopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


class Delivery:
    """The ``foreachBatch`` of one query.

    ``records`` is the statement that gives what goes to topics, ``views`` those that give what goes to views.
    """

    def __init__(
        self,
        query: Query,
        *,
        records: str | None,
        views: list[tuple[View, str]],
        store: ViewStore | None,
        to_topics: WriteOptions,
        stopping: threading.Event,
        attempts: Checkpoint | None = None,
    ) -> None:
        self._query = query
        self._records = records
        self._views = views
        self._store = store
        self._produce = Produce(to_topics)
        self._stopping = stopping
        self._attempts = attempts
        self.written: dict[int, dict[str, int]] = {}  # rows by sink, of batches not yet reported
        self.unkeyed = 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        if self._stopping.is_set():
            raise Stopped  # to return would mean that it was delivered
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        if self._attempts is not None and not self._attempts.begin(self._query.name, query_id, number):
            batch.write.format("noop").mode("append").save()  # the state must move on all the same
            return
        shared = len(self._views) + (self._records is not None) > 1
        if shared:
            batch = batch.persist()  # worked out once, given several times
        batch.createOrReplaceTempView(BATCH)  # of this query alone: each has a session of its own
        try:
            counts = dict.fromkeys((sink.label for sink in self._query.sinks), 0)
            if self._records is not None:
                for row in self._few(batch, self._records).mapInArrow(self._produce, _SENT).collect():
                    counts[f"topic {row.topic}"] += row.rows
            if self._views:
                counts.update(self._keep(batch, query_id, number))
            self.written[number] = counts
        finally:
            if shared:
                batch.unpersist()

    def _few(self, batch: DataFrame, statement: str) -> DataFrame:
        """A statement's rows in as many partitions as there are cores: every branch of it brings its own,
        mostly empty, and a task costs more than its rows."""
        spark = batch.sparkSession
        return spark.sql(statement).coalesce(spark.sparkContext.defaultParallelism)

    def _keep(self, batch: DataFrame, query_id: str, number: int) -> dict[str, int]:
        """All views in one transaction."""
        assert self._store is not None
        changes = []
        for view, statement in self._views:
            found = self._few(batch, statement).collect()
            changes.append(Changes(view, [row[:-1] for row in found], [row[-1] for row in found]))
        self.unkeyed += self._store.apply(query_id, number, changes) or 0
        return {f"view {change.view.name}": len(change.rows) for change in changes}


class Produce:
    """Sends the records of a task and gives back how many went to each topic.

    A function of ``mapInArrow`` and not the data source's writer, which does the same: for that, Spark starts
    new Python processes with every batch.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from millstream.pipeline.sink import send_rows

        counts: Counter[str] = Counter()

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    for entry in batch.column("topic").value_counts().to_pylist():
                        counts[entry["values"]] += entry["counts"]
                    yield batch

        send_rows(self._options, counted())
        topics = list(counts)
        yield pa.RecordBatch.from_pydict(
            {"topic": topics, "rows": [counts[topic] for topic in topics]},
            schema=pa.schema([("topic", pa.string()), ("rows", pa.int64())]),
        )
