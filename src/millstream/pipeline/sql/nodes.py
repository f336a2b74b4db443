"""The syntax tree of an expression.

It has few kinds of node. Operators are calls too, named by their signs, so one table of functions has all of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.pipeline.sql.types import Type


class AnalysisError(ValueError):
    """A wrong expression; the message says why."""


class Unsupported(AnalysisError):
    """Something that Spark may well know, but the driver's own SQL does not."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not in the test driver's own SQL: use Driver(..., engine='spark')")


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any
    type: Type


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field in it by its path."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Node, ...] = ()
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Cast:
    node: Node
    type: Type
    tries: bool = False  # null instead of an error


@dataclass(frozen=True, slots=True)
class Lambda:
    names: tuple[str, ...]
    body: Node


@dataclass(frozen=True, slots=True)
class Star:
    """All columns, or all fields of a struct."""

    of: Node | None = None


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A call of a user's Python function, of values or of whole columns."""

    function: Callable[..., Any]
    arguments: tuple[Node, ...]
    type: Type
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Alias:
    node: Node
    name: str


Node = Literal | Column | Call | Cast | Lambda | Star | PythonCall | Alias


def name_of(node: Node) -> str | None:
    """The name of the column that an expression gives; None where Spark invents one."""
    if isinstance(node, Alias):
        return node.name
    if isinstance(node, Column):
        return node.parts[-1]
    return None
