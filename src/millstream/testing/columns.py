"""PySpark's Column on the driver's own SQL: ``fn.col("eur") > 2`` builds a tree, and nothing runs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from pyspark.sql import Column as SparkColumn

from millstream.pipeline.sql import types
from millstream.pipeline.sql.nodes import Alias, Call, Cast, Literal, Node, Unsupported
from millstream.pipeline.sql.parse import parse
from millstream.pipeline.sql.types import Type


class Column(SparkColumn):
    """An expression, which is held entirely in ``node``."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Column:
        return object.__new__(cls)

    def __init__(self, node: Node) -> None:
        self.node = node

    def alias(self, *names: str, **_: Any) -> Column:
        if len(names) != 1:
            raise Unsupported("an alias with several names")
        return Column(Alias(self.node, names[0]))

    name = alias

    def cast(self, dataType: Any) -> Column:  # noqa: N803 - as PySpark has it
        return Column(Cast(self.node, type_of(dataType)))

    astype = cast

    def try_cast(self, dataType: Any) -> Column:  # noqa: N803
        return Column(Cast(self.node, type_of(dataType), tries=True))

    def isin(self, *values: Any) -> Column:
        listed = values[0] if len(values) == 1 and isinstance(values[0], list | set | tuple) else values
        return Column(Call("in", (self.node, *map(node_of, listed))))

    def between(self, lowerBound: Any, upperBound: Any) -> Column:  # noqa: N803
        return Column(Call("between", (self.node, node_of(lowerBound), node_of(upperBound))))

    def substr(self, startPos: Any, length: Any) -> Column:  # noqa: N803
        return Column(Call("substring", (self.node, node_of(startPos), node_of(length))))

    def getField(self, name: Any) -> Column:  # noqa: N802
        return Column(Call(".", (self.node, node_of(name))))

    def getItem(self, key: Any) -> Column:  # noqa: N802
        return Column(Call("[]", (self.node, node_of(key))))

    def __getitem__(self, key: Any) -> Column:
        return self.getItem(key)

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.getField(name)

    def when(self, condition: SparkColumn, value: Any) -> Column:
        assert isinstance(self.node, Call)
        return Column(Call("case", (*self.node.arguments, node_of(condition), node_of(value))))

    def otherwise(self, value: Any) -> Column:
        assert isinstance(self.node, Call)
        return Column(Call("case", (*self.node.arguments, node_of(value))))

    def __invert__(self) -> Column:
        return Column(Call("not", (self.node,)))

    def __neg__(self) -> Column:
        return Column(Call("negative", (self.node,)))

    def __bool__(self) -> bool:
        raise ValueError("a column has no truth value: use & for and, | for or, ~ for not")

    def __repr__(self) -> str:
        return f"Column<{self.node}>"

    __hash__ = object.__hash__


def _two(name: str, swapped: bool = False) -> Any:
    def method(self: Column, other: Any) -> Column:
        nodes = (self.node, node_of(other))
        return Column(Call(name, nodes[::-1] if swapped else nodes))

    return method


def _one(name: str) -> Any:
    return lambda self: Column(Call(name, (self.node,)))


def _refusing(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(name)

    return method


_TWO = {
    "__add__": "+",
    "__sub__": "-",
    "__mul__": "*",
    "__truediv__": "/",
    "__mod__": "%",
    "__pow__": "pow",
    "__eq__": "=",
    "__ne__": "!=",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
    "__and__": "and",
    "__or__": "or",
    "eqNullSafe": "<=>",
    "like": "like",
    "ilike": "ilike",
    "rlike": "rlike",
    "startswith": "startswith",
    "endswith": "endswith",
    "contains": "contains",
    "bitwiseAND": "&",
    "bitwiseOR": "|",
    "bitwiseXOR": "^",
}
_SWAPPED = {"__radd__": "+", "__rsub__": "-", "__rmul__": "*", "__rtruediv__": "/", "__rmod__": "%"}
_SWAPPED |= {"__rand__": "and", "__ror__": "or", "__rpow__": "pow"}
_ONE = {"isNull": "isnull", "isNotNull": "isnotnull", "isNaN": "isnan"}
for _name, _function in _TWO.items():
    setattr(Column, _name, _two(_function))
for _name, _function in _SWAPPED.items():
    setattr(Column, _name, _two(_function, swapped=True))
for _name, _function in _ONE.items():
    setattr(Column, _name, _one(_function))


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


refuse_the_rest(Column, SparkColumn)


def type_of(given: Any) -> Type:
    """The type of a PySpark DataType, or of its text."""
    text = given if isinstance(given, str) else given.simpleString()
    try:
        return types.parse(text)
    except (ValueError, IndexError):
        raise Unsupported(f"the type {text}") from None


def node_of(value: Any) -> Node:
    """A column's tree, or a literal."""
    if isinstance(value, Column):
        return value.node
    if value is None:
        return Literal(None, types.VOID)
    if isinstance(value, list | tuple):
        return Call("array", tuple(map(node_of, value)))
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        return Literal(value, types.decimal(max(len(digits), scale), scale))
    if isinstance(value, dt.datetime):
        return Literal(value.astimezone(dt.UTC), types.TIMESTAMP)
    if isinstance(value, dt.timedelta):
        return Literal(value, types.DAYTIME)
    if isinstance(value, int) and not isinstance(value, bool):
        return Literal(value, types.INT if -(1 << 31) <= value < 1 << 31 else types.BIGINT)
    for python, kind in _LITERALS.items():
        if isinstance(value, python):
            return Literal(value, kind)
    raise Unsupported(f"the literal {value!r}")


_LITERALS: dict[type, Type] = {
    bool: types.BOOLEAN,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BINARY,
    dt.date: types.DATE,
}


def named(value: Any) -> Node:
    """A column, or the column that a text names."""
    return parse(value) if isinstance(value, str) else node_of(value)
