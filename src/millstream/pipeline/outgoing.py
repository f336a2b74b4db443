"""The way from a query's taps to its sinks, in SQL: records for topics, rows for views.

As text, because it is done with every batch: one statement is planned at once, where a chain of DataFrame
calls is analysed link by link.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from millstream.errors import TopologyError
from millstream.pipeline.expressions import no_such_column
from millstream.pipeline.frames import TAP, tap_column
from millstream.pipeline.plan import Query
from millstream.pipeline.schema import quoted
from millstream.pipeline.streams import (
    WINDOW_END,
    Aggregate,
    Otherwise,
    Rejected,
    Select,
    Stream,
    TopicSink,
    Union,
    ViewSink,
    Where,
)
from millstream.pipeline.taps import Arm, SharedState
from millstream.pipeline.views import View
from millstream.pipeline.windows import picked

RECORD_COLUMNS = ("topic", "key", "value", "headers", "timestamp")
BATCH = "millstream_batch"  # the table of a batch's rows
Columns = Callable[[Stream], list[tuple[str, str]]]  # a stream's columns and their types


def topic_records(query: Query, columns: Columns) -> str:
    """The statement that gives all records of a batch, each with the topic it goes to; empty if none go."""
    parts = [
        f"SELECT {record(arm.sink)} AS record FROM ({_way(query, arm, columns)})"
        for arm in query.arms
        if isinstance(arm.sink, TopicSink)
    ]
    return f"SELECT record.* FROM ({' UNION ALL '.join(parts)})" if parts else ""


def view_rows(query: Query, sink: ViewSink, columns: Columns) -> str:
    """The statement that gives a batch's rows of a view, and last whether a row takes its key out."""
    gone = f"coalesce(({sink.delete_when}), false)" if sink.delete_when is not None else "false"
    names = ", ".join(quoted(name) for name, _ in columns(sink.stream))
    return " UNION ALL ".join(
        f"SELECT {names}, {gone} AS millstream_deleted FROM ({_way(query, arm, columns)})"
        for arm in query.arms
        if arm.sink is sink
    )


def _way(query: Query, arm: Arm, columns: Columns) -> str:
    index = next(index for index, tap in enumerate(query.taps) if tap is arm.base)
    sql = f"SELECT {tap_column(index)}.* FROM {BATCH} WHERE {TAP} = {index}"
    at: Stream | None = None if isinstance(arm.base, SharedState) else arm.base
    for step, branch in arm.steps:
        if isinstance(step, Aggregate):
            assert isinstance(arm.base, SharedState)
            sql = picked(arm.base, step, sql)
        elif isinstance(step, Union):
            assert at is not None
            sql = f"SELECT {_in_union(step, branch, {name for name, _ in columns(at)}, columns)} FROM ({sql})"
        elif isinstance(step, Select):
            sql = f"SELECT {', '.join(step.expressions)} FROM ({sql})"
        else:
            sql = f"SELECT * FROM ({sql}) WHERE {_condition(step)}"
        at = step
    return sql


def _in_union(union: Union, branch: str, present: set[str], columns: Columns) -> str:
    """A branch's rows as the union has them: with its tag, and NULL where the branch has no such column."""
    parts = []
    for name, kind in columns(union):
        if name == union.tag:
            parts.append(f"'{branch}' AS {quoted(name)}")
        else:
            parts.append(quoted(name) if name in present else f"CAST(NULL AS {kind}) AS {quoted(name)}")
    return ", ".join(parts)


def _condition(step: Where | Otherwise) -> str:
    if isinstance(step, Where):
        return f"({step.condition})"
    return " AND ".join(f"NOT coalesce(({one}), false)" for one in step.conditions)


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
