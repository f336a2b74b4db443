"""Where Spark finds ``format("millstream")``: it imports all installed ``pyspark_*`` modules, and takes
their ``DefaultSource``. May import ``pipeline``; only Spark imports this."""

from __future__ import annotations

from millstream.pipeline.connector.datasource import MillstreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
