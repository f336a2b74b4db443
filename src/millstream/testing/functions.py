"""``pyspark.sql.functions`` on the driver's own SQL.

On every call, PySpark's functions check whether they work for Spark Connect. If so, they delegate to a
module with the same names. ``in_their_place`` substitutes this module while a flow is built. So a
user's file can import ``pyspark.sql.functions`` as usual, in any form, before or after that.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pyspark.sql.functions as spark_functions
from pyspark.sql.types import DataType
from pyspark.sql.udf import UserDefinedFunction

from millstream.pipeline.sql.nodes import Call, Lambda, Node, PythonCall, Unsupported
from millstream.pipeline.sql.nodes import Column as ColumnNode
from millstream.pipeline.sql.parse import parse
from millstream.testing.columns import Column, named, node_of, type_of
from millstream.testing.vectorized import is_row_by_row, whole

_CONNECT = "pyspark.sql.connect"
_ASKED = "SPARK_CONNECT_MODE_ENABLED"
# Functions with another name in SQL.
_SQL_NAMES = {"when": "case", "isnull": "isnull", "negate": "negative", "bitwise_not": "~"}


def col(name: str) -> Column:
    return Column(parse(name))


def lit(value: Any) -> Column:
    return value if isinstance(value, Column) else Column(node_of(value))


def expr(sql: str) -> Column:
    return Column(parse(sql))


def udf(f: Any = None, returnType: Any = "string", **_: Any) -> Any:  # noqa: N803 - as PySpark has it
    """A Python function as a function of columns: ``@udf``, ``@udf("int")`` or ``udf(f, "int")``."""
    if f is None or isinstance(f, str | DataType):
        kind = returnType if f is None else f
        return lambda function: udf(function, kind)
    kind = type_of(returnType)

    @functools.wraps(f)
    def call(*columns: Any) -> Column:
        return Column(PythonCall(f, tuple(map(named, columns)), kind))

    return call


def _create_udf(f: Any, returnType: Any, evalType: int, **_: Any) -> Any:  # noqa: N803
    """Replaces the function with which PySpark makes pandas and Arrow UDFs."""
    function = whole(f, evalType, type_of(returnType))

    @functools.wraps(f)
    def call(*columns: Any, **by_name: Any) -> Column:
        return _applied(function, columns, by_name, returnType, whole=True)

    return call


def _called(defined: UserDefinedFunction, *columns: Any, **by_name: Any) -> Column:
    """Calls a UDF that PySpark itself made, before the driver was there."""
    row_by_row, kind = is_row_by_row(defined.evalType), defined._returnType
    function = defined.func if row_by_row else whole(defined.func, defined.evalType, type_of(kind))
    return _applied(function, columns, by_name, kind, whole=not row_by_row)


def _applied(
    function: Any, columns: tuple[Any, ...], by_name: dict[str, Any], kind: Any, *, whole: bool
) -> Column:
    if by_name:
        raise Unsupported("a UDF with keyword arguments")
    if whole and not columns:
        raise Unsupported("a pandas or Arrow UDF without arguments")
    return Column(PythonCall(function, tuple(map(named, columns)), type_of(kind), whole))


def _general(name: str) -> Callable[..., Column]:
    """Any other function. Its signature says which texts name columns and which are plain texts."""
    signature = inspect.signature(getattr(spark_functions, name))

    def call(*args: Any, **kwargs: Any) -> Column:
        bound = signature.bind(*args, **kwargs)
        nodes: list[Node] = []
        for parameter, value in bound.arguments.items():
            kind = signature.parameters[parameter]
            values = value if kind.kind is inspect.Parameter.VAR_POSITIONAL else [value]
            if len(values) == 1 and isinstance(values[0], list | tuple | set):
                values = list(values[0])
            of_columns = "ColumnOrName" in str(kind.annotation)
            nodes += [_argument(one, of_columns) for one in values if one is not None]
        return Column(Call(_SQL_NAMES.get(name, name), tuple(nodes)))

    return call


def _argument(value: Any, of_columns: bool) -> Node:
    if isinstance(value, dict):
        pairs = [node_of(one) for pair in value.items() for one in pair]
        return Call("map", tuple(pairs))
    if isinstance(value, DataType):
        return node_of(value.simpleString())
    if callable(value) and not isinstance(value, Column):
        names = tuple(f"{name}_{id(value)}" for name in inspect.signature(value).parameters)
        made = value(*(Column(ColumnNode((name,))) for name in names))
        return Lambda(names, node_of(made))
    return named(value) if of_columns and isinstance(value, str) else node_of(value)


_OWN = {"col": col, "column": col, "lit": lit, "expr": expr, "udf": udf}


class _Functions(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _OWN:
            return _OWN[name]
        if name == "udtf":
            raise Unsupported(name)
        return _general(name)


@contextmanager
def in_their_place() -> Iterator[None]:
    """While it is active, PySpark's functions make columns of the driver's own SQL, and need no Spark."""
    package, functions = ModuleType(_CONNECT), _Functions(f"{_CONNECT}.functions")
    udfs = ModuleType(f"{_CONNECT}.udf")
    package.functions, package.udf, udfs._create_udf = functions, udfs, _create_udf  # type: ignore[attr-defined]
    modules = {module.__name__: module for module in (package, functions, udfs)}
    before = {name: sys.modules.get(name) for name in modules}
    asked, call = os.environ.get(_ASKED), UserDefinedFunction.__call__
    sys.modules.update(modules)
    os.environ[_ASKED] = "1"
    UserDefinedFunction.__call__ = _called
    try:
        yield
    finally:
        UserDefinedFunction.__call__ = call
        if asked is None:
            del os.environ[_ASKED]
        else:
            os.environ[_ASKED] = asked
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
