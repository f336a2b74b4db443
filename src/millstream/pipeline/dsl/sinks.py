"""Declares the sinks that a stream's rows go to: topics and views."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import check_topic, check_view
from millstream.pipeline.dsl.expressions import no_such_column
from millstream.pipeline.dsl.graph import Sink, StreamNode, TopicSink, ViewSink
from millstream.pipeline.formats.value_schemas import declare_sink_schema

Index = str | Sequence[str | Sequence[str]]  # a column, or columns and lists of columns


def declare_topic_sink(
    stream: StreamNode,
    topic: str,
    *,
    key: str | None,
    value: str | Sequence[str] | None,
    time: str | None,
    delete_when: str | None,
    format: str = "json",
    schema: str | None = None,
    subject: str | None = None,
    registry: str | None = None,
    message: str | None = None,
    at: str,
) -> None:
    check_topic(topic, at)
    if key is not None:
        stream.check(key, "the key", at)
    if time is not None:
        stream.check(time, "the time", at)
    for part in [value] if isinstance(value, str) else value or []:
        stream.check(part, "the value", at)
    if delete_when is not None:
        stream.check(delete_when, "delete_when", at)
        if key is None:
            raise TopologyError(
                "delete_when= requires key=: a record without a value deletes its key", where=at
            )
    columns = value if value is None or isinstance(value, str) else tuple(value)
    value_schema = declare_sink_schema(
        format, schema, subject or f"{topic}-value", registry, message, value, at
    )
    _add(TopicSink(stream, topic, at, key, columns, time, delete_when, value_schema))


def declare_view_sink(
    stream: StreamNode,
    name: str,
    *,
    key: str | Sequence[str],
    delete_when: str | None = None,
    order: str | None = None,
    changelog: str | None = None,
    index: Index = (),
    at: str,
) -> None:
    check_view(name, at)
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise TopologyError(f"view {name!r} needs key=, the columns that identify its rows", where=at)
    indexes = _indexes(name, keys, index, at)
    for column in (*keys, *([order] if order else []), *(one for columns in indexes for one in columns)):
        if stream.columns is not None and column not in stream.columns:
            raise TopologyError(f"view {name!r}: {no_such_column(column, stream.columns)}", where=at)
    if delete_when is not None:
        stream.check(delete_when, "delete_when", at)
    if changelog is not None:
        check_topic(changelog, at)
    _add(ViewSink(stream, name, at, keys, delete_when, order, changelog, indexes))


def _indexes(view: str, key: tuple[str, ...], given: Index, at: str) -> tuple[tuple[str, ...], ...]:
    """The columns of each secondary index."""
    found: list[tuple[str, ...]] = []
    for one in [given] if isinstance(given, str) else given:
        columns = (one,) if isinstance(one, str) else tuple(one) if isinstance(one, Sequence) else ()
        if not columns or not all(isinstance(column, str) for column in columns):
            raise TopologyError(
                f"view {view!r}: index={one!r} is neither a column nor a list of columns, as in"
                " index=['country', ['country', 'city']]",
                where=at,
            )
        if len(set(columns)) < len(columns):
            raise TopologyError(f"view {view!r}: index={list(columns)!r} names a column twice", where=at)
        if columns == key:
            raise TopologyError(
                f"view {view!r}: {', '.join(key)} is the key, which has an index already; leave it out of"
                " index=",
                where=at,
            )
        if columns in found:
            raise TopologyError(f"view {view!r}: index= has {', '.join(columns)} twice", where=at)
        found.append(columns)
    return tuple(found)


def _add(sink: Sink) -> None:
    """Add a sink to its topology. Refuses one that would write the same topic or view as another."""
    sinks = sink.stream.flow.sinks
    for other in sinks:
        if (
            isinstance(sink, ViewSink)
            and isinstance(other, ViewSink)
            and other.name.lower() == sink.name.lower()
        ):
            raise TopologyError(
                f"view {sink.name!r} is already written at {other.at}; join the streams with flow.union",
                where=sink.at,
            )
        shared = [topic for topic in sink.topics if topic in other.topics]
        if shared and (isinstance(sink, ViewSink) or isinstance(other, ViewSink)):
            raise TopologyError(
                f"topic {shared[0]!r} is the changelog of a view ({other.at}), and nothing else may write"
                " to it; choose another",
                where=sink.at,
            )
        if shared and other.stream is sink.stream:
            raise TopologyError(
                f"this stream already goes to topic {shared[0]!r} ({other.at})", where=sink.at
            )
    sinks.append(sink)
