"""Carries each row's position in the log past a function of the user's, as a hidden column.

Every row on its way to a stateful operator has a *position*: source, partition and offset. A user's function
must not see that column. If it did, the position would be in its ``distinct()``, its ``df.columns`` and the
JSON that it makes, and the function could drop it. So the position is hidden as Spark hides the metadata
columns of files: it is not a column of the DataFrame, but steps that work row by row carry it along, and it
can be selected afterwards. After any other step (an aggregation, a union, a join, ``mapInPandas``), the
position of a row can't be known.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.kernel.clock import MADE

ROW_POSITION = "millstream_place"
NO_OFFSET = -1
MADE_POSITION = (
    f"named_struct('source', {MADE}, 'partition', {MADE}, 'offset', {NO_OFFSET}L, 'clock', false)"
    f" AS {ROW_POSITION}"
)
CLOCK_POSITION = (
    f"named_struct('source', {ROW_POSITION}.source, 'partition', {ROW_POSITION}.partition,"
    f" 'offset', {ROW_POSITION}.offset, 'clock', true)"
)
# Spark's names of the steps that preserve a row's position. Those in EVERY_ROW also keep every row.
EVERY_ROW = frozenset({"Project", "SubqueryAlias", "CollectMetrics", "EventTimeWatermark"})
ROW_BY_ROW = EVERY_ROW | {"Filter", "Generate"}
_HIDDEN = "__metadata_col"  # Spark's mark of a metadata column


class RowPositions:
    """Hides positions in Spark's DataFrames. The test driver has its own implementation."""

    def hide(self, frame: DataFrame) -> DataFrame:
        """The same rows with their positions hidden."""
        names = [fn.col(f"`{name}`") for name in frame.columns if name != ROW_POSITION]
        marked = frame.select(
            *names, fn.col(ROW_POSITION).alias(ROW_POSITION, metadata={_HIDDEN: ROW_POSITION})
        )
        hidden = marked.select(*names)
        java: Any = frame.sparkSession._jvm
        position = marked._jdf.queryExecution().analyzed().output().last()
        listed = java.java.util.ArrayList()
        listed.add(position)
        project = java.org.apache.spark.sql.catalyst.plans.logical.Project
        hidden._jdf.queryExecution().commandExecuted().setTagValue(
            project.hiddenOutputTag(), java.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq()
        )
        return hidden

    def steps(self, made: DataFrame, hidden: DataFrame) -> set[str] | None:
        """The steps of the function, by Spark's names; None if its rows were combined with others."""
        node, first = (one._jdf.queryExecution().analyzed() for one in (made, hidden))
        found = set()
        while not node.fastEquals(first):
            if node.children().size() != 1:
                return None
            found.add(str(node.nodeName()))
            node = node.children().apply(0)
        return found

    def shown(self, made: DataFrame) -> DataFrame:
        """The rows with their positions as a visible column again."""
        return made.select("*", fn.col(ROW_POSITION).alias(ROW_POSITION, metadata={}))
