"""From a topology to Spark queries: what runs together, in which mode, and where topics cut the graph.

The rules:

- What shares a source shares a query: one ``foreachBatch`` writes all of the query's sinks, and a later
  guarantee can make that one transaction.
- A window is computed once, however many sinks its results reach: the query gives out its *taps*, the last
  streams before the ways part, and the steps after a tap are taken batch by batch.
- Spark has one output mode a query. Windows that update and windows that are final never share one; where
  both flow into one sink, the union in front of it is split and each side writes on its own.
- Rows without state go along with a query that reads the same source anyway.
- A topic that the flow writes and reads again separates queries; the broker is between them.

Pure: no Spark, so that ``millstream graph --plan`` shows it at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TypeVar

from millstream.errors import TopologyError
from millstream.pipeline.streams import (
    Aggregate,
    Otherwise,
    Select,
    Sink,
    Source,
    Stream,
    TopicSink,
    Union,
    ViewSink,
    Where,
)
from millstream.pipeline.topology import Topology

T = TypeVar("T")
Step = Where | Otherwise | Select | Union


@dataclass(frozen=True, slots=True)
class Arm:
    """A way from a tap of a query to a sink: the tap, then the steps that are taken batch by batch.

    A step comes with the name of the branch it follows: all that a union among them does is to add it.
    """

    sink: Sink
    base: Stream
    steps: tuple[tuple[Step, str], ...] = ()

    @property
    def sources(self) -> list[Source]:
        return [node for node in self.base.upstream() if isinstance(node, Source)]

    @property
    def windows(self) -> list[Aggregate]:
        return [node for node in self.base.upstream() if isinstance(node, Aggregate)]


@dataclass(slots=True)
class Query:
    """One Spark query: an island of the topology."""

    name: str
    emit: str  # update or final
    arms: list[Arm] = field(default_factory=list)

    @property
    def sources(self) -> list[Source]:
        return _distinct([source for arm in self.arms for source in arm.sources])

    @property
    def windows(self) -> list[Aggregate]:
        return _distinct([window for tap in self.taps for window in Arm(self.sinks[0], tap).windows])

    @property
    def taps(self) -> list[Stream]:
        return _distinct([arm.base for arm in self.arms])

    @property
    def sinks(self) -> list[Sink]:
        return _distinct([arm.sink for arm in self.arms])

    @property
    def output_mode(self) -> str:
        return "append" if self.emit == "final" else "update"

    def shape(self) -> dict[str, object]:
        """What a checkpoint depends on: it can't be continued by a query of another shape."""
        return {
            "emit": self.emit if self.windows else "rows",
            "sources": [source.topic for source in self.sources],
            "times": {
                source.topic: [source.time.column, source.time.lateness_ms]
                for source in self.sources
                if source.time is not None and self.windows
            },
            "windows": [
                {
                    "by": list(window.window_spec.by),
                    "window": window.window_spec.describe(),
                    "aggregates": window.aggregates,
                }
                for window in self.windows
            ],
        }


@dataclass(frozen=True, slots=True)
class Plan:
    flow: Topology
    queries: tuple[Query, ...]

    @property
    def reads(self) -> list[str]:
        return list(dict.fromkeys(source.topic for query in self.queries for source in query.sources))

    @property
    def writes(self) -> list[str]:
        sinks = [sink for query in self.queries for sink in query.sinks]
        return list(dict.fromkeys(sink.topic for sink in sinks if isinstance(sink, TopicSink)))

    @property
    def views(self) -> list[str]:
        sinks = [sink for query in self.queries for sink in query.sinks]
        return list(dict.fromkeys(sink.name for sink in sinks if isinstance(sink, ViewSink)))

    def group(self, query: Query) -> str:
        """The consumer group that shows how far the query has come."""
        return self.flow.name if len(self.queries) == 1 else f"{self.flow.name}.{query.name}"

    def describe(self) -> str:
        """The plan in words, for ``millstream graph --plan``."""
        many = len(self.queries)
        lines = [
            f"{self.flow.name}: {many} Spark quer{'y' if many == 1 else 'ies'}, {self.flow.guarantee}",
        ]
        for query in self.queries:
            lines.append("")
            lines.append(f"query {query.name}  (output mode {query.output_mode}, group {self.group(query)})")
            for source in query.sources:
                cut = "  <- written by this flow: the topic is the cut" if source.topic in self.writes else ""
                lines.append(f"  reads   {source.topic}  {source.about()}{cut}")
            lines += [f"  state   {_label(w, self.flow)}  {w.window_spec.describe()}" for w in query.windows]
            if not query.windows:
                lines.append("  state   none")
            for sink in query.sinks:
                arms = [arm for arm in query.arms if arm.sink is sink]
                via = ", ".join(arm.base.name for arm in arms)
                lines.append(f"  writes  {sink.label}  from {via}")
        return "\n".join(lines)


