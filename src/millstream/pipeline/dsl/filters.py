"""Filters: the rows for which a condition is true, channels by condition, and the rows that are in none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.expressions import without_spaces
from millstream.pipeline.dsl.graph import Stateful, StreamNode


class FilterNode(StreamNode):
    """The rows of a stream for which all ``conditions`` are true."""

    conditions: tuple[str, ...]

    def __init__(self, stream: StreamNode, at: str, name: str | None = None, kind: str = "channel") -> None:
        super().__init__(
            stream.flow, (stream,), at=at, name=name, columns=stream.columns, time=stream.time, kind=kind
        )

    def sql_inputs(self) -> Sequence[tuple[StreamNode | Stateful, str]]:
        return ((self.inputs[0], ""),)


class WhereNode(FilterNode):
    def __init__(
        self, stream: StreamNode, condition: str, at: str, name: str | None = None, kind: str = "where"
    ) -> None:
        self.condition: str = condition
        self.conditions = (condition,)
        self.drawn_with_input = kind == "where"
        super().__init__(stream, at, name, kind)

    def origin(self) -> Any:
        return {"where": without_spaces(self.condition), "of": [self.inputs[0].origin()]}

    def about(self) -> str:
        return self.condition


class OtherwiseNode(FilterNode):
    """The rows that are in none of a stream's channels."""

    def __init__(self, stream: StreamNode, channels: Sequence[str], name: str, at: str) -> None:
        self._channels = channels
        self.conditions = tuple(f"NOT coalesce(({condition}), false)" for condition in channels)
        super().__init__(stream, at, name)

    def origin(self) -> Any:
        return {
            "otherwise": sorted(without_spaces(one) for one in self._channels),
            "of": [self.inputs[0].origin()],
        }

    def about(self) -> str:
        return "in no other channel"


def declare_where(stream: StreamNode, condition: str, at: str) -> WhereNode:
    stream.check(condition, "the condition", at)
    return WhereNode(stream, condition, at)


def declare_channel(stream: StreamNode, name: str, condition: str | None, at: str) -> WhereNode:
    if condition is None:
        raise TopologyError(f"channel {name!r} needs where=, the SQL condition of its rows", where=at)
    stream.check(condition, f"the condition of channel {name!r}", at)
    return WhereNode(stream, condition, at, name, kind="channel")


def declare_otherwise(stream: StreamNode, name: str, at: str) -> OtherwiseNode:
    channels = [
        node.condition
        for node in stream.flow.streams
        if node.inputs == (stream,) and node.kind == "channel" and node.condition is not None
    ]
    if not channels:
        raise TopologyError(
            f"{stream.name!r} has no channels yet; call .channel(...) before .otherwise(...)", where=at
        )
    return OtherwiseNode(stream, channels, name, at)
