"""A new kind of stream is a node and its lowering: every pass over the graph takes it as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millstream import Topology
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.dsl.graph import Stateful, StreamNode
from millstream.pipeline.dsl.streams import Stream
from millstream.pipeline.planning.plan import plan, shapes
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames, PositionedRows, lower_positioned
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose
from millstream.testing import Driver


class DoubledNode(StreamNode):
    """A stream with one of its columns doubled."""

    kind = "doubled"
    drawn_with_input = True

    def __init__(self, stream: StreamNode, column: str, at: str) -> None:
        self.column = column
        super().__init__(stream.flow, (stream,), at=at, columns=stream.columns, time=stream.time)

    def origin(self) -> Any:
        return {"doubled": self.column, "of": [self.inputs[0].origin()]}

    def sql_inputs(self) -> Sequence[tuple[StreamNode | Stateful, str]]:
        return ((self.inputs[0], ""),)

    @property
    def counted_as(self) -> tuple[StreamNode, ...]:
        return self.inputs

    def about(self) -> str:
        return self.column


@lower.register
def doubled(stream: DoubledNode, frames: Frames) -> Any:
    return frames.of(stream.inputs[0]).withColumn(stream.column, _twice(stream))


@lower_positioned.register
def positioned_doubled(stream: DoubledNode, kernels: KernelFrames) -> PositionedRows:
    above = kernels.positioned(stream.inputs[0])
    return replace(above, frame=above.frame.withColumn(stream.column, _twice(stream)))


@compose.register
def compose_doubled(stream: DoubledNode, row: ComposedRow, tag: str, frames: Frames) -> None:
    row.columns[stream.column] = row.sql(f"2 * {stream.column}")


def _twice(stream: DoubledNode) -> Any:
    from pyspark.sql import functions as fn

    return fn.expr(f"2 * {stream.column}")


def test_a_new_kind_of_stream_is_planned_drawn_counted_and_run() -> None:
    flow = Topology("doubling")
    rows = flow.source("rows", schema="k string, v int, at timestamp", time="at")
    rows.to_topic("copies")
    made = Stream(DoubledNode(rows.where("v > 1").node, "v", "here"))
    made.to_topic("doubled")
    sums = made.window(by="k", size="1 minute", emit="final").agg(total="sum(v)")
    sums.to_topic("sums")
    flow.union(made, rows, tag="which").to_topic("both")

    (query,) = plan(flow).queries
    assert query.outputs == [rows.node, sums.node]
    assert [node.kind for route in query.routes for node, _ in route.steps if node.kind != "where"] == [
        "doubled",
        "doubled",
        "union",
        "union",
    ]
    (operator,) = shapes(plan(flow))[query.name]["operators"].values()
    assert operator["of"][0]["doubled"] == "v"
    assert ("where v > 1", "doubled v") in [box.lines for box in graph(flow).boxes]
    with Driver(flow) as driver:
        driver.feed("rows", [{"k": "a", "v": v, "at": "2026-01-01T00:00:00Z"} for v in (1, 2, 3)])
        driver.finish()
        assert [row["v"] for row in driver.topic("doubled")] == [4, 6]
        assert [row["total"] for row in driver.topic("sums")] == [10]
        assert sorted((row["which"], row["v"]) for row in driver.topic("both")) == [
            ("doubled 1", 4),
            ("doubled 1", 6),
            ("rows", 1),
            ("rows", 2),
            ("rows", 3),
        ]
