"""Lets PySpark parse its types from text before there is a Spark session.

``@udf("string")`` asks the JVM what ``string`` is, at the time when the function is declared. At the top of a
pipeline's file there is no JVM yet, and often there never will be: ``graph`` and the test driver work without
one. So while no session is running, this module answers PySpark. With a session, PySpark asks Spark as usual.

PySpark reads all such texts (of UDFs, Arrow and pandas UDFs, UDTFs, ``DataType.fromDDL``) through one
function of ``pyspark.sql.types``. ``answer_pyspark`` replaces it, now or when PySpark is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.sqltypes.ddl import TypeTree

_MODULE = "pyspark.sql.types"
_ASKED = "get_active_spark_context"


def answer_pyspark() -> None:
    """Replace PySpark's function. Idempotent, and does not import PySpark."""
    if (loaded := sys.modules.get(_MODULE)) is not None:
        _answer(loaded)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Python asks it for every module that is imported, until that is PySpark's types."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


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
        _answer(module)


def _answer(types: Any) -> None:
    ask = getattr(types, _ASKED)
    if isinstance(ask, _Asked):
        return
    setattr(types, _ASKED, _Asked(ask))


class _Asked:
    """Replaces ``get_active_spark_context``. Returns the context or, without one, itself, which can
    parse types."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def __call__(self) -> Any:
        from pyspark import SparkContext

        return self if SparkContext._active_spark_context is None else self._ask()

    def _parse_ddl(self, text: str) -> Any:
        return data_type(text)


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
