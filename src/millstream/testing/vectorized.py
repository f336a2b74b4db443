"""Calls functions of whole Arrow or pandas columns as Spark's Python workers do.

A worker passes up to 10,000 rows of a partition at once; here a function gets all rows of a batch.
PySpark's own conversions decide what pandas gets and what is taken back from it (types, nulls, time
zones).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType
from pyspark.util import PythonEvalType

from millstream.pipeline.sql import types
from millstream.pipeline.sql.casts import BadValue
from millstream.pipeline.sql.nodes import Unsupported
from millstream.pipeline.sql.types import Type

Whole = Callable[..., pa.Array]  # of columns, all rows at once
_ROW_BY_ROW = (PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF)
_PANDAS = (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)
_ARROW = (PythonEvalType.SQL_SCALAR_ARROW_UDF, PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
_ITERATORS = (_PANDAS[1], _ARROW[1])


def is_row_by_row(eval_type: int) -> bool:
    return eval_type in _ROW_BY_ROW


def whole(function: Callable[..., Any], eval_type: int, kind: Type) -> Whole:
    """A user's function as a function from Arrow columns to an Arrow column of a type."""
    if eval_type not in (*_PANDAS, *_ARROW):
        raise Unsupported("a UDF over several rows (an aggregate or a grouped one)")
    called = _first_of(function) if eval_type in _ITERATORS else function
    name, wanted = getattr(function, "__name__", "the UDF"), types.to_arrow(kind)

    def call(*columns: pa.Array) -> pa.Array:
        rows = len(columns[0])
        found = called(*map(_to_pandas, columns)) if eval_type in _PANDAS else called(*columns)
        if not hasattr(found, "__len__") or len(found) != rows:
            given = f"{len(found)} values" if hasattr(found, "__len__") else type(found).__name__
            raise BadValue(f"{name} returned {given} for {rows} rows")
        try:
            made = _from_pandas(found, wanted) if eval_type in _PANDAS else found
            return made.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise BadValue(f"{name} returned a value that is not {kind.text}: {error}") from None

    return call


def _first_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of an iterator of batches as a function of a single batch."""

    def call(*columns: Any) -> Any:
        given = iter([columns[0] if len(columns) == 1 else columns])
        found = next(iter(function(given)), None)
        return [] if found is None else found

    return call


def map_in_pandas(function: Callable[..., Any], table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``DataFrame.mapInPandas``: pandas DataFrames in, pandas DataFrames out."""
    import pandas as pd

    def batches() -> Iterator[Any]:
        if table.num_rows:
            columns = [_to_pandas(column.combine_chunks(), frames=False) for column in table.columns]
            yield pd.DataFrame(dict(zip(table.column_names, columns, strict=True)))

    made = [
        pa.Table.from_arrays(
            [_from_pandas(frame[field.name], field.type).cast(field.type) for field in schema], schema=schema
        )
        for frame in function(batches())
        if len(frame)
    ]
    return pa.concat_tables(made) if made else schema.empty_table()


def _to_pandas(column: pa.Array, *, frames: bool = True) -> Any:
    """A pandas Series; a DataFrame for structs if ``frames`` is true."""
    from pyspark.sql.conversion import ArrowArrayToPandasConversion
    from pyspark.sql.pandas.types import from_arrow_type

    return ArrowArrayToPandasConversion.convert(
        column, from_arrow_type(column.type), timezone="UTC", df_for_struct=frames
    )


def _from_pandas(found: Any, wanted: pa.DataType) -> pa.Array:
    from pyspark.sql.conversion import PandasToArrowConversion
    from pyspark.sql.pandas.types import from_arrow_type

    schema = StructType([StructField("_0", from_arrow_type(wanted))])
    return PandasToArrowConversion.convert([found], schema, timezone="UTC", arrow_cast=True).column(0)
