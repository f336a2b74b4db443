"""Columns that are recorded as SQL text instead of built in Spark's JVM.

PySpark's ``Column`` and ``functions`` pass every call on to an object of the JVM. While none is running, and
for the test driver, they get the objects of this module instead, which write down what is called:
``F.col("eur") > 2`` is PySpark's own ``Column`` around a ``RecordedColumn`` with the text ``eur > 2``.
A recorded column that meets a Spark session, for example in an operator, becomes a column of that session.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from millstream.sqltypes import expressions
from millstream.sqltypes.column_trees import WITH_TYPES, expression_of_java, type_as_ddl
from millstream.sqltypes.connect_trees import expression_of_connect
from millstream.sqltypes.expressions import Expression, NoSqlError, call, literal
from millstream.sqltypes.python_functions import function_call, register_functions

_Refusal = Callable[[str], Exception]
_refusal: ContextVar[_Refusal | None] = ContextVar("millstream_recording", default=None)


@contextmanager
def recording(refusal: _Refusal) -> Iterator[None]:
    """Record columns in this context even if a Spark session is running. ``refusal`` makes the error for what
    can't be recorded."""
    token = _refusal.set(refusal)
    try:
        yield
    finally:
        _refusal.reset(token)


def is_recording() -> bool:
    """True while PySpark's functions have no JVM to ask, or are not to ask it."""
    from pyspark import SparkContext

    return _refusal.get() is not None or SparkContext._active_spark_context is None


def refused(what: str) -> Exception:
    made = _refusal.get()
    return (
        NoSqlError(f"{what} can't be written as SQL before Spark is running") if made is None else made(what)
    )


# What PySpark calls on a column of the JVM, and Spark's name for it.
_METHODS = {
    "plus": "+",
    "minus": "-",
    "multiply": "*",
    "divide": "/",
    "mod": "%",
    "equalTo": "=",
    "lt": "<",
    "leq": "<=",
    "gt": ">",
    "geq": ">=",
    "eqNullSafe": "<=>",
    "and": "and",
    "or": "or",
    "like": "like",
    "ilike": "ilike",
    "rlike": "rlike",
    "startsWith": "startswith",
    "endsWith": "endswith",
    "contains": "contains",
    "bitwiseAND": "&",
    "bitwiseOR": "|",
    "bitwiseXOR": "^",
    "isNull": "isnull",
    "isNotNull": "isnotnull",
    "isNaN": "isnan",
    "isin": "in",
    "substr": "substr",
}
_REFUSED = {
    "asc": "an order (asc, desc)",
    "asc_nulls_first": "an order (asc, desc)",
    "asc_nulls_last": "an order (asc, desc)",
    "desc": "an order (asc, desc)",
    "desc_nulls_first": "an order (asc, desc)",
    "desc_nulls_last": "an order (asc, desc)",
    "dropFields": "Column.dropFields",
    "outer": "Column.outer",
    "over": "a function over a window (Column.over)",
    "withField": "Column.withField",
}


