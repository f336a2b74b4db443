"""Calls of PySpark's UDFs in SQL text, and the functions that such text needs."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from millstream.sqltypes import expressions
from millstream.sqltypes.expressions import Expression


def function_call(udf: Any, arguments: Sequence[Expression]) -> Expression:
    """A call of a UDF. Its name in the text is the same in every process."""
    name = _name(udf)
    called = expressions.call(name, arguments)
    return Expression("", functions={name: udf}).made(called.sql, called.power, *arguments)


def register_functions(session: Any, functions: Mapping[str, Any]) -> None:
    """Make UDFs known to a session in which SQL text that calls them is to be read."""
    for name, udf in functions.items():
        session.udf.register(name, udf._wrapped())


@contextmanager
def registered_functions(session: Any, functions: Mapping[str, Any]) -> Iterator[None]:
    """Make UDFs known to a session while SQL text that calls them is read. What was read keeps them.
    Functions of the session that have the same names are back afterwards.
    """
    if not functions:
        yield
        return
    registry = session._jsparkSession.sessionState().functionRegistry()
    identifiers = {name: _identifier(session._jvm, name) for name in functions}
    with _registering:
        hidden = {
            name: (registry.lookupFunction(one).get(), registry.lookupFunctionBuilder(one).get())
            for name, one in identifiers.items()
            if registry.functionExists(one)
        }
        try:
            register_functions(session, functions)
            yield
        finally:
            for name, one in identifiers.items():
                registry.dropFunction(one)
                if name in hidden:
                    registry.registerFunction(one, *hidden[name])


def _identifier(jvm: Any, name: str) -> Any:
    """Where Spark keeps a temporary function."""
    namespace = (jvm.scala.Option.apply(part) for part in ("session", "system"))
    return jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, *namespace)


_registering = threading.RLock()  # jobs that start in one session may call different functions by one name


def _name(udf: Any) -> str:
    import pyspark.sql.functions as spark_functions

    name = str(udf._name)
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        code = getattr(udf.func, "__code__", None)
        name = "lambda" if code is None else f"lambda_{hashlib.sha256(_code(code)).hexdigest()[:8]}"
    # A function of Spark's own would be hidden from the rest of the session.
    return f"udf_{name}" if hasattr(spark_functions, name.lower()) else name


def _code(code: CodeType) -> bytes:
    inner = [_code(one) if isinstance(one, CodeType) else repr(one).encode() for one in code.co_consts]
    return b"\0".join([code.co_code, repr(code.co_names).encode(), *inner])
