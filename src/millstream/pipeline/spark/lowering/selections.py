"""Selections as DataFrames and as SQL."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from millstream.core.errors import MillstreamError
from millstream.pipeline.dsl.expressions import without_alias
from millstream.pipeline.dsl.selections import SelectNode
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PositionedRows, lower_positioned
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose
from millstream.pipeline.spark.row_positions import ROW_POSITION


@lower.register
def selected(stream: SelectNode, frames: Frames) -> DataFrame:
    return frames.of(stream.inputs[0]).selectExpr(*stream.expressions)


@lower_positioned.register
def positioned_selected(stream: SelectNode, kernels: KernelFrames) -> PositionedRows:
    above = kernels.positioned(stream.inputs[0])
    position = [] if "*" in stream.expressions else [ROW_POSITION]
    return replace(above, frame=above.frame.selectExpr(*stream.expressions, *position))


@compose.register
def compose_selection(stream: SelectNode, row: ComposedRow, tag: str, frames: Frames) -> None:
    made: list[str] = []
    for expression in stream.expressions:
        made += row.columns.values() if expression == "*" else [row.sql(without_alias(expression))]
    names = frames.of(stream).columns  # Spark also names what the user did not
    if len(made) != len(names):
        raise MillstreamError(f"{stream.at}: name the columns of this selection one by one, without patterns")
    row.columns = dict(zip(names, made, strict=True))
