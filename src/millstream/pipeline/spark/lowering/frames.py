"""Builds the Spark DataFrames of streams, over streaming reads or, in tests, over plain tables.

An error from Spark or from a user's function becomes a TopologyError at the line that declared the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import singledispatch
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.graph import Stateful, StreamNode, TopicSink
from millstream.pipeline.dsl.sources import SourceNode
from millstream.pipeline.formats.decode import accepted, decoded
from millstream.pipeline.planning.outputs import Output
from millstream.pipeline.spark.failures import condensed
from millstream.pipeline.spark.kernel_operator import StateLocation
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames


class Frames:
    """The DataFrame of every stream, made once. ``read`` gives a source's raw records."""

    def __init__(
        self,
        read: Callable[[SourceNode], DataFrame],
        *,
        run: str = "",
        output_mode: str = "update",
        keeping: Callable[[Stateful], StateLocation] = lambda stateful: StateLocation(),
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
        self.kernels = KernelFrames(self.accepted, run, output_mode, keeping)

    def of(self, output: Output) -> DataFrame:
        """The rows of a stream, or of another output of a query."""
        frame = self.made(output)
        if isinstance(frame, dict):
            raise TopologyError(
                f"operator {output.name!r} splits into channels; continue from one of them, with"
                f" {output.name}.channel(...)",
                where=output.at,
            )
        return frame

    def made(self, output: Output) -> Any:
        """The rows of a stream. Of a function that splits them, the rows of each channel by its name."""
        if id(output) not in self._made:
            try:
                frame = lower(output, self)
                if not isinstance(frame, dict):
                    _ = frame.schema  # analysed now, while it is known whose line it is
            except MillstreamError:
                raise
            except Exception as error:
                raise TopologyError(condensed(error), where=output.at) from error
            self._made[id(output)] = frame
        return self._made[id(output)]

    def rows(self, source: SourceNode) -> DataFrame:
        """A source's records, with the columns that were parsed or the reason why there are none."""
        if id(source) not in self._decoded:
            self._decoded[id(source)] = decoded(self._read(source), source)
        return self._decoded[id(source)]

    def accepted(self, source: SourceNode, *columns: Column) -> DataFrame:
        """A source's rows that were parsed, with further columns of their records."""
        return accepted(self.rows(source), source, *columns)

    def advances_watermark(self, stream: StreamNode) -> bool:
        """True if the rows that a filter leaves out still advance the watermark of a Spark window."""
        if self._before_windows is None:
            states = [one.state for one in stream.flow.streams if one.state is not None and one.state.native]
            self._before_windows = {id(node) for state in states for node in state.upstream()}
        return id(stream) in self._before_windows

    def is_counted(self, stream: StreamNode) -> bool:
        return stream.count in self._counts

    def counted(self, stream: StreamNode, frame: DataFrame) -> DataFrame:
        """The same rows, which Spark counts as a metric if their count is wanted."""
        if not self.is_counted(stream):
            return frame
        return frame.observe(stream.count, fn.count(fn.lit(1)).alias("rows"))


@singledispatch
def lower(output: object, frames: Frames) -> Any:
    """Make the DataFrame of a stream, or of another output of a query. For a function that splits its rows,
    the DataFrame of each channel by its name."""
    raise NotImplementedError(f"{type(output).__name__} has no lowering")