class RecordedColumn:
    """Stands for a column of the JVM. PySpark calls its methods; py4j takes it for an object of the JVM."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._java: tuple[Any, Any] = (None, None)  # a SparkContext, and the column there

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED:
            raise refused(_REFUSED[name])
        if name not in _METHODS and name not in ("as", "notEqual"):
            raise AttributeError(name)
        return lambda *arguments: self._called(name, arguments)

    def cast(self, type: Any) -> Any:
        return self._called("cast", (type,))

    def try_cast(self, type: Any) -> Any:
        return self._called("try_cast", (type,))

    def apply(self, key: Any) -> Any:
        return self._called("apply", (key,))

    def when(self, condition: Any, value: Any) -> Any:
        return self._called("when", (condition, value))

    def otherwise(self, value: Any) -> Any:
        return self._called("otherwise", (value,))

    def _called(self, name: str, arguments: Sequence[Any]) -> Any:
        if not is_recording() and any(_is_java(one) for one in arguments):
            return getattr(self.java(), name)(*arguments)
        if name == "as":
            if not isinstance(arguments[0], str) or len(arguments) > 1:
                raise refused("an alias with several names or metadata")
            return RecordedColumn(replace(self.expression, alias=arguments[0]))
        if name in ("cast", "try_cast"):
            if not isinstance(arguments[0], str):
                return getattr(self.java(), name)(*arguments)
            return RecordedColumn(expressions.cast(self.expression, arguments[0], tries=name == "try_cast"))
        own, others = self.expression, [_expression(one) for one in _flat(arguments)]
        if name == "apply":
            return RecordedColumn(expressions.element(own, *others))
        if name in ("when", "otherwise"):
            if not own.branches:
                raise refused(f"{name}() on what is not F.when(...)")
            if name == "otherwise":
                return RecordedColumn(expressions.case(own.branches, *others))
            return RecordedColumn(expressions.case([*own.branches, (others[0], others[1])]))
        if name == "notEqual":
            return RecordedColumn(call("!", [call("=", [own, *others])]))
        return RecordedColumn(call(_METHODS[name], [own, *others]))

    def toString(self) -> str:  # noqa: N802 - as in Java
        return self.expression.text

    def java(self) -> Any:
        """The column in the JVM that is running."""
        from pyspark import SparkContext

        running = SparkContext._active_spark_context
        if running is None:
            raise refused(f"the column {self.expression.text}")
        if self._java[0] is not running:
            register_functions(_session(), self.expression.functions)
            made = running._jvm.functions.expr(self.expression.sql)
            if self.expression.alias is not None:
                made = getattr(made, "as")(self.expression.alias)
            self._java = (running, made)
        return self._java[1]

    def _get_object_id(self) -> str:
        return str(self.java()._get_object_id())


def _is_java(value: Any) -> bool:
    return hasattr(value, "_get_object_id") and not isinstance(value, RecordedColumn)


def _flat(arguments: Sequence[Any]) -> Iterator[Any]:
    """Arguments, with those of a sequence of columns one by one."""
    for one in arguments:
        if isinstance(one, _Listed):
            yield from one
        else:
            yield one


def _expression(value: Any) -> Expression:
    if isinstance(value, RecordedColumn):
        return value.expression
    try:
        return expression_of_java(value, called_udfs) if _is_java(value) else literal(value)
    except NoSqlError as error:
        raise refused(str(error)) from None


def expression_of_column(column: Any) -> Expression:
    """What a PySpark column is, recorded or made in a session. Raises NoSqlError if it is not SQL."""
    if type(column).__module__.startswith("pyspark.sql.connect"):
        return expression_of_connect(column._expr)
    java = column._jc
    if isinstance(java, RecordedColumn):
        return java.expression
    return expression_of_java(java, called_udfs)


class _Listed(list[Any]):
    """A sequence of columns, as PySpark makes one in the JVM."""


_numbers = itertools.count()


class Recorder:
    """Stands for the SparkContext, its JVM, and the objects there that PySpark's functions use."""

    @property
    def _jvm(self) -> Recorder:
        return self

    @property
    def functions(self) -> Recorder:
        return self

    PythonUtils = PythonSQLUtils = functions

    def toSeq(self, values: Sequence[Any]) -> _Listed:  # noqa: N802 - as in Java
        return _Listed(values)

    toList = toSeq  # noqa: N815

    def fn(self, name: str, arguments: Sequence[Any]) -> RecordedColumn:
        return RecordedColumn(call(name, [_expression(one) for one in arguments]))

    def unresolvedNamedLambdaVariable(self, name: str) -> RecordedColumn:  # noqa: N802
        return RecordedColumn(expressions.variable(next(_numbers)))

    def lambdaFunction(self, body: Any, arguments: Sequence[Any]) -> RecordedColumn:  # noqa: N802
        return RecordedColumn(
            expressions.lambda_function([_expression(one) for one in arguments], _expression(body))
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if "." in name or name[:1].isupper():
            raise refused(f"{name.rpartition('.')[2]} of PySpark")
        return lambda *arguments: self.call(name, arguments)

    def call(self, name: str, arguments: Sequence[Any]) -> RecordedColumn:
        """What a function of ``pyspark.sql.functions`` calls in the JVM."""
        if name in ("col", "column"):
            return RecordedColumn(expressions.column(arguments[0]))
        if name == "expr":
            return RecordedColumn(expressions.sql_text(arguments[0]))
        if name in _REFUSED:
            raise refused(_REFUSED[name])
        if name in WITH_TYPES:
            arguments = [*map(type_as_ddl, arguments)]
        given = [_argument(one) for one in _flat(arguments)]
        if name in ("lit", "typedLit", "typedlit"):
            return RecordedColumn(given[0])
        if name == "when":
            return RecordedColumn(expressions.case([(given[0], given[1])]))
        if name in ("call_function", "call_udf", "fn"):
            return RecordedColumn(call(str(arguments[0]), given[1:]))
        if name == "log" and len(given) == 1:
            name = "ln"
        if name == "unix_timestamp" and not given:
            given = [call("current_timestamp", [])]
        return RecordedColumn(
            call(_NAMES.get(name, name), [one for one in given if one.sql], distinct=name in _DISTINCT)
        )


# Functions of the JVM with another name in SQL.
_NAMES = {
    "bitwise_not": "~",
    "count_distinct": "count",
    "mean": "avg",
    "not": "!",
    "negate": "negative",
    "pow": "power",
    "timestamp_add": "timestampadd",
    "timestamp_diff": "timestampdiff",
    "sum_distinct": "sum",
    "listagg_distinct": "listagg",
    "string_agg_distinct": "string_agg",
}
_DISTINCT = {"count_distinct", "sum_distinct", "listagg_distinct", "string_agg_distinct"}


def _argument(value: Any) -> Expression:
    if isinstance(value, dict):  # options
        return (
            call("map", [literal(part) for pair in value.items() for part in pair])
            if value
            else Expression("")
        )
    return _expression(value)


# ---- Python functions ----------------------------------------------------------------------------------

_MOST_CALLS = 1000
# The latest calls of Python functions in a running session, by the number that Spark gave the result: Spark's
# tree has only the pickled function.
called_udfs: dict[int, Expression] = {}


def udf_call(udf: Any, arguments: Sequence[Any], by_name: dict[str, Any]) -> RecordedColumn:
    """A call of a PySpark UDF with columns or their names."""
    if by_name:
        raise refused("a UDF with keyword arguments")
    return RecordedColumn(function_call(udf, [_column(one) for one in arguments]))


def remember(made: Any, udf: Any, arguments: Sequence[Any], by_name: dict[str, Any]) -> None:
    """Remember a call of a UDF in a running session."""
    try:
        number = made._jc.node().expression().resultId().id()
        called_udfs[number] = udf_call(udf, arguments, by_name).expression
    except Exception:  # it is then refused where SQL is needed
        return
    while len(called_udfs) > _MOST_CALLS:
        del called_udfs[next(iter(called_udfs))]


def _column(value: Any) -> Expression:
    if isinstance(value, str):
        return expressions.column(value)
    java = getattr(value, "_jc", None)
    if java is None:
        raise refused(f"the argument {value!r} of a UDF")
    return _expression(java)


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession._instantiatedSession
