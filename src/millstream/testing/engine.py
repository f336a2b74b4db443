"""Evaluates SQL and the user's DataFrame functions for the driver: with its own SQL, or a Spark session.

Either engine turns tables into DataFrames, and provides a context in which PySpark's functions make
columns for those DataFrames.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from millstream.pipeline.sql.building import Moment
from millstream.sqltypes.python_functions import register_functions
from millstream.testing.columns import in_their_place
from millstream.testing.dataframe import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    moment: Moment

    def learn(self, functions: Mapping[str, Any]) -> None:
        """Make UDFs known, by the names that SQL has for them."""

    def frame(self, table: pa.Table) -> Any:
        """The table as a DataFrame."""

    def at_work(self) -> AbstractContextManager[None]:
        """A context in which ``pyspark.sql.functions`` fit the DataFrames."""


class OwnSql:
    """Spark SQL in plain Python: it starts at once, and refuses what it does not know."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    def learn(self, functions: Mapping[str, Any]) -> None:
        self.moment.functions = functions

    def frame(self, table: pa.Table) -> DataFrame:
        return DataFrame(table, self.moment)

    def at_work(self) -> AbstractContextManager[None]:
        return in_their_place()


class OnSpark:
    """Spark itself, locally: it knows everything, takes seconds to start, and runs a job for every step."""

    def __init__(self, moment: Moment, session: SparkSession) -> None:
        self.moment = moment
        self._session = session

    def learn(self, functions: Mapping[str, Any]) -> None:
        register_functions(self._session, functions)

    def frame(self, table: pa.Table) -> Any:
        # A channel's columns are null in the rows of other channels, even NOT NULL ones.
        schema = pa.schema([pa.field(one.name, _nullable(one.type)) for one in table.schema])
        return self._session.createDataFrame(table.cast(schema))

    def at_work(self) -> AbstractContextManager[None]:
        return nullcontext()


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _nullable(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    return kind
