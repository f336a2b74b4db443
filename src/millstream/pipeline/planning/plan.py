"""Divides a topology into Spark queries: what runs together, in which mode, and where topics cut the graph.

The rules:

- Streams that share a source share a query. One ``foreachBatch`` writes all of the query's sinks, so that
  exactly-once can make it one transaction.
- A window is computed once, however many sinks its results reach. Windows over the same rows by the same keys
  share their state (outputs.py).
- Spark has one output mode per query. Windows that update and windows that are final never share a query.
  Where both flow into one sink, the union in front of it is split, and each side writes by itself.
- Rows without state join a query that reads the same source anyway.
- A topic that the flow both writes and reads separates queries: the broker is between them.

This code is pure and needs no Spark, so that ``millstream graph --plan`` prints the plan at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.graph import Sink, Stateful, StreamNode, ViewSink
from millstream.pipeline.dsl.sources import SourceNode
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.dsl.windows.window import WindowNode
from millstream.pipeline.planning.edited_queries import Kept, cohorts, continued, operator_shape, operators_of
from millstream.pipeline.planning.outputs import (
    Output,
    Route,
    SharedWindows,
    computed_once,
    distinct,
    moved_up,
    native_windows,
    states_of,
)


@dataclass(slots=True)
class Query:
    """One Spark query: the part of the topology that runs together."""

    name: str
    emit: str  # update or final
    routes: list[Route] = field(default_factory=list)

    @property
    def sources(self) -> list[SourceNode]:
        return distinct([source for route in self.routes for source in route.sources])

    @property
    def windows(self) -> list[WindowNode]:
        return distinct([window for route in self.routes for window in route.windows])

    @property
    def operators(self) -> list[Stateful]:
        """The stateful operators on the kernel, in the order of Spark's plan."""
        return [state for output in self.outputs for state in states_of(output) if not state.native]

    @property
    def outputs(self) -> list[Output]:
        return distinct([route.output for route in self.routes])

    @property
    def sinks(self) -> list[Sink]:
        return distinct([route.sink for route in self.routes])

    @property
    def output_mode(self) -> str:
        return "append" if self.emit == "final" else "update"

    def shape(self) -> dict[str, Any]:
        """What a checkpoint depends on. It is stored, so that the job can continue after the file was
        edited."""
        flow = self.sources[0].flow
        return {
            "mode": self.emit,
            "sources": [source.topic for source in self.sources],
            "times": {
                source.topic: [source.time.column, source.time.lateness_ms]
                for source in self.sources
                if source.time is not None and (self.windows or self.operators)
            },
            "buckets": flow.buckets if self.operators else None,
            "state": flow.state.partition(":")[0] if self.operators else None,
            "outputs": [
                {
                    "operators": operators_of(output),
                    "sinks": sorted({route.sink.label for route in self.routes if route.output is output}),
                }
                for output in self.outputs
            ],
            "operators": {
                one: operator_shape(state)
                for output in self.outputs
                for one, state in zip(operators_of(output), states_of(output), strict=True)
            },
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
        return list(dict.fromkeys(topic for sink in sinks for topic in sink.topics))

    @property
    def changelogs(self) -> list[str]:
        sinks = [sink for query in self.queries for sink in query.sinks]
        return [topic for sink in sinks if isinstance(sink, ViewSink) for topic in sink.topics]

    @property
    def views(self) -> list[str]:
        sinks = [sink for query in self.queries for sink in query.sinks]
        return list(dict.fromkeys(sink.name for sink in sinks if isinstance(sink, ViewSink)))

    def group(self, query: Query) -> str:
        """The consumer group that shows the query's progress."""
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
            lines += self._states(query) or ["  state   none"]
            for sink in query.sinks:
                routes = [route for route in query.routes if route.sink is sink]
                via = ", ".join(dict.fromkeys(_way(route) for route in routes))
                lines.append(f"  writes  {sink.label}  from {via}")
                if isinstance(sink, ViewSink) and sink.changelog is not None:
                    lines.append(f"          its changes to topic {sink.changelog}")
        return "\n".join(lines)

    def _states(self, query: Query) -> list[str]:
        lines = []
        for output in query.outputs:
            windows = native_windows(output)
            lines += [
                f"  state   {state.known_as}  {state.plan.describe()}  ({self._on_kernel(state)})"
                for state in states_of(output)
                if not state.native
            ]
            if isinstance(output, SharedWindows):
                lines.append(
                    f"  state   {len(windows)} windows by {', '.join(windows[0].window_spec.by)} together"
                )
                mark = "            "
            else:
                mark = "  state   "
            lines += [
                f"{mark}{window.known_as}  {window.window_spec.describe()}  (Spark's own)"
                for window in windows
            ]
        return lines

    def _on_kernel(self, state: Stateful) -> str:
        why = f": {state.why}" if state.why is not None else ""
        return f"kernel, {self.flow.buckets} buckets{why}"


def plan(flow: Topology, kept: Kept | None = None) -> Plan:
    """Divide a topology into queries. Queries that a checkpoint already has (``kept``: their shapes by name)
    stay as they were. Raises TopologyError if Spark could not run the topology."""
    flow.check()
    routes = [route for sink in flow.sinks for route in _routes(sink, sink.stream)]
    updating = [route for route in routes if _emits(route.output) != {"final"}]
    final = [route for route in routes if _emits(route.output) == {"final"}]
    groups = [("update", group) for group in _connected(updating)]
    finals = [("final", group) for group in _connected(final)]
    for _, group in list(groups):
        # Rows without state join a final query that reads their sources anyway.
        home = next((other for _, other in finals if _topics(group) <= _topics(other)), None)
        if home is not None and not any(route.states for route in group):
            groups.remove(("update", group))
            home.extend(group)
    together = cohorts(kept or {})
    divided = [
        (
            _name(group, emit, bool(groups) and emit == "final"),
            emit,
            computed_once(_in_order(flow, group), together),
        )
        for emit, group in (*groups, *finals)
    ]
    return Plan(flow, tuple(Query(*group) for group in continued(divided, kept or {})))


def _way(route: Route) -> str:
    """The name of the last named stream on the way to the sink."""
    named = [step.name for step, _ in route.steps if step.named]
    return named[-1] if named else route.output.name


def _emits(output: Output) -> set[str]:
    """The modes that Spark's own windows upstream demand."""
    return {window.window_spec.emit for window in native_windows(output)}


def _routes(sink: Sink, stream: Output) -> list[Route]:
    if len(_emits(stream)) <= 1:
        return [Route(sink, stream)]
    if above := moved_up(Route(sink, stream)):
        return [
            Route(sink, further.output, (*further.steps, *route.steps))
            for route in above
            for further in _routes(sink, route.output)
        ]
    by_mode = {window.window_spec.emit: window for window in reversed(native_windows(stream))}
    kind = stream.kind if isinstance(stream, StreamNode) else "window"
    raise TopologyError(
        f"{kind} {stream.name!r} has rows of a window with emit='update' ({by_mode['update'].at}) and of"
        f" one with emit='final' ({by_mode['final'].at}); Spark can't do both in one query. Give both the"
        " same emit=, or write one to a topic and read it from there",
        where=stream.at,
    )


def _connected(routes: list[Route]) -> list[list[Route]]:
    """Groups of routes that share a topic, directly or through other routes."""
    groups: list[list[Route]] = []
    for route in routes:
        touching = [group for group in groups if _topics(group) & _topics([route])]
        merged = [*(member for group in touching for member in group), route]
        groups = [group for group in groups if group not in touching]
        groups.append(merged)
    return groups


def _topics(routes: list[Route]) -> set[str]:
    return {source.topic for route in routes for source in route.sources}


def _name(group: list[Route], emit: str, beside_others: bool) -> str:
    """The query's name. It is stable while the sources are, because a checkpoint's directory is named by
    it."""
    name = "+".join(sorted(_topics(group)))[:100]
    return f"{name}.final" if beside_others else name


def _in_order(flow: Topology, group: list[Route]) -> list[Route]:
    """The routes in the order in which the file declares their sinks: results come in that order."""
    return sorted(group, key=lambda route: next(i for i, sink in enumerate(flow.sinks) if sink is route.sink))


def shapes(plan: Plan) -> dict[str, Any]:
    """The shape of every query, as a checkpoint stores it."""
    made: dict[str, Any] = json.loads(json.dumps({query.name: query.shape() for query in plan.queries}))
    return made
