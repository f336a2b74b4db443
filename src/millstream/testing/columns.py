"""PySpark's columns for the driver's own SQL.

While the driver is at work, PySpark's ``functions`` and ``Column`` record what is called as SQL text
(``millstream.sqltypes.recorded``), in this context only. So a user's file can import them as usual, in any
form, before or after that, and other threads notice nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as fn

from millstream.pipeline.sql import types
from millstream.pipeline.sql.nodes import Alias, Call, Cast, Lambda, Literal, Node, PythonCall, Unsupported
from millstream.pipeline.sql.parse import parse
from millstream.pipeline.sql.types import Type
from millstream.sqltypes import expressions
from millstream.sqltypes.ddl import quoted
from millstream.sqltypes.expressions import NoSqlError
from millstream.sqltypes.recorded import expression_of_column, recording
from millstream.testing.vectorized import is_row_by_row, whole


@contextmanager
def in_their_place() -> Iterator[None]:
    """While it is active, PySpark's functions make columns that need no Spark."""
    with recording(Unsupported):
        yield


def column(name: str) -> Column:
    """A column by its plain name."""
    return fn.col(quoted(name))


def node_of(value: Any) -> Node:
    """A column's tree, or a literal."""
    try:
        made = expression_of_column(value) if isinstance(value, Column) else expressions.literal(value)
    except NoSqlError as error:
        raise Unsupported(str(error)) from None
    return bound(parse(made.text), made.functions)


def named(value: Any) -> Node:
    """A column, or the column that a text names."""
    return parse(value) if isinstance(value, str) else node_of(value)


def bound(node: Node, functions: Mapping[str, Any]) -> Node:
    """A tree in which calls of Python functions are just that. ``functions`` are UDFs by their names."""
    if not functions:
        return node
    if isinstance(node, Call):
        arguments = tuple(bound(one, functions) for one in node.arguments)
        udf = next((udf for name, udf in functions.items() if name.lower() == node.name), None)
        return replace(node, arguments=arguments) if udf is None else _applied(udf, arguments)
    if isinstance(node, Alias | Cast):
        return replace(node, node=bound(node.node, functions))
    if isinstance(node, Lambda):
        return replace(node, body=bound(node.body, functions))
    return node


def _applied(udf: Any, arguments: tuple[Node, ...]) -> PythonCall:
    kind, row_by_row = type_of(udf._returnType), is_row_by_row(udf.evalType)
    if not row_by_row and not arguments:
        raise Unsupported("a pandas or Arrow UDF without arguments")
    return PythonCall(
        udf.func if row_by_row else whole(udf.func, udf.evalType, kind), arguments, kind, not row_by_row
    )


def type_of(given: Any) -> Type:
    """The type of a PySpark DataType, or of its text."""
    text = given if isinstance(given, str) else given.simpleString()
    try:
        return types.parse(text)
    except (ValueError, IndexError):
        raise Unsupported(f"the type {text}") from None


def literal_of(value: Any) -> Literal | None:
    """The literal that a Python value is; None if it is more than that."""
    node = node_of(value)
    return node if isinstance(node, Literal) else None


def refuse_the_rest(cls: type, base: type) -> None:
    """Make what PySpark's class has and this one lacks refuse by name, instead of failing inside PySpark."""
    for name, value in vars(base).items():
        if (
            not name.startswith("_")
            and name not in vars(cls)
            and (callable(value) or isinstance(value, property))
        ):
            refusal = _refusing(f"{cls.__name__}.{name}")
            setattr(cls, name, property(refusal) if isinstance(value, property) else refusal)


def _refusing(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(name)

    return method
