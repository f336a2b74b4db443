"""Divides a topology into Spark queries: what runs together, in which mode, and where topics cut the graph.

The rules:

- Streams that share a source share a query. One ``foreachBatch`` writes all of the query's sinks, so that
  exactly-once can make it one transaction.
- A window is computed once, however many sinks its results reach. Windows over the same rows by the same keys
  share their state (taps.py).
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
from millstream.pipeline.dsl.sinks import Sink, ViewSink
from millstream.pipeline.dsl.stateful import Stateful, StatefulChannel
from millstream.pipeline.dsl.streams import Otherwise, Select, Source, Stream, Union, Where
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.dsl.windows import Aggregate, WindowState
from millstream.pipeline.planning.continuing import Kept, cohorts, continued, operator_shape, tap_operators
from millstream.pipeline.planning.outputs import (
    Arm,
    SharedState,
    Tap,
    distinct,
    one_up,
    tap_states,
    tap_windows,
    tapped,
)


@dataclass(slots=True)
class Query:
    """One Spark query: the part of the topology that runs together."""

    name: str
    emit: str  # update or final
    arms: list[Arm] = field(default_factory=list)

    @property
    def sources(self) -> list[Source]:
        return distinct([source for arm in self.arms for source in arm.sources])

    @property
    def windows(self) -> list[Aggregate]:
        return distinct([window for arm in self.arms for window in arm.windows])

    @property
    def operators(self) -> list[Stateful]:
        """The stateful operators on the kernel, in the order of Spark's plan."""
        return [state for tap in self.taps for state in tap_states(tap) if isinstance(state, Stateful)]

    @property
    def taps(self) -> list[Tap]:
        return distinct([arm.base for arm in self.arms])

    @property
    def sinks(self) -> list[Sink]:
        return distinct([arm.sink for arm in self.arms])

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
            "taps": [
                {
                    "operators": tap_operators(tap),
                    "sinks": sorted({arm.sink.label for arm in self.arms if arm.base is tap}),
                }
                for tap in self.taps
            ],
            "operators": {
                one: operator_shape(state)
                for tap in self.taps
                for one, state in zip(tap_operators(tap), tap_states(tap), strict=True)
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
                arms = [arm for arm in query.arms if arm.sink is sink]
                via = ", ".join(dict.fromkeys(_way(arm) for arm in arms))
                lines.append(f"  writes  {sink.label}  from {via}")
                if isinstance(sink, ViewSink) and sink.changelog is not None:
                    lines.append(f"          its changes to topic {sink.changelog}")
        return "\n".join(lines)

    def _states(self, query: Query) -> list[str]:
        lines = []
        for tap in query.taps:
            windows = tap_windows(tap)
            lines += [
                f"  state   {state.known_as}  {state.plan.describe()}  ({self._on_kernel(state)})"
                for state in tap_states(tap)
                if isinstance(state, Stateful)
            ]
            if isinstance(tap, SharedState):
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
        why = f": {state.why}" if isinstance(state, WindowState) else ""
        return f"kernel, {self.flow.buckets} buckets{why}"


def plan(flow: Topology, kept: Kept | None = None) -> Plan:
    """Divide a topology into queries. Queries that a checkpoint already has (``kept``: their shapes by name)
    stay as they were. Raises TopologyError if Spark could not run the topology."""
    flow.check()
    arms = [arm for sink in flow.sinks for arm in _arms(sink, sink.stream)]
    updating = [arm for arm in arms if _emits(arm.base) != {"final"}]
    final = [arm for arm in arms if _emits(arm.base) == {"final"}]
    groups = [("update", group) for group in _connected(updating)]
    finals = [("final", group) for group in _connected(final)]
    for _, group in list(groups):
        # Rows without state join a final query that reads their sources anyway.
        home = next((other for _, other in finals if _topics(group) <= _topics(other)), None)
        if home is not None and not any(arm.states for arm in group):
            groups.remove(("update", group))
            home.extend(group)
    together = cohorts(kept or {})
    divided = [
        (
            _name(group, emit, bool(groups) and emit == "final"),
            emit,
            tapped(_in_order(flow, group), together),
        )
        for emit, group in (*groups, *finals)
    ]
    return Plan(flow, tuple(Query(*group) for group in continued(divided, kept or {})))


def _way(arm: Arm) -> str:
    """The name of the last named stream on the way to the sink."""
    named = [step.name for step, _ in arm.steps if step.named]
    return named[-1] if named else arm.base.name


def _emits(stream: Tap) -> set[str]:
    """The modes that Spark's own windows upstream demand."""
    return {window.window_spec.emit for window in tap_windows(stream)}


def _arms(sink: Sink, stream: Tap) -> list[Arm]:
    if len(_emits(stream)) <= 1:
        return [Arm(sink, stream)]
    if isinstance(stream, Union | Where | Otherwise | Select | StatefulChannel):
        return [
            Arm(sink, further.base, (*further.steps, *arm.steps))
            for arm in one_up(Arm(sink, stream))
            for further in _arms(sink, arm.base)
        ]
    by_mode = {window.window_spec.emit: window for window in reversed(tap_windows(stream))}
    kind = stream.kind if isinstance(stream, Stream) else "window"
    raise TopologyError(
        f"{kind} {stream.name!r} has rows of a window that updates ({by_mode['update'].at}) and of one"
        f" that is final ({by_mode['final'].at}); Spark can't do both in one query. Give both the same emit=,"
        " or write one to a topic and read it from there",
        where=stream.at,
    )


def _connected(arms: list[Arm]) -> list[list[Arm]]:
    """Groups of arms that share a topic, directly or through other arms."""
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
    """The query's name. It is stable while the sources are, because a checkpoint's directory is named by
    it."""
    name = "+".join(sorted(_topics(group)))[:100]
    return f"{name}.final" if beside_others else name


def _in_order(flow: Topology, group: list[Arm]) -> list[Arm]:
    """The arms in the order in which the file declares their sinks: results come in that order."""
    return sorted(group, key=lambda arm: next(i for i, sink in enumerate(flow.sinks) if sink is arm.sink))


def shapes(plan: Plan) -> dict[str, Any]:
    """The shape of every query, as a checkpoint stores it."""
    made: dict[str, Any] = json.loads(json.dumps({query.name: query.shape() for query in plan.queries}))
    return made
