"""Pipelines on Spark: a declared topology of streams and views becomes Spark queries that run as a job. It
may import ``client``, ``records``, ``registry``, ``views``, ``jobs`` and what is below them; ``testing``,
``examples``, ``console`` and ``cli`` may import it. It needs the ``spark`` extra. Start reading at ``dsl``
(what a pipeline declares), ``planning`` (the Spark queries made of it), ``spark`` and ``run`` (one job at
work), and ``kernel`` (time, state and order beyond what Spark has). ``topology`` is the class that users
import: a declared topology that can be run and drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sqltypes.before_spark import answer_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("millstream")`` known to a session that has not found it by itself.

    Raises ConfigError if the Python that Spark starts for the session on this machine has no millstream."""
    # Imported here, not at the top: topologies are checked and drawn without loading Spark.
    from millstream.pipeline.connector.datasource import MillstreamDataSource
    from millstream.pipeline.spark.session import check_python

    check_python(spark)
    spark.dataSource.register(MillstreamDataSource)


# This must run before a pipeline's file does, because the file declares its UDFs.
answer_pyspark()
