"""Turns the rows of a query's taps into what its sinks take: records for topics, rows for views.

Everything that happens to a row on its way (conditions, selections, tags, the encoding as JSON) is composed
into one SQL expression for each sink. A tap's rows thus become what its sinks take in a single pass within
Spark's streaming plan, and nothing has to be planned again for every batch.

All rows that a query gives have the same columns: ``sink`` (the sink's number), the columns of a record, and
the columns of each view.

A record's headers travel as text here. For every row that Spark passes to Python, it asks every column for
its size. For an array of structs that takes ten times as long as for all other columns together, even where
the array is null, which it almost always is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.expressions import no_such_column, with_columns, without_alias
from millstream.pipeline.dsl.sinks import TopicSink, ViewSink
from millstream.pipeline.dsl.stateful import StatefulChannel
from millstream.pipeline.dsl.streams import Operator, Rejected, Select, SplitChannel, Stream, Union, Where
from millstream.pipeline.dsl.windows import Aggregate
from millstream.pipeline.kernel.channels import WINDOW_END
from millstream.pipeline.planning.outputs import Arm, SharedState
from millstream.pipeline.planning.plan import Query
from millstream.pipeline.spark.causes import condensed
from millstream.pipeline.spark.frames import Frames
from millstream.pipeline.spark.native_windows import picked
from millstream.sqltypes.ddl import quoted
from millstream.views.views import View

SINK = "sink"
PASSED = "passed"  # how the names of Spark's observed metrics of a tap begin: ``passed 0``
RECORD = {  # no topic, because each sink has its own; columns that no sink of a query fills are left out
    "key": "binary",
    "value": "binary",
    "headers": "string",  # a JSON object; see above
    "timestamp": "timestamp",
}
Columns = Callable[[Stream], list[tuple[str, str]]]  # a stream's columns and their types


def view_column(sink: int, column: int) -> str:
    return f"view_{sink}_{column}"


@dataclass(slots=True)
class Row:
    """A row on its way: the conditions that let it through, and the SQL of each of its columns."""

    columns: dict[str, str]
    conditions: list[str] = field(default_factory=list)
    passed: list[tuple[str, str]] = field(default_factory=list)  # streams to count, and the rows' condition

    def sql(self, expression: str) -> str:
        return with_columns(expression, self.columns)


def output(query: Query, frames: Frames) -> tuple[DataFrame, dict[int, View]]:
    """All output of the query as one DataFrame, and the views among its sinks by their numbers."""

    def columns(stream: Stream) -> list[tuple[str, str]]:
        return list(frames.of(stream).dtypes)

    views = {
        number: view_of(sink, frames.of(sink.stream))
        for number, sink in enumerate(query.sinks)
        if isinstance(sink, ViewSink)
    }
    ways = [
        (arm, row, _sent(row, arm, query, frames))
        for arm in query.arms
        for row in [_travelled(arm, frames, columns)]
    ]
    shape = {SINK: "int"}
    shape |= {name: kind for name, kind in RECORD.items() if any(name in made for _, _, made in ways)}
    for number, view in views.items():
        kinds = [*(kind for _, kind in view.columns), "boolean"]
        shape |= {view_column(number, at): kind for at, kind in enumerate(kinds)}
    parts = []
    for place, tap in enumerate(query.taps):
        given = []
        for arm, row, made in ways:
            if arm.base is tap:
                entry = [
                    f"{made.get(name, f'CAST(NULL AS {kind})')} AS {name}" for name, kind in shape.items()
                ]
                given.append(Given(entry, _all(row.conditions)))
                _check(frames.tap(tap), given[-1].sql, arm)
        rows = _counted(frames.tap(tap), place, [row for arm, row, _ in ways if arm.base is tap])
        parts.append(_spread(rows, given))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole, views


@dataclass(frozen=True, slots=True)
class Given:
    """What a sink gets from a tap's row: its columns, and the condition, if there is one."""

    entry: list[str]
    held: str

    @property
    def sql(self) -> str:
        made = f"struct({', '.join(self.entry)})"
        return f"if({self.held}, {made}, NULL)" if self.held else made


def _spread(frame: DataFrame, given: list[Given]) -> DataFrame:
    """One row for each thing that a tap's row gives. A single thing needs no array to explode."""
    if len(given) == 1:
        rows = frame.where(given[0].held) if given[0].held else frame
        return rows.selectExpr(*given[0].entry)
    every = ", ".join(one.sql for one in given)
    return frame.select(fn.expr(f"explode(array_compact(array({every})))").alias("given")).select("given.*")


