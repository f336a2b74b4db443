"""Unions: rows of several streams in one. A column that a stream lacks is null in that stream's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.graph import Stateful, StreamGraph, StreamNode


class UnionNode(StreamNode):
    kind = "union"

    def __init__(
        self, flow: StreamGraph, streams: tuple[StreamNode, ...], tag: str | None, name: str | None, at: str
    ) -> None:
        self.tag = tag
        columns: tuple[str, ...] | None = None
        if all(stream.columns is not None for stream in streams):
            columns = tuple(dict.fromkeys(c for stream in streams for c in stream.columns or ()))
            if tag is not None:
                columns = (*columns, tag)
        times = {stream.time for stream in streams}
        time = times.pop() if len(times) == 1 else None
        super().__init__(flow, streams, at=at, name=name, columns=columns, time=time)

    def tag_of(self, branch: StreamNode) -> str:
        """The value of the tag in the rows of a branch."""
        return branch.name

    def origin(self) -> Any:
        return {"union": [one.origin() for one in self.inputs], "tag": self.tag}

    def sql_inputs(self) -> Sequence[tuple[StreamNode | Stateful, str]]:
        return [(branch, self.tag_of(branch)) for branch in self.inputs]

    @property
    def counted_as(self) -> tuple[StreamNode, ...]:
        return self.inputs

    def about(self) -> str:
        return f"{self.tag} says which" if self.tag else ""


def declare_union(
    flow: StreamGraph, streams: Sequence[StreamNode], tag: str | None, name: str | None, at: str
) -> UnionNode:
    parts: list[StreamNode] = []
    for stream in streams:
        if stream.flow is not flow:
            raise TopologyError(f"{stream.name!r} belongs to topology {stream.flow.name!r}", where=at)
        if tag is not None and stream.columns is not None and tag in stream.columns:
            raise TopologyError(f"{stream.name!r} already has a column {tag!r}; tag= must be new", where=at)
        if stream in parts:
            raise TopologyError(
                f"{stream.name!r} occurs twice in this union, so each of its rows would too", where=at
            )
        parts.append(stream)
    return UnionNode(flow, tuple(parts), tag, name, at)
