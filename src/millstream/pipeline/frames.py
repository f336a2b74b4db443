"""From streams to Spark DataFrames. The same code serves streaming reads and, in tests, plain tables.

Whatever Spark or a user's function says against it becomes a TopologyError at the line that declared the
stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.decode import accepted, decoded, rejected
from millstream.pipeline.expressions import no_such_column, output_name, without_alias
from millstream.pipeline.load import user_line
from millstream.pipeline.plan import Arm, Query
from millstream.pipeline.streams import (
    TIME_BASIS,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Operator,
    Otherwise,
    Rejected,
    Select,
    Source,
    SplitChannel,
    Stream,
    TopicSink,
    Union,
    ViewSink,
    Where,
)
from millstream.pipeline.views import View

# The columns of what a query gives: which sink, the record if it is for a topic, else the view's row.
SINK, RECORD = "sink", "record"
DELETE = "millstream_delete"
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def view_column(index: int) -> str:
    return f"view_{index}"


class Frames:
    """The DataFrame of every stream, made once. ``read`` gives a source's raw records."""

    def __init__(self, read: Callable[[Source], DataFrame]) -> None:
        self._read = read
        self._decoded: dict[int, DataFrame] = {}
        self._made: dict[int, Any] = {}

    def of(self, stream: Stream) -> DataFrame:
        frame = self._make(stream)
        if isinstance(frame, dict):
            raise TopologyError(
                f"operator {stream.name!r} splits into channels; go on from one of them, with"
                f" {stream.name}.channel(...)",
                where=stream.at,
            )
        return frame

    def _make(self, stream: Stream) -> Any:
        if id(stream) not in self._made:
            try:
                frame = self._apply(stream)
                if not isinstance(frame, dict):
                    _ = frame.schema  # analysed now, while we know whose line it is
            except MillstreamError:
                raise
            except Exception as error:
                raise TopologyError(condensed(error), where=stream.at) from error
            self._made[id(stream)] = frame
        return self._made[id(stream)]

    def _apply(self, stream: Stream) -> Any:
        if isinstance(stream, Source):
            return accepted(self._rows(stream), stream)
        if isinstance(stream, Rejected):
            return rejected(self._rows(stream.source))
        if isinstance(stream, Union):
            return self._union(stream)
        if isinstance(stream, Operator):
            return self._operate(stream, self.of(stream.inputs[0]))
        if isinstance(stream, SplitChannel):
            return self._make(stream.inputs[0])[stream.channel_name]
        if isinstance(stream, Aggregate):
            return _windowed(stream, self.of(stream.inputs[0]))
        return _step(stream, self.of(stream.inputs[0]))

    def _rows(self, source: Source) -> DataFrame:
        if id(source) not in self._decoded:
            self._decoded[id(source)] = decoded(self._read(source), source)
        return self._decoded[id(source)]

    def _union(self, union: Union) -> DataFrame:
        first, *others = [_tagged(union, self.of(part), part.name) for part in union.inputs]
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        return first

    def _operate(self, operator: Operator, frame: DataFrame) -> Any:
        function = operator.function
        try:
            result = function(frame)
            for made in result.values() if isinstance(result, dict) else [result]:
                if isinstance(made, DataFrame):
                    _ = made.schema
        except MillstreamError:
            raise
        except Exception as error:
            path = Path(function.__code__.co_filename)
            said = condensed(error)
            raise TopologyError(
                f"operator {operator.name!r} failed: {said}", where=user_line(error, path)
            ) from error
        if operator.channels is None:
            if not isinstance(result, DataFrame):
                raise TopologyError(
                    f"operator {operator.name!r} must return a DataFrame; it returned {type(result).__name__}"
                    + (" (is a return missing?)" if result is None else ""),
                    where=operator.at,
                )
        elif not isinstance(result, dict) or set(result) != set(operator.channels):
            raise TopologyError(
                f"operator {operator.name!r} must return a dict with a DataFrame for each of its channels:"
                f" {', '.join(operator.channels)}",
                where=operator.at,
            )
        return result

    # ---- what a query writes ------------------------------------------------------------------------

    def arm(self, arm: Arm) -> DataFrame:
        """The rows of an arm, with the steps it took over from a split union."""
        frame = self.of(arm.base)
        try:
            for step, name in arm.steps:
                frame = _tagged(step, frame, name) if isinstance(step, Union) else _step(step, frame)
            _ = frame.schema
        except Exception as error:
            raise TopologyError(condensed(error), where=arm.sink.at) from error
        return frame

    def output(self, query: Query) -> tuple[DataFrame, dict[int, View]]:
        """All that the query writes as one DataFrame, counted by sink, and the views it fills."""
        views: dict[int, View] = {}
        parts: list[DataFrame] = []
        for index, sink in enumerate(query.sinks):
            frames = [self.arm(arm) for arm in query.arms if arm.sink is sink]
            try:
                frame = frames[0]
                for other in frames[1:]:
                    frame = frame.unionByName(other, allowMissingColumns=True)
                if isinstance(sink, TopicSink):
                    row = _record(sink, frame).alias(RECORD)
                else:
                    views[index] = _view(sink, frame)
                    row = _view_row(sink, frame).alias(view_column(index))
                parts.append(frame.select(fn.lit(index).alias(SINK), row))
                _ = parts[-1].schema
            except MillstreamError:
                raise
            except Exception as error:
                raise TopologyError(condensed(error), where=sink.at) from error
        output = parts[0]
        for part in parts[1:]:
            output = output.unionByName(part, allowMissingColumns=True)
        counts = [
            fn.count_if(fn.col(SINK) == index).alias(f"sink_{index}") for index in range(len(query.sinks))
        ]
        return output.observe("out", *counts), views


