"""A user's DataFrame functions on the driver's own SQL, written as they are for Spark."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame as SparkDataFrame
from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql.functions import col, lit, udf
from pyspark.sql.types import IntegerType

from millstream.pipeline.sql.building import Moment
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.sqltypes.expressions import NoSqlError
from millstream.sqltypes.recorded import refused
from millstream.testing.columns import in_their_place
from millstream.testing.dataframe import DataFrame

NOW = Moment(datetime(2026, 1, 1, tzinfo=UTC))


@udf(IntegerType())
def letters(text):  # type: ignore[no-untyped-def]
    return None if text is None else len(text)


def frame() -> DataFrame:
    return DataFrame(pa.table({"card": ["a", "b", None], "eur": [1.0, 20.0, 300.0]}), NOW)


def rows(made: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in made.toArrow().to_pylist()]


def test_columns_functions_and_udfs_that_were_imported_before() -> None:
    with in_their_place():
        df = frame()
        made = df.select(
            col("card"),
            (col("eur") * 2 + 1).alias("more"),
            fn.when(df.eur > 100, "big").when(df["eur"] > 10, lit("middle")).otherwise("small").alias("size"),
            fn.concat_ws("-", "card", lit("x")).alias("joined"),
            letters("card").alias("letters"),
            fn.date_format(fn.current_timestamp(), "yyyy").alias("year"),
        )
    assert rows(made) == [
        ("a", 3.0, "small", "a-x", 1, "2026"),
        ("b", 41.0, "middle", "b-x", 1, "2026"),
        (None, 601.0, "big", "x", None, "2026"),
    ]


def test_steps_as_people_write_them() -> None:
    with in_their_place():
        df = frame()
        made = (
            df.withColumn("cents", (fn.col("eur") * 100).cast("int"))
            .filter(fn.col("card").isNotNull() & ~fn.col("card").isin("b", "c"))
            .withColumnRenamed("eur", "euros")
            .drop("card")
        )
        assert made.columns == ["euros", "cents"]
        assert made.dtypes == [("euros", "double"), ("cents", "int")]
        assert rows(made) == [(1.0, 100)]
        both = df.unionByName(df.withColumn("extra", fn.lit(1)), allowMissingColumns=True)
        assert [row[2] for row in rows(both)] == [None, None, None, 1, 1, 1]
        assert [row[0] for row in rows(df.fillna("?", ["card"]))] == ["a", "b", "?"]
        assert len(rows(df.dropna())) == 2
        assert rows(df.transform(lambda given: given.where("eur > 100")).select("eur")) == [(300.0,)]
        listed = df.select(fn.transform(fn.array("eur", fn.lit(2.0)), lambda one: one + 1).alias("l"))
        assert rows(listed)[0] == ([2.0, 3.0],)


def test_an_alias_may_stand_before_its_columns() -> None:
    with in_their_place():
        df = frame().alias("paid").where("paid.eur > 10")
        assert rows(df.select("paid.card", (col("paid.eur") + 1).alias("more"))) == [
            ("b", 21.0),
            (None, 301.0),
        ]
        assert df.select("paid.*").columns == ["card", "eur"]
        with pytest.raises(AnalysisError, match="no column 'paid'"):
            df.select("eur").select("paid.eur")


def test_functions_over_batches() -> None:
    def doubled(batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [2 * value for value in batch["eur"].to_pylist()]})

    assert rows(frame().mapInArrow(doubled, "n double")) == [(2.0,), (40.0,), (600.0,)]


def test_it_passes_for_a_dataframe_and_refuses_what_it_cannot_do() -> None:
    df = frame()
    assert isinstance(df, SparkDataFrame)
    with in_their_place():
        for use in (
            lambda: df.groupBy("card"),
            lambda: df.join(df, "card"),
            lambda: df.select(fn.rank().over(Window.partitionBy("card"))),
            lambda: df.select(fn.soundex("card").alias("s")),
            lambda: df.rdd,
        ):
            with pytest.raises(Unsupported, match="engine='spark'"):
                use()
        with pytest.raises(AnalysisError, match="no column 'crad'"):
            df.select(df["crad"])
        with pytest.raises(ValueError, match="please use '&' for 'and'"):
            df.where(df.eur > 1 and df.eur < 2)


def test_columns_are_recorded_for_the_driver_in_this_context_only() -> None:
    elsewhere: list[Exception] = []
    with in_their_place():
        thread = threading.Thread(target=lambda: elsewhere.append(refused("it")))
        thread.start()
        thread.join()
        assert isinstance(refused("it"), Unsupported)
    assert [type(error) for error in elsewhere] == [NoSqlError], "another thread notices nothing"
    with pytest.raises(ZeroDivisionError), in_their_place():
        1 / 0  # noqa: B018
    assert isinstance(refused("it"), NoSqlError)
