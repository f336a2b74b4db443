"""Sources and their rejected records as DataFrames."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.dsl.sources import RejectedNode, SourceNode
from millstream.pipeline.formats.decode import rejected
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PlacedRows, lower_placed
from millstream.pipeline.spark.placing import PLACE


@lower.register
def source_rows(source: SourceNode, frames: Frames) -> DataFrame:
    frame = frames.accepted(source)
    if source.time is None:
        return frame
    return frame.withWatermark(source.time.column, f"{source.time.lateness_ms} milliseconds")


@lower_placed.register
def placed_source_rows(source: SourceNode, kernels: KernelFrames) -> PlacedRows:
    number = source.flow.number_of(source)
    place = f"named_struct('source', {number}, 'partition', partition, 'offset', offset, 'clock', false)"
    return PlacedRows(kernels.accepted(source, fn.expr(place).alias(PLACE)))


@lower.register
def rejected_records(stream: RejectedNode, frames: Frames) -> DataFrame:
    return rejected(frames.rows(stream.source))