def plan(flow: Topology) -> Plan:
    """Divide a topology into queries. Raises TopologyError where Spark could not run it."""
    flow.check()
    arms = [arm for sink in flow.sinks for arm in _arms(sink, sink.stream)]
    updating = [arm for arm in arms if _emits(arm.base) != {"final"}]
    final = [arm for arm in arms if _emits(arm.base) == {"final"}]
    groups = [("update", group) for group in _connected(updating)]
    finals = [("final", group) for group in _connected(final)]
    for _, group in list(groups):
        # rows without state beside a final query that reads their sources anyway
        home = next((other for _, other in finals if _topics(group) <= _topics(other)), None)
        if home is not None and not any(arm.windows for arm in group):
            groups.remove(("update", group))
            home.extend(group)
    queries = [
        Query(_name(group, emit, bool(groups) and emit == "final"), emit, _tapped(_in_order(flow, group)))
        for emit, group in (*groups, *finals)
    ]
    return Plan(flow, tuple(queries))


def _label(stream: Stream, flow: Topology) -> str:
    """Its name, or that of the named stream that goes on from it alone."""
    while not stream.named:
        consumers = [other for other in flow.streams if stream in other.inputs]
        if len(consumers) != 1:
            break
        stream = consumers[0]
    return stream.name


def _emits(stream: Stream) -> set[str]:
    return {node.window_spec.emit for node in stream.upstream() if isinstance(node, Aggregate)}


def _arms(sink: Sink, stream: Stream) -> list[Arm]:
    if len(_emits(stream)) <= 1:
        return [Arm(sink, stream)]
    if isinstance(stream, Union | Where | Otherwise | Select):
        return [
            Arm(sink, further.base, (*further.steps, *arm.steps))
            for arm in _upstream(Arm(sink, stream))
            for further in _arms(sink, arm.base)
        ]
    by_mode = {
        node.window_spec.emit: node for node in reversed(stream.upstream()) if isinstance(node, Aggregate)
    }
    raise TopologyError(
        f"{stream.kind} {stream.name!r} has rows of a window that updates ({by_mode['update'].at}) and of one"
        f" that is final ({by_mode['final'].at}); Spark can't do both in one query. Give both the same emit=,"
        " or write one to a topic and read it from there",
        where=stream.at,
    )


def _upstream(arm: Arm) -> list[Arm]:
    """The same arm with its tap one stream further up; several where a union divides, none where it can't."""
    stream = arm.base
    if isinstance(stream, Union):
        return [Arm(arm.sink, branch, ((stream, branch.name), *arm.steps)) for branch in stream.inputs]
    if isinstance(stream, Where | Otherwise | Select):
        return [Arm(arm.sink, stream.inputs[0], ((stream, ""), *arm.steps))]
    return []  # an operator may hold state of Spark's own, which a batch by itself does not have


def _tapped(arms: list[Arm]) -> list[Arm]:
    """Move taps up until no window, nor anything else that is shared, stands above two different ones."""
    while True:
        for arm in arms:
            others = [other for other in arms if other.base is not arm.base and _share(arm, other)]
            # the one further down moves; of two side by side, the one with more above it
            below = any(other.base in arm.base.upstream() for other in others)
            longest = all(len(arm.base.upstream()) >= len(other.base.upstream()) for other in others)
            moved = _upstream(arm) if others and (below or longest) else []
            if moved:
                at = arms.index(arm)
                arms = [*arms[:at], *moved, *arms[at + 1 :]]
                break
        else:
            return arms


def _share(one: Arm, other: Arm) -> bool:
    """Whether one thing would be worked out for both: a window, or where there is none, anything."""
    if one.windows or other.windows:
        return any(window in other.windows for window in one.windows)
    return any(stream in other.base.upstream() for stream in one.base.upstream())


def _connected(arms: list[Arm]) -> list[list[Arm]]:
    """Arms that share a topic, directly or through others, together."""
    groups: list[list[Arm]] = []
    for arm in arms:
        touching = [group for group in groups if _topics(group) & _topics([arm])]
        merged = [*(member for group in touching for member in group), arm]
        groups = [group for group in groups if group not in touching]
        groups.append(merged)
    return groups


def _topics(arms: list[Arm]) -> set[str]:
    return {source.topic for arm in arms for source in arm.sources}


def _name(group: list[Arm], emit: str, beside_others: bool) -> str:
    """Stable while the sources are: a checkpoint's directory is named by it."""
    name = "+".join(sorted(_topics(group)))[:100]
    return f"{name}.final" if beside_others else name


def _in_order(flow: Topology, group: list[Arm]) -> list[Arm]:
    """As the file declares them: Spark numbers its state stores by their place in the plan."""
    return sorted(group, key=lambda arm: next(i for i, sink in enumerate(flow.sinks) if sink is arm.sink))


def _distinct(items: list[T]) -> list[T]:
    found: dict[int, T] = {}
    for item in items:
        found.setdefault(id(item), item)
    return list(found.values())


def shapes(plan: Plan) -> str:
    """The shape of every query, as a checkpoint keeps it."""
    return json.dumps({query.name: query.shape() for query in plan.queries}, indent=2, sort_keys=True)
