"""SQL text of a PySpark column that was made while Spark was running, from the tree that Spark has of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millstream.sqltypes import expressions
from millstream.sqltypes.expressions import Expression, NoSqlError


def expression_of_java(column: Any, udf_calls: Mapping[int, Expression]) -> Expression:
    """The text of a column of the JVM. ``udf_calls`` are calls of Python functions by the numbers of their
    results. Raises NoSqlError if it has a part that is not SQL."""
    return _expression(column.node(), udf_calls)


def _expression(node: Any, udf_calls: Mapping[int, Expression]) -> Expression:
    def of(inner: Any) -> Expression:
        return _expression(inner, udf_calls)

    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedFunction":
        name, arguments = node.functionName(), _listed(node.arguments())
        if name in WITH_TYPES:
            return expressions.call(name, [_typed(one, udf_calls) for one in arguments])
        return expressions.call(name, [of(one) for one in arguments], distinct=node.isDistinct())
    if kind == "Literal":
        return expressions.literal(_value(node.value()))
    if kind == "UnresolvedAttribute":
        return Expression(".".join(map(expressions.identifier, _listed(node.nameParts()))))
    if kind == "UnresolvedStar":
        target = node.unparsedTarget()
        return Expression(f"{target.get()}" if target.isDefined() else "*")
    if kind == "UnresolvedExtractValue":
        return expressions.element(of(node.child()), of(node.extraction()))
    if kind == "Alias":
        names = _listed(node.name())
        if len(names) != 1:
            raise NoSqlError("an alias with several names")
        return replace(of(node.child()), alias=names[0])
    if kind == "Cast":
        tries = "Try" in node.evalMode().toString()
        return expressions.cast(of(node.child()), node.dataType().catalogString(), tries=tries)
    if kind == "CaseWhenOtherwise":
        branches = [(of(one._1()), of(one._2())) for one in _listed(node.branches())]
        otherwise = node.otherwise()
        return expressions.case(branches, of(otherwise.get()) if otherwise.isDefined() else None)
    if kind == "SqlExpression":
        return expressions.sql_text(node.expression())
    if kind == "LambdaFunction":
        return expressions.lambda_function(
            [of(one) for one in _listed(node.arguments())], of(node.function())
        )
    if kind == "UnresolvedNamedLambdaVariable":
        return expressions.variable(node.name())
    if kind == "ExpressionColumnNode":
        return _of_udf(node, udf_calls)
    raise NoSqlError(_KINDS.get(kind, f"Spark's {kind}"))


# Functions that take a type, which PySpark passes as JSON.
WITH_TYPES = frozenset({"from_json", "from_csv", "from_xml", "from_avro", "from_protobuf"})


def _typed(node: Any, udf_calls: Mapping[int, Expression]) -> Expression:
    if node.getClass().getSimpleName() == "Literal":
        return expressions.literal(type_as_ddl(_value(node.value())))
    return _expression(node, udf_calls)


def type_as_ddl(value: Any) -> Any:
    """A type that PySpark passes as JSON, as SQL takes it. Anything else stays as it is."""
    if not isinstance(value, str) or not value.startswith(("{", '"')):
        return value
    from pyspark.sql.types import _parse_datatype_json_string

    try:
        return _parse_datatype_json_string(value).simpleString()
    except (ValueError, KeyError):
        return value


_KINDS = {
    "SortOrder": "an order (asc, desc)",
    "Window": "a function over a window (Column.over)",
    "UpdateFields": "Column.withField and Column.dropFields",
    "UnresolvedRegex": "columns by a pattern (colRegex)",
    "InvokeInlineUserDefinedFunction": "a function of the JVM",
}


def _of_udf(node: Any, udf_calls: Mapping[int, Expression]) -> Expression:
    inner = node.expression()
    if inner.getClass().getSimpleName() == "PythonUDF":
        found = udf_calls.get(inner.resultId().id())
        if found is not None:
            return found
        raise NoSqlError(f"a call of the Python function {inner.name()} that was made long ago")
    raise NoSqlError(f"Spark's {inner.getClass().getSimpleName()}")


def _listed(values: Any) -> list[Any]:
    return [values.apply(at) for at in range(values.size())]


def _value(value: Any) -> Any:
    """A literal's value: py4j leaves times as objects of the JVM."""
    if not hasattr(value, "getClass"):
        return value
    kind = value.getClass().getName()
    if kind == "java.sql.Timestamp":
        seconds = value.getTime() // 1000
        return dt.datetime.fromtimestamp(seconds, dt.UTC) + dt.timedelta(
            microseconds=value.getNanos() // 1000
        )
    if kind == "java.sql.Date":
        return dt.date.fromisoformat(value.toString())
    if kind == "java.time.Duration":
        return dt.timedelta(seconds=value.getSeconds(), microseconds=value.getNano() // 1000)
    raise NoSqlError(f"a literal of {kind}")
