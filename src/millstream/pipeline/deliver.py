"""What a query gives, batch by batch, to its topics and views: the one place where results leave Spark.

Records first, acknowledged; then the views in one database transaction; then Spark notes the batch as done.
A crash in between runs the batch again: records may come twice (at-least-once), views take it once. With
at-most-once the batch is noted *before* it is delivered, and never delivered again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from millstream.pipeline.checkpoint import Checkpoint
from millstream.pipeline.options import WriteOptions
from millstream.pipeline.outgoing import BATCH, RECORD_COLUMNS
from millstream.pipeline.plan import Query
from millstream.pipeline.views import Changes, View, ViewStore

_SENT = "topic string, rows bigint"
_FEW = 20_000  # rows of a batch that are brought to the driver rather than written where they are


class Stopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


class Delivery:
    """The ``foreachBatch`` of one query.

    ``records`` is the statement that gives what goes to topics (empty if nothing does), ``views`` those that
    give what goes to views.
    """

    def __init__(
        self,
        query: Query,
        *,
        records: str,
        views: list[tuple[View, str]],
        store: ViewStore | None,
        to_topics: WriteOptions,
        stopping: threading.Event,
        attempts: Checkpoint | None = None,
    ) -> None:
        self._query = query
        self._records = records
        self._views = views
        parts = [(records, len(RECORD_COLUMNS))] if records else []
        self._everything = _together([*parts, *((rows, len(view.columns) + 1) for view, rows in views)])
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
        self.written[number] = dict.fromkeys((sink.label for sink in self._query.sinks), 0)
        if not self._views:
            batch.createOrReplaceTempView(BATCH)  # of this query alone: each has a session of its own
            self._to_topics(batch, number)
            return
        batch = batch.persist()  # worked out once, looked at several times
        try:
            batch.createOrReplaceTempView(BATCH)
            rows = batch.count()
            if rows <= _FEW:
                self._few(batch, query_id, number, rows)
            else:
                self._many(batch, query_id, number)
        finally:
            batch.unpersist()

    def _few(self, batch: DataFrame, query_id: str, number: int, rows: int) -> None:
        """A batch that fits into the hand: one statement brings all of it here, and we write it ourselves.
        A job of Spark's for each sink would cost more than the rows."""
        parts: list[pa.Table | None] = [None] * (bool(self._records) + len(self._views))
        if rows:
            table = _narrow(batch, self._everything).toArrow()
            for at in range(len(parts)):
                columns = [name for name in table.column_names if name.startswith(f"p{at}_")]
                parts[at] = table.filter(pc.equal(table.column("part"), at)).select(columns)
        if self._records:
            records = parts.pop(0)
            if records is not None and records.num_rows:
                named = records.rename_columns(list(RECORD_COLUMNS))
                self._count(number, self._produce(named.to_batches()))
        self._keep(query_id, number, parts)

    def _many(self, batch: DataFrame, query_id: str, number: int) -> None:
        if self._records:
            self._to_topics(batch, number)
        self._keep(query_id, number, [_narrow(batch, rows).toArrow() for _, rows in self._views])

    def _to_topics(self, batch: DataFrame, number: int) -> None:
        """Every task sends its own rows."""
        records = _narrow(batch, self._records)
        self._count(number, records.mapInArrow(self._produce, _SENT).toArrow().to_batches())

    def _count(self, number: int, sent: Iterable[pa.RecordBatch]) -> None:
        for batch in sent:
            for row in batch.to_pylist():
                self.written[number][f"topic {row['topic']}"] += row["rows"]

    def _keep(self, query_id: str, number: int, rows: Sequence[pa.Table | None]) -> None:
        """All views in one transaction."""
        assert self._store is not None
        changes = []
        for (view, _), found in zip(self._views, rows, strict=True):
            columns = [column.to_pylist() for column in found.columns] if found is not None else [[]]
            *values, deleted = columns
            changes.append(Changes(view, list(zip(*values, strict=True)), deleted))
            self.written[number][f"view {view.name}"] = len(deleted)
        self.unkeyed += self._store.apply(query_id, number, changes) or 0


def _together(statements: list[tuple[str, int]]) -> str:
    """One statement for several, each with the number of its columns: which of them, then all columns."""
    parts = []
    for part, (statement, width) in enumerate(statements):
        columns = [
            f"{f'c{at}' if other == part else 'NULL'} AS p{other}_{at}"
            for other, (_, others) in enumerate(statements)
            for at in range(others)
        ]
        names = ", ".join(f"c{at}" for at in range(width))
        parts.append(f"SELECT {part} AS part, {', '.join(columns)} FROM ({statement}) AS one({names})")
    return " UNION ALL ".join(parts)


def _narrow(batch: DataFrame, statement: str) -> DataFrame:
    """A statement's rows in as many partitions as there are cores: every branch of it brings its own, mostly
    empty, and a task costs more than its rows."""
    spark = batch.sparkSession
    return spark.sql(statement).coalesce(spark.sparkContext.defaultParallelism)


class Produce:
    """Sends the records of a task and gives back how many went to each topic.

    A function of ``mapInArrow`` and not the data source's writer, which does the same: for that, Spark starts
    new Python processes with every batch.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
