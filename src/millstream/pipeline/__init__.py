"""Pipelines on Spark: sources and sinks, topologies, views.

May import: ``client``, ``records``, ``wire``. Needs the ``spark`` extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.pipeline.types_before_spark import answer_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("millstream")`` known to a session that has not found it by itself.

    Raises ConfigError where the Python that Spark starts for it on this machine has no millstream."""
    # Here and not at the top: topologies are checked and drawn without loading Spark.
    from millstream.pipeline.datasource import MillstreamDataSource
    from millstream.pipeline.session import check_python

    check_python(spark)
    spark.dataSource.register(MillstreamDataSource)


# Before a pipeline's file is run, which declares its UDFs.
answer_pyspark()
