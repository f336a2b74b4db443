"""Stateful operators on the kernel, and their channels, as DataFrames and as SQL."""

from __future__ import annotations

from pyspark.sql import DataFrame

from millstream.pipeline.dsl.graph import Stateful
from millstream.pipeline.dsl.stateful import ChannelNode
from millstream.pipeline.kernel.clock import NEVER, RESULT
from millstream.pipeline.kernel.packing import MARK
from millstream.pipeline.spark.kernel_operator import STATUS
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PositionedRows, lower_positioned
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose
from millstream.pipeline.spark.row_positions import NO_OFFSET, ROW_POSITION
from millstream.sqltypes.ddl import quoted


@lower.register
def all_channels(operator: Stateful, frames: Frames) -> DataFrame:
    return frames.kernels.of(operator)


@lower.register
def channel_rows(stream: ChannelNode, frames: Frames) -> DataFrame:
    condition, columns = frames.kernels.picked(stream)
    made = [f"{sql} AS {quoted(name)}" for name, sql in columns.items()]
    return frames.kernels.of(stream.state).where(condition).selectExpr(*made)


@lower_positioned.register
def positioned_channel_rows(stream: ChannelNode, kernels: KernelFrames) -> PositionedRows:
    """An operator's results, and how far it has come: a row with its watermark."""
    assert stream.time is not None
    condition, columns = kernels.picked(stream)
    told = f"channel = '{STATUS}'"
    made = dict(columns)
    # After everything that the operator has given, and before everything that it will give.
    reached = f"{STATUS}.watermark"
    mark = f"timestamp_micros(if({reached} = {NEVER}L, NULL, {reached} + {stream.time.mark_us}))"
    made[stream.time.column] = f"if({told}, {mark}, {columns[stream.time.column]})"
    offset = f"if({told}, {MARK}L, {NO_OFFSET}L)"
    position = f"named_struct('source', {RESULT}, 'partition', -1, 'offset', {offset}, 'clock', {told})"
    frame = kernels.of(stream.state).where(f"{condition} OR {told}")
    frame = frame.selectExpr(
        *(f"{sql} AS {quoted(name)}" for name, sql in made.items()), f"{position} AS {ROW_POSITION}"
    )
    return PositionedRows(frame, behind_state=True, has_clock_rows=True)


@compose.register
def compose_channel(stream: ChannelNode, row: ComposedRow, tag: str, frames: Frames) -> None:
    condition, row.columns = frames.kernels.picked(stream)
    row.conditions = [condition]
