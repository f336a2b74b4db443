"""Sources and their rejected records as DataFrames."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.dsl.sources import RejectedNode, SourceNode
from millstream.pipeline.formats.decode import rejected
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PositionedRows, lower_positioned
from millstream.pipeline.spark.row_positions import ROW_POSITION


@lower.register
def source_rows(source: SourceNode, frames: Frames) -> DataFrame:
    frame = frames.accepted(source)
    if source.time is None:
        return frame
    return frame.withWatermark(source.time.column, f"{source.time.lateness_ms} milliseconds")


@lower_positioned.register
def positioned_source_rows(source: SourceNode, kernels: KernelFrames) -> PositionedRows:
    number = source.flow.number_of(source)
    position = f"named_struct('source', {number}, 'partition', partition, 'offset', offset, 'clock', false)"
    return PositionedRows(kernels.accepted(source, fn.expr(position).alias(ROW_POSITION)))


@lower.register
def rejected_records(stream: RejectedNode, frames: Frames) -> DataFrame:
    return rejected(frames.rows(stream.source))
