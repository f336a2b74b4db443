"""What evaluates SQL and the user's DataFrame functions for the driver: its own SQL, or a Spark session.

Either gives DataFrames of tables, and a context in which PySpark's functions make what its DataFrames take.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from millstream.testing.dataframe import DataFrame
from millstream.testing.functions import in_their_place
from millstream.testing.sql.building import Moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    moment: Moment

    def frame(self, table: pa.Table) -> Any:
        """The table as a DataFrame."""

    def at_work(self) -> AbstractContextManager[None]:
        """Within it ``pyspark.sql.functions`` fit the DataFrames."""


class OwnSql:
    """Spark SQL in plain Python: there at once, and refuses what it does not know."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    def frame(self, table: pa.Table) -> DataFrame:
        return DataFrame(table, self.moment)

    def at_work(self) -> AbstractContextManager[None]:
        return in_their_place()


class OnSpark:
    """Spark itself, locally: all that it knows, seconds to start, and a job for every step."""

    def __init__(self, moment: Moment, session: SparkSession) -> None:
        self.moment = moment
        self._session = session

    def frame(self, table: pa.Table) -> Any:
        return self._session.createDataFrame(table)

    def at_work(self) -> AbstractContextManager[None]:
        return nullcontext()