def _step(stream: Stream, frame: DataFrame) -> DataFrame:
    if isinstance(stream, Where):
        return frame.where(stream.condition)
    if isinstance(stream, Otherwise):
        return frame.where(" AND ".join(f"NOT coalesce(({one}), false)" for one in stream.conditions))
    if isinstance(stream, Select):
        return frame.selectExpr(*stream.expressions)
    raise AssertionError(stream)


def _tagged(union: Union, frame: DataFrame, name: str) -> DataFrame:
    return frame.withColumn(union.tag, fn.lit(name)) if union.tag is not None else frame


def _windowed(stream: Aggregate, frame: DataFrame) -> DataFrame:
    spec, time = stream.window_spec, stream.inputs[0].time
    assert time is not None, "a window without a time is refused when it is declared"
    keys = [fn.expr(without_alias(key)).alias(str(output_name(key))) for key in spec.by]
    if spec.gap_ms is not None:
        bounds = fn.session_window(time.column, f"{spec.gap_ms} milliseconds")
    else:
        slide = spec.every_ms if spec.every_ms is not None else spec.size_ms
        bounds = fn.window(time.column, f"{spec.size_ms} milliseconds", f"{slide} milliseconds")
    aggregates = [fn.expr(sql).alias(name) for name, sql in stream.aggregates.items()]
    grouped = frame.groupBy(*keys, bounds.alias("_millstream_window")).agg(*aggregates)
    return grouped.select(
        *(str(output_name(key)) for key in spec.by),
        fn.col("_millstream_window.start").alias(WINDOW_START),
        fn.col("_millstream_window.end").alias(WINDOW_END),
        *stream.aggregates,
        fn.lit(time.basis).alias(TIME_BASIS),
    )


def _record(sink: TopicSink, frame: DataFrame) -> Any:
    """A row as a record: topic, key, value, headers, timestamp."""
    kinds = dict(frame.dtypes)
    headers = fn.lit(None).cast("array<struct<key:string,value:binary>>")
    if isinstance(sink.stream, Rejected) and sink.value is None:
        # As it came, so that it can be produced again; why and from where stand in the headers.
        value = fn.col("value")
        key = fn.col("key") if sink.key is None else _bytes(fn.expr(sink.key))
        said = ("reason", "topic", "partition", "offset")
        parts = [
            fn.struct(fn.lit(f"millstream-{n}").alias("key"), _bytes(fn.col(n)).alias("value")) for n in said
        ]
        headers = fn.array(*parts)
    else:
        if isinstance(sink.value, str):
            value = _bytes(fn.expr(sink.value))
        elif sink.value is not None:
            value = _bytes(fn.to_json(fn.struct(*map(fn.expr, sink.value)), _JSON))
        else:
            value = _bytes(fn.to_json(fn.struct(*(fn.col(f"`{name}`") for name in kinds)), _JSON))
        key = _bytes(fn.expr(sink.key)) if sink.key is not None else fn.lit(None).cast("binary")
    time = fn.expr(sink.time) if sink.time is not None else fn.lit(None)
    return fn.struct(
        fn.lit(sink.topic).alias("topic"),
        key.cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        headers.alias("headers"),
        time.cast("timestamp").alias("timestamp"),
    )


def _bytes(column: Any) -> Any:
    """Bytes stay bytes, everything else is its text in UTF-8."""
    return column.cast("string").cast("binary")


def _view(sink: ViewSink, frame: DataFrame) -> View:
    order = sink.order
    if order is None:
        names = [WINDOW_END, *([sink.stream.time.column] if sink.stream.time is not None else [])]
        order = next((name for name in names if name in frame.columns), None)
    for column in (*sink.key, *([order] if order else [])):
        if column not in frame.columns:
            raise TopologyError(
                f"view {sink.name!r}: {no_such_column(column, frame.columns)}",
                where=sink.at,
            )
    return View(sink.name, tuple((name, kind) for name, kind in frame.dtypes), sink.key, order)


def _view_row(sink: ViewSink, frame: DataFrame) -> Any:
    delete = fn.expr(f"coalesce(({sink.delete_when}), false)") if sink.delete_when else fn.lit(False)
    return fn.struct(*(fn.col(f"`{name}`") for name in frame.columns), delete.alias(DELETE))


def condensed(error: BaseException) -> str:
    """What went wrong in a line or two: no stack, no plan, no SQLSTATE."""
    text = str(error)
    python = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception)\w*: .*)$", text, re.MULTILINE)
    if "Traceback (most recent call last)" in text and python:
        return str(python[-1])
    cause = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    first = cause[-1] if cause else next((line for line in text.splitlines() if line.strip()), "")
    first = re.sub(r"^(?:\[STREAM_FAILED\].*?with exception: )?", "", first)
    first = re.sub(r"^(?:[a-z]\w*\.)+(\w+): ", "", first)
    first = re.sub(r"^\[[A-Z_.]+\] ", "", first)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first).strip().rstrip(";")
    if type(error).__module__.startswith(("pyspark", "py4j")) or first.startswith(type(error).__name__):
        return first
    return f"{type(error).__name__}: {first}"
