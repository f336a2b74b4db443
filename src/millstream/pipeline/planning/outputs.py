"""Decides where rows leave a query's plan, and what happens to them from there to each sink.

Spark computes every branch of a plan separately. So what two sinks share must come out of one *output* of the
query, or it is computed (and its state kept) twice. From an output to a sink, rows take a *route*: streams
that are SQL only, which spark/lowering/sinks.py composes into one expression for each sink.

Windows over the same rows by the same keys share more: however many there are, they are one aggregation
with one state. A batch then reads its source, shuffles and writes its state only once. On a single machine,
that is most of what a small batch costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from millstream.pipeline.dsl.graph import Sink, Stateful, StreamNode
from millstream.pipeline.dsl.sources import SourceNode, sources_of
from millstream.pipeline.dsl.windows.window import WindowNode, WindowOperator

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class SharedWindows:
    """Windows that are one aggregation. All read ``base``, and each takes only the rows that match its
    conditions."""

    base: StreamNode
    windows: tuple[WindowNode, ...]
    conditions: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        return self.windows[0].name

    @property
    def at(self) -> str:
        return self.windows[0].at

    def upstream(self) -> list[StreamNode]:
        return distinct([stream for window in self.windows for stream in window.upstream()])


# Where rows leave Spark's plan: a stream, all channels of a stateful operator, or all of several windows.
Output = StreamNode | Stateful | SharedWindows


@dataclass(frozen=True, slots=True)
class Route:
    """The way from an output of a query to a sink. On the way, a window selects its rows from those of
    several windows, a channel from everything that a stateful operator gives, and a union adds its tag. Each
    stream comes with the tag's value, if it is a union."""

    sink: Sink
    output: Output
    steps: tuple[tuple[StreamNode, str], ...] = ()

    @property
    def sources(self) -> list[SourceNode]:
        return sources_of(self.output.upstream())

    @property
    def windows(self) -> list[WindowNode]:
        return native_windows(self.output)

    @property
    def states(self) -> list[Stateful]:
        return states_of(self.output)


def native_windows(output: Output) -> list[WindowNode]:
    """The windows of an output that are Spark's own."""
    return [state.window for state in states_of(output) if isinstance(state, WindowOperator) and state.native]


def states_of(output: Output) -> list[Stateful]:
    """Everything that keeps state for an output, in the order of Spark's plan."""
    own = [output] if isinstance(output, Stateful) else []
    return distinct([*own, *(node.state for node in output.upstream() if node.state is not None)])


def moved_up(route: Route) -> list[Route]:
    """The route from one stream further up: several routes at a union, none if the output can't move."""
    stream = route.output
    if not isinstance(stream, StreamNode):
        return []
    return [Route(route.sink, above, ((stream, tag), *route.steps)) for above, tag in stream.sql_inputs()]


def computed_once(routes: list[Route], cohort: Callable[[WindowNode], object]) -> list[Route]:
    """The routes with their outputs placed so that nothing is computed twice. Only windows of one ``cohort``
    share their state."""
    routes = _with_shared_state(routes, cohort)
    while True:
        for route in routes:
            others = [other for other in routes if other.output is not route.output and _share(route, other)]
            # The output further down moves; of two side by side, the one with more streams above it.
            below = any(other.output in route.output.upstream() for other in others)
            longest = all(len(route.output.upstream()) >= len(other.output.upstream()) for other in others)
            moved = moved_up(route) if others and (below or longest) else []
            if moved:
                at = routes.index(route)
                routes = [*routes[:at], *moved, *routes[at + 1 :]]
                break
        else:
            return routes


def _share(one: Route, other: Route) -> bool:
    """True if something would be computed for both: something with state or, if neither has any, anything."""
    if one.states or other.states:
        return any(state in other.states for state in one.states)
    return any(stream in other.output.upstream() for stream in one.output.upstream())


def _with_shared_state(routes: list[Route], cohort: Callable[[WindowNode], object]) -> list[Route]:
    groups: dict[tuple[int, tuple[str, ...], object], list[WindowNode]] = {}
    for window in distinct([window for route in routes for window in route.windows]):
        if window.window_spec.gap_ms is None:
            base, _ = _rows_of(window)
            groups.setdefault((id(base), window.window_spec.by, cohort(window)), []).append(window)
    for group in groups.values():
        windows = sorted(group, key=lambda window: window.state.identity)
        raised = [_raised(route, windows) for route in routes]
        if len(windows) > 1 and all(found is not None for found in raised):
            read = [_rows_of(window) for window in windows]
            shared = SharedWindows(read[0][0], tuple(windows), tuple(conditions for _, conditions in read))
            routes = [
                Route(route.sink, shared, ((route.output, ""), *route.steps))
                if route.output in windows
                else route
                for found in raised
                for route in found or []
            ]
    return routes


def _rows_of(window: WindowNode) -> tuple[StreamNode, tuple[str, ...]]:
    """The stream whose rows a window takes, and the conditions between the two."""
    stream, conditions = window.inputs[0], []
    while stream.condition is not None:
        conditions.append(stream.condition)
        stream = stream.inputs[0]
    return stream, tuple(conditions)


def _raised(route: Route, windows: list[WindowNode]) -> list[Route] | None:
    """The route with outputs at these windows themselves; None if something in between can't be a step."""
    if not any(window in route.windows for window in windows) or isinstance(route.output, WindowNode):
        return [route]
    found: list[Route] = []
    for further in moved_up(route):
        above = _raised(further, windows)
        if above is None:
            return None
        found += above
    return found or None


def distinct(items: list[T]) -> list[T]:
    """Each object once, in order."""
    found: dict[int, T] = {}
    for item in items:
        found.setdefault(id(item), item)
    return list(found.values())
