"""Has Spark analyse a plan before anything runs: syntax errors, unknown functions, types that do not fit.

The queries are built as a job builds them, over sources that are never read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.pipeline.connector.columns import COLUMNS
from millstream.pipeline.formats.decode import plain_columns
from millstream.pipeline.planning.record_columns import wanted_columns
from millstream.pipeline.spark.job_session import check_supported, quiet_pyspark
from millstream.pipeline.spark.lowering.frames import Frames
from millstream.pipeline.spark.lowering.sinks import sink_rows
from millstream.sqltypes.python_functions import registered_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.pipeline.dsl.sources import SourceNode
    from millstream.pipeline.planning.plan import Plan, Query


def analyse(spark: SparkSession, plan: Plan) -> None:
    """Raises TopologyError with the line that declared what is wrong."""
    with quiet_pyspark(), registered_functions(spark, plan.flow.texts.functions):
        for query in plan.queries:
            frames = Frames(partial(_unread, spark, query), output_mode=query.output_mode)
            for sink in query.sinks:
                frames.of(sink.stream)
            for output in query.outputs:
                check_supported(spark, frames.of(output), query.output_mode, output.at)
            sink_rows(query, frames)


def _unread(spark: SparkSession, query: Query, source: SourceNode) -> DataFrame:
    """A stream of a source's records with its columns, for Spark's analysis only."""
    wanted = wanted_columns(query, source)
    columns = [f"{name} {kind}" for name, kind in COLUMNS.items() if name in wanted]
    if (plain := plain_columns(source)) is not None:
        columns.append(plain)
    reader = spark.readStream.format("millstream").option("topic", source.name)
    return reader.schema(", ".join(columns)).load()
