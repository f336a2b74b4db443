"""What Spark says about a pipeline before it runs; UDFs that were declared before Spark was there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.connector.columns import COLUMNS
from millstream.pipeline.dsl.streams import Stream
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.run.analysis import analyse
from millstream.pipeline.spark.lowering.frames import Frames
from millstream.sqltypes.before_spark import data_type

DOCS = Path(__file__).resolve().parents[2] / "docs"


def payments(flow: Topology) -> Any:
    return flow.source("payments", schema="card string, eur double, at timestamp", time="at")


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda rows: rows.where("eur > > 3"), "Syntax error at or near '>'"),
        (lambda rows: rows.where("uper(card) = 'A'"), "there is no function 'uper'"),
        (lambda rows: rows.select("card", "sqrt(at) AS x"), "data type mismatch"),
        (lambda rows: rows.window(size="1 minute", by="card").agg(n="cuont(*)"), "cuont"),
        (lambda rows: rows.where("upper(card) = 'A'"), None),
    ],
)
def test_mistakes_in_expressions_are_found_with_their_line(
    spark: SparkSession, declare: Any, problem: str | None
) -> None:
    flow = Topology("wrong")
    made: Stream = declare(payments(flow))
    made.to_topic("out")
    if problem is None:
        analyse(spark, plan(flow))
        return
    with pytest.raises(TopologyError, match=re.escape(problem)) as said:
        analyse(spark, plan(flow))
    assert "test_analysis.py:" in str(said.value)


TYPES = """
    boolean; byte; tinyint; short; smallint; int; integer; long; bigint; float; real; double; string; binary;
    date; timestamp; timestamp_ntz; timestamp_ltz; decimal; decimal(5); decimal( 16 , 8 ); dec(4,1);
    char(5); varchar(9); array<int>; map<string, array<double>>; struct<a:int,b:string>; variant;
    struct<`a b`: int NOT NULL, c map<int,decimal(20,0)>>; a int, b string; a: byte NOT NULL; date int;
    ARRAY<STRUCT<x: INT>>
"""


@pytest.mark.parametrize("text", [each.strip() for each in TYPES.split(";")])
def test_types_are_read_as_spark_reads_them(spark: SparkSession, text: str) -> None:
    assert data_type(text) == DataType.fromDDL(text)


def test_the_arrow_and_pandas_udfs_of_the_page_run_on_spark(spark: SparkSession) -> None:
    (code,) = re.findall(r"```py\n(.*?)```", (DOCS / "guides" / "udfs.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "udfs"}
    exec(compile(code, "udfs.md", "exec"), names)
    columns = {"value": b'{"card": "4111222233334444", "eur": 10}', "partition": 0, "offset": 0}
    kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name in columns)
    raw = spark.createDataFrame([tuple(columns[name] for name in COLUMNS if name in columns)], kinds)
    (row,) = Frames(lambda source: raw).of(names["safe"].node).collect()
    assert row.asDict() == {"card": "****4444", "eur": 11.9}
