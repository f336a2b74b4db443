"""Turns the rows of a query's outputs into what its sinks take: records for topics, rows for views.

Everything that happens to a row on its way (conditions, selections, tags, the encoding as JSON) is composed
into one SQL expression for each sink. An output's rows thus become what its sinks take in a single pass
within Spark's streaming plan, and nothing has to be planned again for every batch.

All rows that a query gives have the same columns: ``sink`` (the sink's number), the columns of a record, and
the columns of each view.

A record's headers travel as text here. For every row that Spark passes to Python, it asks every column for
its size. For an array of structs that takes ten times as long as for all other columns together, even where
the array is null, which it almost always is.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.counts import PASSED
from millstream.pipeline.dsl.expressions import no_such_column
from millstream.pipeline.dsl.graph import StreamNode, TopicSink, ViewSink
from millstream.pipeline.kernel.channels import WINDOW_END
from millstream.pipeline.planning.outputs import Route
from millstream.pipeline.planning.plan import Query
from millstream.pipeline.planning.sink_columns import RECORD, SINK, view_column
from millstream.pipeline.spark.failures import condensed
from millstream.pipeline.spark.lowering.frames import Frames
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose
from millstream.sqltypes.ddl import quoted
from millstream.views.views import View


def sink_rows(query: Query, frames: Frames) -> tuple[DataFrame, dict[int, View]]:
    """All output of the query as one DataFrame, and the views among its sinks by their numbers."""
    views = {
        number: view_of(sink, frames.of(sink.stream))
        for number, sink in enumerate(query.sinks)
        if isinstance(sink, ViewSink)
    }
    ways = [
        (route, row, _sent(row, route, query, frames))
        for route in query.routes
        for row in [_travelled(route, frames)]
    ]
    shape = {SINK: "int"}
    shape |= {name: kind for name, kind in RECORD.items() if any(name in made for _, _, made in ways)}
    for number, view in views.items():
        kinds = [*(kind for _, kind in view.columns), "boolean"]
        shape |= {view_column(number, at): kind for at, kind in enumerate(kinds)}
    parts = []
    for place, output in enumerate(query.outputs):
        rows, given = frames.of(output), []
        for route, row, made in ways:
            if route.output is output:
                entry = [
                    f"{made.get(name, f'CAST(NULL AS {kind})')} AS {name}" for name, kind in shape.items()
                ]
                given.append(SinkRow(entry, row.condition))
                _check(rows, given[-1].sql, route)
        passing = [row for route, row, _ in ways if route.output is output]
        parts.append(_spread(_counted(rows, place, passing), given))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole, views


@dataclass(frozen=True, slots=True)
class SinkRow:
    """What a sink gets from an output's row: its columns, and the condition, if there is one."""

    entry: list[str]
    held: str

    @property
    def sql(self) -> str:
        made = f"struct({', '.join(self.entry)})"
        return f"if({self.held}, {made}, NULL)" if self.held else made


def _spread(frame: DataFrame, given: list[SinkRow]) -> DataFrame:
    """One row for each thing that an output's row gives. A single thing needs no array to explode."""
    if len(given) == 1:
        rows = frame.where(given[0].held) if given[0].held else frame
        return rows.selectExpr(*given[0].entry)
    every = ", ".join(one.sql for one in given)
    return frame.select(fn.expr(f"explode(array_compact(array({every})))").alias("given")).select("given.*")


def _counted(frame: DataFrame, place: int, ways: list[ComposedRow]) -> DataFrame:
    """The same rows. Spark counts as a metric how many of them belong to each stream between output and
    sinks."""
    passed = dict.fromkeys(each for row in ways for each in row.passed)
    if not passed:
        return frame
    counts = [
        fn.expr(f"count_if({condition})").alias(f"{at} {name}") for at, (name, condition) in enumerate(passed)
    ]
    return frame.observe(f"{PASSED} {place}", *counts)


def _check(frame: DataFrame, expression: str, route: Route) -> None:
    """Report at the sink's line what Spark rejects. Everything before the sink was checked at its own
    line."""
    try:
        _ = frame.select(fn.expr(expression).alias("given")).schema
    except Exception as error:
        raise TopologyError(condensed(error), where=route.sink.at) from error


