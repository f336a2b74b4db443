"""SQL text of a column of Spark Connect, whose expressions are Python objects.

They are also the only columns that the package ``pyspark-client`` has, on which the test driver runs where
Spark is not installed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.sqltypes import expressions
from millstream.sqltypes.column_trees import WITH_TYPES, type_as_ddl
from millstream.sqltypes.expressions import Expression, NoSqlError
from millstream.sqltypes.python_functions import function_call


def expression_of_connect(node: Any) -> Expression:
    """The text of an expression of Spark Connect. Raises NoSqlError if it has a part that is not SQL."""
    of, kind = expression_of_connect, type(node).__name__
    if kind in ("UnresolvedFunction", "CallFunction"):
        distinct = getattr(node, "_is_distinct", False)
        typed = node._name in WITH_TYPES
        given = [_typed(one) if typed else of(one) for one in node._args]
        return expressions.call(node._name, given, distinct=distinct)
    if kind == "LiteralExpression":
        return expressions.literal(_value(node))
    if kind == "ColumnReference":
        return expressions.column(node._unparsed_identifier)
    if kind == "UnresolvedStar":
        return Expression(node._unparsed_target or "*")
    if kind == "UnresolvedExtractValue":
        return expressions.element(of(node._child), of(node._extraction))
    if kind == "ColumnAlias":
        if len(node._alias) != 1:
            raise NoSqlError("an alias with several names")
        return replace(of(node._child), alias=node._alias[0])
    if kind == "CastExpression":
        type_ = node._data_type if isinstance(node._data_type, str) else node._data_type.simpleString()
        return expressions.cast(of(node._expr), type_, tries=node._eval_mode == "try")
    if kind == "CaseWhen":
        branches = [(of(condition), of(value)) for condition, value in node._branches]
        return expressions.case(branches, None if node._else_value is None else of(node._else_value))
    if kind == "SQLExpression":
        return expressions.sql_text(node._expr)
    if kind == "LambdaFunction":
        return expressions.lambda_function([of(one) for one in node._arguments], of(node._function))
    if kind == "UnresolvedNamedLambdaVariable":
        return expressions.variable(".".join(node._name_parts))
    if kind == "CommonInlineUserDefinedFunction":
        return _of_udf(node)
    raise NoSqlError(_KINDS.get(kind, f"Spark Connect's {kind}"))


_KINDS = {
    "SortOrder": "an order (asc, desc)",
    "WindowExpression": "a function over a window (Column.over)",
    "WithField": "Column.withField",
    "DropField": "Column.dropFields",
}


def _typed(node: Any) -> Expression:
    if type(node).__name__ == "LiteralExpression":
        return expressions.literal(type_as_ddl(_value(node)))
    return expression_of_connect(node)


def _value(node: Any) -> Any:
    """The Python value of a literal, which has times as numbers."""
    type_, value = node._dataType, node._value
    if value is None or type_.typeName() not in ("date", "timestamp", "daytimeinterval"):
        return value
    return type_.fromInternal(value)


def _of_udf(node: Any) -> Expression:
    from pyspark.sql.udf import UserDefinedFunction

    made = node._function
    if type(made).__name__ != "PythonUDF":
        raise NoSqlError("a function of the JVM")
    udf = UserDefinedFunction(made._func, made._output_type, node._function_name, made._eval_type)
    return function_call(udf, [expression_of_connect(one) for one in node._arguments])
