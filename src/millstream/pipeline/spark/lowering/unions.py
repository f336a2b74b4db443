"""Unions as DataFrames and as SQL."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.dsl.unions import UnionNode
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PositionedRows, lower_positioned
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose


@lower.register
def united(stream: UnionNode, frames: Frames) -> DataFrame:
    return _united(stream, [frames.of(part) for part in stream.inputs])


@lower_positioned.register
def positioned_united(stream: UnionNode, kernels: KernelFrames) -> PositionedRows:
    parts = [kernels.positioned(part) for part in stream.inputs]
    return PositionedRows(
        _united(stream, [part.frame for part in parts]),
        behind_state=any(part.behind_state for part in parts),
        has_clock_rows=any(part.has_clock_rows for part in parts),
        lost_positions=any(part.lost_positions for part in parts),
    )


def _united(stream: UnionNode, frames: Sequence[DataFrame]) -> DataFrame:
    first, *others = [
        frame.withColumn(stream.tag, fn.lit(stream.tag_of(part))) if stream.tag is not None else frame
        for part, frame in zip(stream.inputs, frames, strict=True)
    ]
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first


@compose.register
def compose_union(stream: UnionNode, row: ComposedRow, tag: str, frames: Frames) -> None:
    row.columns = {
        name: row.columns.get(name, f"CAST(NULL AS {kind})") for name, kind in frames.of(stream).dtypes
    }
    if stream.tag is not None:
        row.columns[stream.tag] = f"'{tag}'"
