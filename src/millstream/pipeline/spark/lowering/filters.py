"""Filters as DataFrames and as SQL.

The rows that a filter leaves out still advance the watermark of the windows and stateful operators below.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from millstream.pipeline.dsl.filters import FilterNode
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PositionedRows, lower_positioned
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose
from millstream.pipeline.spark.row_positions import CLOCK_POSITION, ROW_POSITION
from millstream.sqltypes.ddl import quoted


@lower.register
def filtered(stream: FilterNode, frames: Frames) -> DataFrame:
    condition = " AND ".join(stream.conditions)
    if frames.advances_watermark(stream):
        # Spark's optimizer leaves this condition where it is. It moves other conditions before the
        # watermark, which then does not see the rows that they filter out.
        condition = f"if(spark_partition_id() >= 0, ({condition}), false)"
    return frames.of(stream.inputs[0]).where(condition)


@lower_positioned.register
def positioned_filtered(stream: FilterNode, kernels: KernelFrames) -> PositionedRows:
    """Rows that don't match are kept to advance the watermark, until they are packed for the kernel. Only
    their time column is kept: later steps must not fail on a row that they were not meant to see."""
    above = kernels.positioned(stream.inputs[0])
    condition = f"coalesce(({' AND '.join(stream.conditions)}), false)"
    names = [name for name in above.frame.columns if name != ROW_POSITION]
    position = f"if({condition}, {ROW_POSITION}, {CLOCK_POSITION})"
    marked = above.frame.selectExpr(*(quoted(name) for name in names), f"{position} AS {ROW_POSITION}")
    time = stream.time.column if stream.time is not None else None
    frame = marked.selectExpr(
        *(
            quoted(name)
            if name == time
            else f"if({ROW_POSITION}.clock, NULL, {quoted(name)}) AS {quoted(name)}"
            for name in names
        ),
        ROW_POSITION,
    )
    return replace(above, frame=frame, has_clock_rows=True)


@compose.register
def compose_filter(stream: FilterNode, row: ComposedRow, tag: str, frames: Frames) -> None:
    row.conditions += [row.sql(condition) for condition in stream.conditions]
