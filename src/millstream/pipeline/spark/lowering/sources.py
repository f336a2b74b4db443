"""Sources and their rejected records as DataFrames."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.dsl.sources import RejectedNode, SourceNode
from millstream.pipeline.formats.decode import rejected
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PositionedRows, lower_positioned
from millstream.pipeline.spark.row_positions import NO_ARRIVAL, ROW_POSITION


@lower.register
def source_rows(source: SourceNode, frames: Frames) -> DataFrame:
    frame = frames.accepted(source)
    if source.time is None:
        return frame
    return frame.withWatermark(source.time.column, f"{source.time.lateness_ms} milliseconds")


@lower_positioned.register
def positioned_source_rows(source: SourceNode, kernels: KernelFrames) -> PositionedRows:
    number = source.flow.number_of(source)
    arrived = "timestamp" if source.time is None else NO_ARRIVAL
    position = (
        f"named_struct('source', {number}, 'partition', {_partition(source)}, 'offset', offset,"
        f" 'clock', false, 'arrived', {arrived})"
    )
    return PositionedRows(kernels.accepted(source, fn.expr(position).alias(ROW_POSITION)))


def _partition(source: SourceNode) -> str:
    """The SQL of a number for a record's partition. The topics of a pattern have partitions of the same
    number, and each is a partition of the source: so their number is made of the topic's name too."""
    if source.pattern is None:
        return "CAST(partition AS bigint)"
    # The second part differs for all partitions of a topic. Two topics would have to agree in both parts.
    return "CAST(hash(topic) AS bigint) * 2147483648L + hash(partition, topic)"


@lower.register
def rejected_records(stream: RejectedNode, frames: Frames) -> DataFrame:
    return rejected(frames.rows(stream.source))
