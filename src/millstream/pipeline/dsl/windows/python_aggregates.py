"""Aggregates that users write in Python, for ``.agg(...)`` of a window.

    @aggregate("amount", returns="double")
    def p90(amounts):                       # all amounts of a window, in time order
        return sorted(amounts)[int(0.9 * len(amounts))]

    payments.window(by="card", size="1 minute").agg(n="count(*)", p90=p90)

A class keeps less than a list of all values: ``zero()`` returns the initial state, ``add(state, value)``
returns the state with one more value in it, and ``result(state)`` returns the aggregate. The state must be
plain Python (numbers, text, tuples, lists, dicts). In windows that take rows as they arrive, the order of the
adds is not guaranteed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.columns import SqlTexts
from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.kernel.windows.calls import PythonAggregate
from millstream.sqltypes.arrow import arrow_type
from millstream.sqltypes.ddl import SchemaError

if TYPE_CHECKING:
    from millstream.pipeline.dsl.columns import Sql


def aggregate(*arguments: Sql, returns: str) -> Callable[[Any], PythonAggregate]:
    """Turn a function, or a class with ``zero``, ``add`` and ``result``, into an aggregate for ``.agg(...)``.

    ``arguments`` are SQL expressions over the rows. The function gets one list of values for each of them.
    Rows in which one is null don't count. ``returns`` is Spark's name for the type of the result.

        >>> @aggregate("eur", returns="double")
        ... def p90(amounts):
        ...     return sorted(amounts)[int(0.9 * len(amounts))]
        >>> windows = payments.window(by="card", size="1 minute").agg(n="count(*)", p90=p90)
    """
    at = caller()
    arguments = tuple(SqlTexts().condition(one, "an argument of aggregate", at) for one in arguments)
    if not arguments or not all(isinstance(one, str) and one.strip() for one in arguments):
        raise TopologyError(
            "aggregate needs the columns that it reads, as in aggregate('amount', returns='double')", where=at
        )
    try:
        kind = arrow_type(returns)
    except SchemaError as error:
        raise TopologyError(f"aggregate: returns={returns!r}: {error}", where=at) from None

    def made(given: Any) -> PythonAggregate:
        name = getattr(given, "__name__", type(given).__name__)
        if not inspect.isroutine(given):
            folding = _instance(given, name, at)
            for method, many in (("zero", 0), ("add", 1 + len(arguments)), ("result", 1)):
                _check_takes(getattr(folding, method, None), many, f"{name}.{method}", at)
            return PythonAggregate(name, arguments, returns, kind, folding=folding)
        _check_takes(given, len(arguments), name, at)
        return PythonAggregate(name, arguments, returns, kind, whole=given)

    return made


def _instance(given: Any, name: str, at: str) -> Any:
    if not isinstance(given, type):
        return given
    try:
        return given()
    except TypeError as error:
        raise TopologyError(f"aggregate {name} must take no arguments: {error}", where=at) from None


def _check_takes(function: object, many: int, name: str, at: str) -> None:
    if not callable(function):
        raise TopologyError(
            f"an aggregate is a function or a class with zero(), add(state, ...) and result(state);"
            f" {name} is missing",
            where=at,
        )
    try:
        inspect.signature(function).bind(*[None] * many)
    except ValueError:
        pass  # some of Python's own functions have no signature
    except TypeError:
        raise TopologyError(f"aggregate: {name} must take {many} arguments", where=at) from None
