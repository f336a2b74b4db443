"""Where Spark looks for ``format("millstream")``: it imports every module named ``pyspark_*`` that is
installed, and takes their ``DefaultSource``."""

from __future__ import annotations

from millstream.pipeline.datasource import MillstreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