def _travelled(route: Route, frames: Frames) -> ComposedRow:
    """An output's row after all steps of a route."""
    start = route.output
    row = ComposedRow(start, {name: quoted(name) for name in frames.of(start).columns})
    if isinstance(start, StreamNode) and frames.is_counted(start) and not start.counted_where_it_runs:
        row.passed.append((start.name, "true"))
    for stream, tag in route.steps:
        compose(stream, row, tag, frames)
        if frames.is_counted(stream):
            row.passed.append((stream.name, row.condition or "true"))
    return row


def _sent(row: ComposedRow, route: Route, query: Query, frames: Frames) -> dict[str, str]:
    """What a sink takes of a row: the SQL of the sink's own columns."""
    sink = route.sink
    number = next(number for number, other in enumerate(query.sinks) if other is sink)
    if isinstance(sink, TopicSink):
        made = _record(sink, row)
        if sink.value_schema is not None and frames.encode is not None:
            made["value"] = _encoded(made["value"], sink, row, route, frames)
        return {SINK: str(number), **made}
    values = [*row.columns.values(), f"coalesce(({row.sql(sink.delete_when or 'false')}), false)"]
    return {SINK: str(number), **{view_column(number, at): value for at, value in enumerate(values)}}


def _record(sink: TopicSink, row: ComposedRow) -> dict[str, str]:
    """The record made of a row: its key, value, headers and time in SQL."""
    made: dict[str, str] = {}
    if sink.key is not None:
        made["key"] = _bytes(row.sql(sink.key))
    if sink.time is not None:
        made["timestamp"] = f"CAST({row.sql(sink.time)} AS timestamp)"
    if isinstance(sink.value, str):
        made["value"] = _bytes(row.sql(sink.value))
    elif sink.value is not None:
        made["value"] = row.sql(_json(", ".join(sink.value)))
    elif sink.stream.is_record:
        # The value stays as it came, so that it can be produced again. The headers say why it was rejected
        # and where it came from.
        made["value"] = row.columns["value"]
        made.setdefault("key", row.columns["key"])
        said = ("reason", "topic", "partition", "offset")
        named = [f"CAST({row.columns[n]} AS string) AS `millstream-{n}`" for n in said]
        made["headers"] = f"to_json(struct({', '.join(named)}))"
    else:
        made["value"] = row.sql(_json("*"))
    if sink.delete_when is not None:
        made["value"] = f"if(coalesce(({row.sql(sink.delete_when)}), false), NULL, {made['value']})"
    return made


def _encoded(json: str, sink: TopicSink, row: ComposedRow, route: Route, frames: Frames) -> str:
    """The value of a record encoded by its schema instead of as JSON; null where the JSON would be null."""
    assert frames.encode is not None
    columns = row.sql(f"struct({', '.join(sink.value) if isinstance(sink.value, tuple) else '*'})")
    [(_, kind)] = frames.of(route.output).select(fn.expr(columns).alias("value")).dtypes
    function = frames.encode(sink, kind)
    if function is None:
        return json
    made = f"{function}({columns})"
    if sink.delete_when is None:
        return made
    return f"if(coalesce(({row.sql(sink.delete_when)}), false), NULL, {made})"


def _bytes(expression: str) -> str:
    """Bytes stay bytes; everything else becomes its text in UTF-8."""
    return f"CAST(CAST(({expression}) AS string) AS binary)"


def _json(columns: str) -> str:
    # Microseconds, as Spark stores them; its default format for JSON truncates them.
    micros = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS"
    form = f"map('timestampFormat', '{micros}XXX', 'timestampNTZFormat', '{micros}')"
    return f"CAST(to_json(struct({columns}), {form}) AS binary)"


def view_of(sink: ViewSink, frame: DataFrame) -> View:
    """The table for a view's rows. Without ``order=``, the window's end or the stream's time decides."""
    order = sink.order
    if order is None:
        names = [WINDOW_END, *([sink.stream.time.column] if sink.stream.time is not None else [])]
        order = next((name for name in names if name in frame.columns), None)
    indexed = [column for columns in sink.indexes for column in columns]
    for column in (*sink.key, *([order] if order else []), *indexed):
        if column not in frame.columns:
            raise TopologyError(f"view {sink.name!r}: {no_such_column(column, frame.columns)}", where=sink.at)
    columns = tuple((name, kind) for name, kind in frame.dtypes)
    return View(sink.name, columns, sink.key, order, job=sink.stream.flow.name, indexes=sink.indexes)
