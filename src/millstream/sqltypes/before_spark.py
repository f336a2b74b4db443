"""Lets PySpark declare what a pipeline's file declares, before there is a Spark session.

``@udf("string")`` asks the JVM what ``string`` is, at the time when the function is declared, and
``F.col("eur")`` asks it for a column. At the top of a pipeline's file there is no JVM yet, and often there
never will be: ``graph`` and the test driver work without one. So while no session is running, this module
answers PySpark: types are read here, and columns are recorded as SQL (``recorded``). With a session, PySpark
asks Spark as usual. The test driver has columns recorded while it is at work, whether a session is running or
not.

PySpark reads types, calls functions and builds columns each through one function of a module.
``answer_pyspark`` replaces these, now or when PySpark is imported.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.sqltypes.ddl import TypeTree


def answer_pyspark() -> None:
    """Replace PySpark's functions. Idempotent, and does not import PySpark."""
    for name, answer in _ANSWERS.items():
        if (loaded := sys.modules.get(name)) is not None:
            answer(loaded)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Python asks it for every module that is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _ANSWERS or self._at_work:
            return None
        self._at_work = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._at_work = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec

    _at_work = False


class _Loader(importlib.abc.Loader):
    """Loads this one module with its real loader, which may serve a whole zip file, and then restores that
    loader."""

    def __init__(self, real: importlib.abc.Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._real
        self._real.exec_module(module)
        _ANSWERS[module.__name__](module)


def _answer_types(types: Any) -> None:
    _replace(types, "get_active_spark_context", _types)
    if not _has_spark():
        _replace(types, "_parse_datatype_string", _types_of_the_client)


def _has_spark() -> bool:
    """False if PySpark is the package pyspark-client, which asks a server for everything."""
    return importlib.util.find_spec("py4j") is not None


def _answer_functions(functions: Any) -> None:
    _replace(functions, "_get_active_spark_context", _columns)
    _replace(functions, "_invoke_function", _functions)


def _answer_columns(column: Any) -> None:
    _replace(column, "get_active_spark_context", _columns)
    for name in ("cast", "try_cast"):
        _replace(column.Column, name, _casts)


def _answer_windows(window: Any) -> None:
    _replace(window, "get_active_spark_context", _columns)


def _answer_udfs(udf: Any) -> None:
    _replace(udf.UserDefinedFunction, "__call__", _calls)


_ANSWERS: dict[str, Callable[[Any], None]] = {
    "pyspark.sql.types": _answer_types,
    "pyspark.sql.functions.builtin": _answer_functions,
    "pyspark.sql.classic.column": _answer_columns,
    "pyspark.sql.classic.window": _answer_windows,
    "pyspark.sql.udf": _answer_udfs,
}


def _replace(owner: Any, name: str, answering: Callable[[Any], Any]) -> None:
    """Replace a function with one that answers in its place, once."""
    real = getattr(owner, name)
    if not hasattr(real, "_before_spark"):
        made: Any = functools.wraps(real)(answering(real))
        made._before_spark = True
        setattr(owner, name, made)


def _types(real: Callable[[], Any]) -> Callable[[], Any]:
    """For ``get_active_spark_context``, where it is asked for a type: the context or, without one, an object
    that can parse types."""

    def answer() -> Any:
        from pyspark import SparkContext

        return _Types() if SparkContext._active_spark_context is None else real()

    return answer


def _types_of_the_client(real: Callable[[str], Any]) -> Callable[[str], Any]:
    def answer(text: str) -> Any:
        from pyspark.sql import SparkSession

        return data_type(text) if SparkSession.getActiveSession() is None else real(text)

    return answer


class _Types:
    def _parse_ddl(self, text: str) -> Any:
        return data_type(text)


def _columns(real: Callable[[], Any]) -> Callable[[], Any]:
    """For ``get_active_spark_context``, where it is asked for columns."""

    def answer() -> Any:
        from millstream.sqltypes.recorded import Recorder, is_recording

        return Recorder() if is_recording() else real()

    return answer


def _functions(real: Callable[..., Any]) -> Callable[..., Any]:
    """For ``_invoke_function``, which calls a function of Spark's by its name."""

    def answer(name: str, *arguments: Any) -> Any:
        from pyspark.sql.classic.column import Column

        from millstream.sqltypes.recorded import Recorder, is_recording

        return Column(Recorder().call(name, arguments)) if is_recording() else real(name, *arguments)

    return answer


def _casts(real: Callable[..., Any]) -> Callable[..., Any]:
    """For ``Column.cast``, which would start a session to read a DataType."""

    def answer(column: Any, dataType: Any) -> Any:  # noqa: N803 - as PySpark has it
        from pyspark.sql.types import DataType

        from millstream.sqltypes.recorded import RecordedColumn

        is_recorded = isinstance(column._jc, RecordedColumn) and isinstance(dataType, DataType)
        return real(column, dataType.simpleString() if is_recorded else dataType)

    return answer


def _calls(real: Callable[..., Any]) -> Callable[..., Any]:
    """For the call of a UDF."""

    def answer(udf: Any, *arguments: Any, **by_name: Any) -> Any:
        from pyspark.sql.classic.column import Column

        from millstream.sqltypes.recorded import is_recording, remember, udf_call

        if is_recording():
            return Column(udf_call(udf, arguments, by_name))
        made = real(udf, *arguments, **by_name)
        remember(made, udf, arguments, by_name)
        return made

    return answer


def data_type(text: str) -> Any:
    """The ``DataType`` that a text means to Spark: a type, or the columns of a struct. Raises ValueError if
    it is neither, or a type that only Spark can read."""
    from millstream.sqltypes.ddl import SchemaError, type_tree

    try:
        return _made(type_tree(text))
    except SchemaError as error:
        raise ValueError(
            f"{error}. Before Spark is running, a type of another kind must be given as an object of"
            " pyspark.sql.types"
        ) from None


def _made(tree: TypeTree) -> Any:
    from pyspark.sql import types

    word, inner, fields = tree.word, tree.inner, tree.fields
    if word == "array":
        return types.ArrayType(_made(inner[0]))
    if word == "map":
        return types.MapType(*map(_made, inner))
    if word == "struct":
        return types.StructType(
            [types.StructField(name, _made(type), not required) for name, type, required in fields]
        )
    if word == "decimal":
        return types.DecimalType(*tree.size)
    if word in ("char", "varchar"):
        return (types.CharType if word == "char" else types.VarcharType)(*tree.size)
    return getattr(types, _SIMPLE[word])()


_SIMPLE = {
    "boolean": "BooleanType",
    "tinyint": "ByteType",
    "smallint": "ShortType",
    "int": "IntegerType",
    "bigint": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "string": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
    "variant": "VariantType",
}
