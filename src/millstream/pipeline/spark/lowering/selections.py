"""Selections as DataFrames and as SQL."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from millstream.core.errors import MillstreamError
from millstream.pipeline.dsl.expressions import without_alias
from millstream.pipeline.dsl.selections import SelectNode
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PlacedRows, lower_placed
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose
from millstream.pipeline.spark.placing import PLACE


@lower.register
def selected(stream: SelectNode, frames: Frames) -> DataFrame:
    return frames.of(stream.inputs[0]).selectExpr(*stream.expressions)


@lower_placed.register
def placed_selected(stream: SelectNode, kernels: KernelFrames) -> PlacedRows:
    above = kernels.placed(stream.inputs[0])
    place = [] if "*" in stream.expressions else [PLACE]
    return replace(above, frame=above.frame.selectExpr(*stream.expressions, *place))


@compose.register
def compose_selection(stream: SelectNode, row: ComposedRow, tag: str, frames: Frames) -> None:
    made: list[str] = []
    for expression in stream.expressions:
        made += row.columns.values() if expression == "*" else [row.sql(without_alias(expression))]
    names = frames.of(stream).columns  # Spark also names what the user did not
    if len(made) != len(names):
        raise MillstreamError(f"{stream.at}: name the columns of this selection one by one, without patterns")
    row.columns = dict(zip(names, made, strict=True))