def _counted(frame: DataFrame, place: int, ways: list[Row]) -> DataFrame:
    """The same rows. Spark counts as a metric how many of them belong to each stream between tap and
    sinks."""
    passed = dict.fromkeys(each for row in ways for each in row.passed)
    if not passed:
        return frame
    counts = [
        fn.expr(f"count_if({condition})").alias(f"{at} {name}") for at, (name, condition) in enumerate(passed)
    ]
    return frame.observe(f"{PASSED} {place}", *counts)


def _check(frame: DataFrame, expression: str, arm: Arm) -> None:
    """Report at the sink's line what Spark rejects. Everything before the sink was checked at its own
    line."""
    try:
        _ = frame.select(fn.expr(expression).alias("given")).schema
    except Exception as error:
        raise TopologyError(condensed(error), where=arm.sink.at) from error


def _travelled(arm: Arm, frames: Frames, columns: Columns) -> Row:
    """A tap's row after all steps of an arm."""
    frame = frames.tap(arm.base)
    row = Row({name: quoted(name) for name in frame.columns})
    base = arm.base
    if isinstance(base, Stream) and not isinstance(base, Operator | SplitChannel) and frames.is_counted(base):
        row.passed.append((base.name, "true"))  # a user's operator is counted where it runs
    for step, branch in arm.steps:
        if isinstance(step, StatefulChannel) and not step.native:
            condition, made = frames.kernels.picked(step)
            row = Row(made, [condition], row.passed)
        elif isinstance(step, Aggregate):
            assert isinstance(arm.base, SharedState)
            condition, made = picked(arm.base, step)
            row = Row(made, [condition], row.passed)
        elif isinstance(step, Union):
            row.columns = {
                name: row.columns.get(name, f"CAST(NULL AS {kind})") for name, kind in columns(step)
            }
            if step.tag is not None:
                row.columns[step.tag] = f"'{branch}'"
        elif isinstance(step, Select):
            row.columns = _selected(step, row, [name for name, _ in columns(step)])
        elif isinstance(step, Where):
            row.conditions.append(row.sql(step.condition))
        else:
            row.conditions += [f"NOT coalesce(({row.sql(one)}), false)" for one in step.conditions]
        if frames.is_counted(step):
            row.passed.append((step.name, _all(row.conditions) or "true"))
    return row


def _all(conditions: list[str]) -> str:
    return " AND ".join(f"({one})" for one in conditions)


def _selected(select: Select, row: Row, names: list[str]) -> dict[str, str]:
    """The columns after a selection. ``names`` come from Spark, which also names what the user did not."""
    made: list[str] = []
    for expression in select.expressions:
        made += row.columns.values() if expression == "*" else [row.sql(without_alias(expression))]
    if len(made) != len(names):
        raise MillstreamError(f"{select.at}: write the columns of this selection out, without patterns")
    return dict(zip(names, made, strict=True))


def _sent(row: Row, arm: Arm, query: Query, frames: Frames) -> dict[str, str]:
    """What a sink takes of a row: the SQL of the sink's own columns."""
    sink = arm.sink
    number = next(number for number, other in enumerate(query.sinks) if other is sink)
    if isinstance(sink, TopicSink):
        made = _record(sink, row)
        if sink.encoding is not None and frames.encode is not None:
            made["value"] = _encoded(made["value"], sink, row, arm, frames)
        return {SINK: str(number), **made}
    values = [*row.columns.values(), f"coalesce(({row.sql(sink.delete_when or 'false')}), false)"]
    return {SINK: str(number), **{view_column(number, at): value for at, value in enumerate(values)}}


def _record(sink: TopicSink, row: Row) -> dict[str, str]:
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
    elif isinstance(sink.stream, Rejected):
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


def _encoded(json: str, sink: TopicSink, row: Row, arm: Arm, frames: Frames) -> str:
    """The value of a record encoded by its schema instead of as JSON; null where the JSON would be null."""
    assert frames.encode is not None
    columns = row.sql(f"struct({', '.join(sink.value) if isinstance(sink.value, tuple) else '*'})")
    [(_, kind)] = frames.tap(arm.base).select(fn.expr(columns).alias("value")).dtypes
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
    for column in (*sink.key, *([order] if order else [])):
        if column not in frame.columns:
            raise TopologyError(f"view {sink.name!r}: {no_such_column(column, frame.columns)}", where=sink.at)
    columns = tuple((name, kind) for name, kind in frame.dtypes)
    return View(sink.name, columns, sink.key, order, job=sink.stream.flow.name)
