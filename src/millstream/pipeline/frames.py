"""From streams to Spark DataFrames. The same code serves streaming reads and, in tests, plain tables.

Whatever Spark or a user's function says against it becomes a TopologyError at the line that declared the
stream.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.causes import condensed
from millstream.pipeline.decode import accepted, decoded, rejected
from millstream.pipeline.load import user_line
from millstream.pipeline.streams import (
    Aggregate,
    Operator,
    Otherwise,
    Rejected,
    Select,
    Source,
    SplitChannel,
    Stream,
    Union,
    Where,
)
from millstream.pipeline.taps import SharedState, Tap
from millstream.pipeline.windows import one_window, shared_windows


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
            return operated(stream, self.of(stream.inputs[0]))
        if isinstance(stream, SplitChannel):
            return self._make(stream.inputs[0])[stream.channel_name]
        if isinstance(stream, Aggregate):
            return one_window(stream, self.of(stream.inputs[0]))
        return step(stream, self.of(stream.inputs[0]))

    def _rows(self, source: Source) -> DataFrame:
        if id(source) not in self._decoded:
            self._decoded[id(source)] = decoded(self._read(source), source)
        return self._decoded[id(source)]

    def _union(self, union: Union) -> DataFrame:
        first, *others = [tagged(union, self.of(part), part.name) for part in union.inputs]
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        return first

    def tap(self, tap: Tap) -> DataFrame:
        """The rows that leave the streaming plan at a tap."""
        if not isinstance(tap, SharedState):
            return self.of(tap)
        try:
            frame = shared_windows(tap, self.of(tap.base))
            _ = frame.schema
        except MillstreamError:
            raise
        except Exception as error:
            raise TopologyError(condensed(error), where=tap.at) from error
        return frame


def operated(operator: Operator, frame: DataFrame) -> Any:
    """What the user's function makes of a DataFrame; its mistakes at its line."""
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


def step(stream: Stream, frame: DataFrame) -> DataFrame:
    if isinstance(stream, Where):
        return frame.where(stream.condition)
    if isinstance(stream, Otherwise):
        return frame.where(" AND ".join(f"NOT coalesce(({one}), false)" for one in stream.conditions))
    if isinstance(stream, Select):
        return frame.selectExpr(*stream.expressions)
    raise AssertionError(stream)


def tagged(union: Union, frame: DataFrame, name: str) -> DataFrame:
    return frame.withColumn(union.tag, fn.lit(name)) if union.tag is not None else frame
