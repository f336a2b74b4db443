"""Pipelines on Spark: a declared topology of streams and views becomes Spark queries that run as a job.
It may import ``client``, ``records``, ``registry`` and ``wire``; ``testing``, ``examples``, ``console`` and
``cli`` may import it. It needs the ``spark`` extra. Start reading at ``topology`` (what a pipeline declares),
``plan`` (the Spark queries made of it), ``job`` (one run) and ``deliver`` (how a batch reaches its sinks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.pipeline.types_before_spark import answer_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("millstream")`` known to a session that has not found it by itself.

    Raises ConfigError if the Python that Spark starts for the session on this machine has no millstream."""
    # Imported here, not at the top: topologies are checked and drawn without loading Spark.
    from millstream.pipeline.datasource import MillstreamDataSource
    from millstream.pipeline.session import check_python

    check_python(spark)
    spark.dataSource.register(MillstreamDataSource)


# This must run before a pipeline's file does, because the file declares its UDFs.
answer_pyspark()
