"""Defines which rows are counted while a job runs, and how the counts give every stream's number of rows.

A *count* has a name: ``source payments`` (rows that parsed), ``rejected payments``, ``sink topic alerts`` and
``stream bursts``. Sources and sinks are always counted. A stream between them is counted only if its number
of rows can't be derived from other counts. A selection has as many rows as its input, a union as many as its
inputs together, and a stream that is written as many as its sink. Counting looks at every row once more, so
only streams with an arrow in the graph are counted (``StreamGraph.counted``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from millstream.pipeline.dsl.counts import sink_count
from millstream.pipeline.dsl.graph import Sink, StreamGraph, StreamNode

N = TypeVar("N", int, float)


def taken_by(topic: str) -> tuple[str, ...]:
    """The counts of the rows that are written to a topic."""
    return (sink_count(f"topic {topic}"),)


def given_by(flow: StreamGraph, stream: StreamNode, to: StreamNode | None = None) -> tuple[str, ...]:
    """The counts that add up to the rows of a stream, or to those of its rows that go to ``to``."""
    if to is not None and to.always_counted:
        return (to.count,)
    if stream.always_counted:
        return (stream.count,)
    sink = own_sink(flow, stream)
    if sink is not None:
        return (sink_count(sink.label),)
    if stream.counted_as is not None:
        return tuple(name for part in stream.counted_as for name in given_by(flow, part))
    return (stream.count,)


def own_sink(flow: StreamGraph, stream: StreamNode) -> Sink | None:
    """A sink that takes this stream's rows and no others; None if there is none."""
    labels = [sink.label for sink in flow.sinks]
    own = (sink for sink in flow.sinks if sink.stream is stream)
    return next((sink for sink in own if labels.count(sink.label) == 1), None)


def added_up(names: tuple[str, ...], counts: Mapping[str, N]) -> N | None:
    """The sum of these counts; None if one is unknown."""
    found = [counts.get(name) for name in names]
    known = [each for each in found if each is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(found) else None
