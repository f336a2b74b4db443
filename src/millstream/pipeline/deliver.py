"""What a query gives, batch by batch, to its topics and views: the one place where results leave Spark.

Records first, acknowledged; then the views in one database transaction; then Spark notes the batch as done.
A crash in between runs the batch again: records may come twice (at-least-once), views take it once. With
at-most-once the batch is noted *before* it is delivered, and never delivered again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from millstream.pipeline.checkpoint import Checkpoint
from millstream.pipeline.options import WriteOptions
from millstream.pipeline.outgoing import RECORD, SINK, view_column
from millstream.pipeline.plan import Query
from millstream.pipeline.views import Changes, View, ViewStore

_ROWS = "rows"


class Stopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


class Delivery:
    """The ``foreachBatch`` of one query: one job in which every task sends its own records and gives back
    the rows of views. ``views`` are by the number of their sink."""

    def __init__(
        self,
        query: Query,
        views: dict[int, View],
        *,
        store: ViewStore | None,
        to_topics: WriteOptions,
        stopping: threading.Event,
        attempts: Checkpoint | None = None,
    ) -> None:
        self._query = query
        self._views = views
        self._store = store
        self._stopping = stopping
        self._attempts = attempts
        self._send = Send(to_topics)
        self.written: dict[int, dict[str, int]] = {}  # rows by sink, of batches not yet reported
        self.unkeyed = 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        if self._stopping.is_set():
            raise Stopped  # to return would mean that it was delivered
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        if self._attempts is not None and not self._attempts.begin(self._query.name, query_id, number):
            batch.write.format("noop").mode("append").save()  # the state must move on all the same
            return
        kept = [f"{name} {kind}" for name, kind in batch.dtypes if name not in RECORD]
        back = batch.mapInArrow(self._send, f"{', '.join(kept)}, {_ROWS} bigint").toArrow()
        counts = dict.fromkeys((sink.label for sink in self._query.sinks), 0)
        for sink, rows in zip(back[SINK].to_pylist(), back[_ROWS].to_pylist(), strict=True):
            counts[self._query.sinks[sink].label] += rows
        if self._store is not None and self._views:
            changes = [self._changes(back, sink, view) for sink, view in self._views.items()]
            self.unkeyed += self._store.apply(query_id, number, changes) or 0
        self.written[number] = counts

    def _changes(self, back: pa.Table, sink: int, view: View) -> Changes:
        names = [view_column(sink, at) for at in range(len(view.columns) + 1)]
        rows = back.filter(pc.equal(back[SINK], sink)).select(names)
        *values, deleted = [column.to_pylist() for column in rows.columns]
        return Changes(view, list(zip(*values, strict=True)), deleted)


class Send:
    """Sends the records among a task's rows; gives back the other rows, and for each sink of records one row
    with their number.

    A function of ``mapInArrow`` and not the data source's writer, which does the same: for that, Spark starts
    new Python processes with every batch.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from millstream.pipeline.sink import send_rows

        for batch in batches:
            record = batch["topic"].is_valid()
            sent = batch.filter(record).select(list(RECORD))
            if sent.num_rows:
                send_rows(self._options, iter([sent]))
            yield from _given_back(batch, record)


def _given_back(batch: pa.RecordBatch, record: pa.Array) -> Iterator[pa.RecordBatch]:
    names = [name for name in batch.schema.names if name not in RECORD]
    fields = [pa.field(name, batch.schema.field(name).type) for name in names]
    schema = pa.schema([*fields, pa.field(_ROWS, pa.int64())])
    kept = batch.filter(pc.invert(record)).select(names)
    ones = pa.array([1] * kept.num_rows, pa.int64())
    yield pa.RecordBatch.from_arrays([*kept.columns, ones], schema=schema)
    for entry in batch[SINK].filter(record).value_counts().to_pylist():
        row = {name: [entry["values"] if name == SINK else None] for name in names}
        yield pa.RecordBatch.from_pydict({**row, _ROWS: [entry["counts"]]}, schema=schema)
