"""Selections: the columns that SQL expressions make of a stream's columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.expressions import output_name, without_spaces
from millstream.pipeline.dsl.graph import Stateful, StreamNode


class SelectNode(StreamNode):
    kind = "select"
    drawn_with_input = True

    def __init__(self, stream: StreamNode, expressions: tuple[str, ...], at: str) -> None:
        self.expressions = expressions
        columns = _columns(stream, expressions)
        super().__init__(stream.flow, (stream,), at=at, columns=columns, time=stream.time)

    def origin(self) -> Any:
        return {
            "select": [without_spaces(one) for one in self.expressions],
            "of": [self.inputs[0].origin()],
        }

    def sql_inputs(self) -> Sequence[tuple[StreamNode | Stateful, str]]:
        return ((self.inputs[0], ""),)

    @property
    def counted_as(self) -> tuple[StreamNode, ...]:
        return self.inputs

    def about(self) -> str:
        return ", ".join(self.expressions)


def _columns(stream: StreamNode, expressions: Sequence[str]) -> tuple[str, ...] | None:
    columns: list[str] = []
    for expression in expressions:
        if expression == "*":
            if stream.columns is None:
                return None
            columns.extend(stream.columns)
        elif (name := output_name(expression)) is not None:
            columns.append(name)
        else:
            return None
    return tuple(columns)


def declare_select(stream: StreamNode, expressions: tuple[str, ...], at: str) -> SelectNode:
    if not expressions:
        raise TopologyError("select needs at least one expression", where=at)
    for expression in expressions:
        if expression != "*":
            stream.check(expression, "the expression", at)
    return SelectNode(stream, expressions, at)
