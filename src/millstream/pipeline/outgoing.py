"""From the rows of a query's taps to what its sinks take: records for topics, rows for views."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from millstream.errors import TopologyError
from millstream.pipeline.expressions import no_such_column
from millstream.pipeline.frames import step, tagged
from millstream.pipeline.plan import Query
from millstream.pipeline.streams import WINDOW_END, Rejected, Sink, Stream, TopicSink, Union, ViewSink
from millstream.pipeline.views import View


def arriving(query: Query, sink: Sink, rows: Callable[[Stream], DataFrame]) -> DataFrame:
    """The rows that a sink gets, from those of the query's taps."""
    frames = []
    for arm in query.arms:
        if arm.sink is sink:
            frame = rows(arm.base)
            for taken, branch in arm.steps:
                frame = tagged(taken, frame, branch) if isinstance(taken, Union) else step(taken, frame)
            frames.append(frame)
    first, *others = frames
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first


def record(sink: TopicSink) -> str:
    """A row as a record, in SQL: a struct of topic, key, value, headers and timestamp."""
    key = _bytes(sink.key) if sink.key is not None else "CAST(NULL AS binary)"
    headers = "CAST(NULL AS array<struct<key:string,value:binary>>)"
    if isinstance(sink.value, str):
        value = _bytes(sink.value)
    elif sink.value is not None:
        value = _json(", ".join(sink.value))
    elif isinstance(sink.stream, Rejected):
        # As it came, so that it can be produced again; why and from where stand in the headers.
        value = "value"
        key = key if sink.key is not None else "key"
        said = ("reason", "topic", "partition", "offset")
        pairs = [f"struct('millstream-{name}' AS key, {_bytes(name)} AS value)" for name in said]
        headers = f"array({', '.join(pairs)})"
    else:
        value = _json("*")
    time = f"CAST({sink.time} AS timestamp)" if sink.time is not None else "CAST(NULL AS timestamp)"
    parts = (f"'{sink.topic}' AS topic", f"{key} AS key", f"{value} AS value", f"{headers} AS headers")
    return f"struct({', '.join(parts)}, {time} AS timestamp)"


def _bytes(expression: str) -> str:
    """Bytes stay bytes, everything else is its text in UTF-8."""
    return f"CAST(CAST({expression} AS string) AS binary)"


def _json(columns: str) -> str:
    # Microseconds, as Spark has them; its default for JSON cuts them off.
    form = "map('timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')"
    return f"CAST(to_json(struct({columns}), {form}) AS binary)"


def view_of(sink: ViewSink, frame: DataFrame) -> View:
    """The table that a view's rows make."""
    order = sink.order
    if order is None:
        names = [WINDOW_END, *([sink.stream.time.column] if sink.stream.time is not None else [])]
        order = next((name for name in names if name in frame.columns), None)
    for column in (*sink.key, *([order] if order else [])):
        if column not in frame.columns:
            raise TopologyError(f"view {sink.name!r}: {no_such_column(column, frame.columns)}", where=sink.at)
    return View(sink.name, tuple((name, kind) for name, kind in frame.dtypes), sink.key, order)


def deleted(sink: ViewSink) -> str:
    """Whether a row takes its key out of the view, in SQL."""
    return f"coalesce(({sink.delete_when}), false)" if sink.delete_when is not None else "false"
