"""Composes what happens to a row between an output of a query and a sink, as SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatch

from millstream.pipeline.dsl.expressions import with_columns
from millstream.pipeline.planning.outputs import Output
from millstream.pipeline.spark.lowering.frames import Frames


@dataclass(slots=True)
class ComposedRow:
    """A row on its way: the conditions that let it through, and the SQL of each of its columns."""

    output: Output
    columns: dict[str, str]
    conditions: list[str] = field(default_factory=list)
    passed: list[tuple[str, str]] = field(default_factory=list)  # streams to count, and the rows' condition

    def sql(self, expression: str) -> str:
        return with_columns(expression, self.columns)

    @property
    def condition(self) -> str:
        """All conditions as one; empty if there is none."""
        return " AND ".join(f"({one})" for one in self.conditions)


@singledispatch
def compose(stream: object, row: ComposedRow, tag: str, frames: Frames) -> None:
    """Take a row through a stream that is SQL only. ``tag`` is the tag of the row's branch in a union."""
    raise NotImplementedError(f"{type(stream).__name__} can't be composed as SQL")
