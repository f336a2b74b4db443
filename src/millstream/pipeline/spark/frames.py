"""Builds the Spark DataFrames of streams, over streaming reads or, in tests, over plain tables.

An error from Spark or from a user's function becomes a TopologyError at the line that declared the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.sinks import TopicSink
from millstream.pipeline.dsl.stateful import Stateful, StatefulChannel
from millstream.pipeline.dsl.streams import (
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
from millstream.pipeline.dsl.windows import Aggregate
from millstream.pipeline.formats.decode import accepted, decoded, rejected
from millstream.pipeline.kernel.spark import Keeping
from millstream.pipeline.planning.counting import stream_count
from millstream.pipeline.planning.outputs import Tap
from millstream.pipeline.spark.causes import condensed
from millstream.pipeline.spark.kernel_frames import Kernels
from millstream.pipeline.spark.native_windows import WATERMARK, one_window, shared_windows
from millstream.pipeline.spark.operators import check_time, operated


class Frames:
    """The DataFrame of every stream, made once. ``read`` gives a source's raw records."""

    def __init__(
        self,
        read: Callable[[Source], DataFrame],
        *,
        run: str = "",
        output_mode: str = "update",
        keeping: Callable[[Stateful], Keeping] = lambda stateful: Keeping(),
        encode: Callable[[TopicSink, str], str | None] | None = None,
        counted: Collection[str] = (),
    ) -> None:
        """``encode`` gives the SQL function that makes a sink's values of structs of some type; without it,
        as in tests, values stay JSON. ``counted`` are the counts that are wanted (counting.py)."""
        self.encode = encode
        self._counts = counted
        self._read = read
        self._decoded: dict[int, DataFrame] = {}
        self._made: dict[int, Any] = {}
        self._before_windows: set[int] | None = None
        self.kernels = Kernels(self.rows, run, output_mode, keeping)

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
                    _ = frame.schema  # analysed now, while it is known whose line it is
            except MillstreamError:
                raise
            except Exception as error:
                raise TopologyError(condensed(error), where=stream.at) from error
            self._made[id(stream)] = frame
        return self._made[id(stream)]

    def _apply(self, stream: Stream) -> Any:
        if isinstance(stream, Source):
            frame = accepted(self.rows(stream), stream)
            if stream.time is None:
                return frame
            return frame.withWatermark(stream.time.column, f"{stream.time.lateness_ms} milliseconds")
        if isinstance(stream, Rejected):
            return rejected(self.rows(stream.source))
        if isinstance(stream, Union):
            return self._union(stream)
        if isinstance(stream, Operator):
            made = operated(stream, self.of(stream.inputs[0]))
            return made if isinstance(made, dict) else self._counted(stream, made)
        if isinstance(stream, SplitChannel):
            return self._counted(stream, self._make(stream.inputs[0])[stream.channel_name])
        if isinstance(stream, StatefulChannel) and not stream.native:
            return self.kernels.channel(stream)
        if isinstance(stream, Aggregate):
            return one_window(stream, self._in_time(stream.inputs[0]))
        return step(stream, self.of(stream.inputs[0]), tells_time=self._tells_time(stream))

    def _tells_time(self, stream: Stream) -> bool:
        """True if the rows that this stream filters out still advance the watermark of a Spark window."""
        if self._before_windows is None:
            windows = [one for one in stream.flow.streams if isinstance(one, Aggregate) and one.native]
            self._before_windows = {id(node) for window in windows for node in window.upstream()}
        return id(stream) in self._before_windows

    def _in_time(self, stream: Stream) -> DataFrame:
        """A stream's rows for one of Spark's own windows. Spark recognises the time column by its metadata,
        which a user's function may have lost. Without it, no row would be late and no state be dropped."""
        frame = self.of(stream)
        check_time(stream, frame)
        assert stream.time is not None
        if WATERMARK in (frame.schema[stream.time.column].metadata or {}):
            return frame
        return frame.withWatermark(stream.time.column, f"{stream.time.lateness_ms} milliseconds")

    def _counted(self, stream: Stream, frame: DataFrame) -> DataFrame:
        if not self.is_counted(stream):
            return frame
        return frame.observe(stream_count(stream.name), fn.count(fn.lit(1)).alias("rows"))

    def is_counted(self, stream: Stream) -> bool:
        return stream_count(stream.name) in self._counts

    def rows(self, source: Source) -> DataFrame:
        """A source's records, with the columns that were parsed or the reason why there are none."""
        if id(source) not in self._decoded:
            self._decoded[id(source)] = decoded(self._read(source), source)
        return self._decoded[id(source)]

    def _union(self, union: Union) -> DataFrame:
        first, *others = [tagged(union, self.of(part), union.tag_of(part)) for part in union.inputs]
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        return first

    def tap(self, tap: Tap) -> DataFrame:
        """The rows that leave the streaming plan at a tap."""
        if isinstance(tap, Stream):
            return self.of(tap)
        try:
            frame = (
                self.kernels.of(tap)
                if isinstance(tap, Stateful)
                else shared_windows(tap, self._in_time(tap.base))
            )
            _ = frame.schema
        except MillstreamError:
            raise
        except Exception as error:
            raise TopologyError(condensed(error), where=tap.at) from error
        return frame


def step(stream: Stream, frame: DataFrame, *, tells_time: bool = False) -> DataFrame:
    """Applies one step. With ``tells_time``, rows that are filtered out still advance Spark's watermark."""
    if isinstance(stream, Where):
        return frame.where(_behind_the_watermark(stream.condition) if tells_time else stream.condition)
    if isinstance(stream, Otherwise):
        without = " AND ".join(f"NOT coalesce(({one}), false)" for one in stream.conditions)
        return frame.where(_behind_the_watermark(without) if tells_time else without)
    if isinstance(stream, Select):
        return frame.selectExpr(*stream.expressions)
    raise AssertionError(stream)


def _behind_the_watermark(condition: str) -> str:
    """A condition that Spark's optimizer leaves where it is. It moves other conditions before the
    watermark, which then does not see the rows that they filter out."""
    return f"if(spark_partition_id() >= 0, ({condition}), false)"


def tagged(union: Union, frame: DataFrame, tag: str) -> DataFrame:
    return frame.withColumn(union.tag, fn.lit(tag)) if union.tag is not None else frame
