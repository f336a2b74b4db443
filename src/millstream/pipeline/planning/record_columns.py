"""Which columns of a source's records a query needs."""

from __future__ import annotations

from millstream.pipeline.dsl.sources import REJECTED_COLUMNS, SourceNode
from millstream.pipeline.planning.plan import Query


def wanted_columns(query: Query, source: SourceNode) -> set[str]:
    """The columns of a record that the query needs. Others are neither decoded nor carried to the JVM."""
    wanted = {"value", *source.include}
    if source.time is not None and source.time.kind == "log":
        wanted.add("timestamp")
    if source.table is not None:  # a deletion is only a key and a time
        wanted |= {"key", "timestamp"}
    if query.operators:
        wanted |= {"partition", "offset"}
        if source.pattern is not None:
            wanted.add("topic")  # partitions of several topics are told apart by it
        if source.time is None:
            wanted.add("timestamp")  # operators go by the records' arrival
    for output in query.outputs:
        if any(stream.is_record and source in stream.inputs for stream in output.upstream()):
            wanted |= set(REJECTED_COLUMNS)
    return wanted
