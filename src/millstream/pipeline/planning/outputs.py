"""Divides a query into taps, which its sinks share, and the steps from each tap to each sink.

Spark computes every branch of a plan separately. So what two sinks share must come out of one *tap*, or it is
computed (and its state kept) twice. From the taps to the sinks, rows go through *steps*. These are SQL only,
and outgoing.py composes them into one expression for each sink.

Windows over the same rows by the same keys share more: however many there are, they are one aggregation
with one state. A batch then reads its source, shuffles and writes its state only once. On a single machine,
that is most of what a small batch costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from millstream.pipeline.dsl.sinks import Sink
from millstream.pipeline.dsl.stateful import Stateful, StatefulChannel
from millstream.pipeline.dsl.streams import Otherwise, Select, Source, Stream, Union, Where
from millstream.pipeline.dsl.windows import Aggregate
from millstream.pipeline.planning.identity import identity

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class SharedState:
    """Windows that are one aggregation. All read ``base``, and each takes only the rows that match its
    conditions."""

    base: Stream
    windows: tuple[Aggregate, ...]
    conditions: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        return self.windows[0].name

    @property
    def at(self) -> str:
        return self.windows[0].at

    def upstream(self) -> list[Stream]:
        return distinct([stream for window in self.windows for stream in window.upstream()])


Tap = Stream | SharedState | Stateful
# As a step, an aggregate selects its rows from a shared state, and a channel from everything that a stateful
# operator gives. A union only adds its tag.
Step = Where | Otherwise | Select | Union | Aggregate | StatefulChannel
State = Aggregate | Stateful


@dataclass(frozen=True, slots=True)
class Arm:
    """The way from a tap of a query to a sink. Each step comes with the tag's value, if it is a union."""

    sink: Sink
    base: Tap
    steps: tuple[tuple[Step, str], ...] = ()

    @property
    def sources(self) -> list[Source]:
        return [node for node in self.base.upstream() if isinstance(node, Source)]

    @property
    def windows(self) -> list[Aggregate]:
        return tap_windows(self.base)

    @property
    def states(self) -> list[State]:
        return tap_states(self.base)


def tap_windows(tap: Tap) -> list[Aggregate]:
    """The tap's windows that are Spark's own."""
    return [state for state in tap_states(tap) if isinstance(state, Aggregate)]


def tap_states(tap: Tap) -> list[State]:
    """Everything that keeps state for a tap, in the order of Spark's plan."""
    found: list[State] = [tap] if isinstance(tap, Stateful) else []
    for node in tap.upstream():
        if isinstance(node, StatefulChannel) and not node.native:
            found.append(node.stateful)
        elif isinstance(node, Aggregate):
            found.append(node)
    return distinct(found)


def one_up(arm: Arm) -> list[Arm]:
    """The arm with its tap one stream further up: several arms at a union, none if the tap can't move."""
    stream = arm.base
    if isinstance(stream, Union):
        return [
            Arm(arm.sink, branch, ((stream, stream.tag_of(branch)), *arm.steps)) for branch in stream.inputs
        ]
    if isinstance(stream, Where | Otherwise | Select):
        return [Arm(arm.sink, stream.inputs[0], ((stream, ""), *arm.steps))]
    if isinstance(stream, StatefulChannel) and not stream.native:
        return [Arm(arm.sink, stream.stateful, ((stream, ""), *arm.steps))]
    return []  # a user's operator may hold state of Spark's own, so it can't be a step


def tapped(arms: list[Arm], cohort: Callable[[Aggregate], object]) -> list[Arm]:
    """The arms with their taps placed so that nothing is computed twice. Only windows of one ``cohort`` share
    their state."""
    arms = _with_shared_state(arms, cohort)
    while True:
        for arm in arms:
            others = [other for other in arms if other.base is not arm.base and _share(arm, other)]
            # The tap further down moves; of two side by side, the one with more streams above it.
            below = any(other.base in arm.base.upstream() for other in others)
            longest = all(len(arm.base.upstream()) >= len(other.base.upstream()) for other in others)
            moved = one_up(arm) if others and (below or longest) else []
            if moved:
                at = arms.index(arm)
                arms = [*arms[:at], *moved, *arms[at + 1 :]]
                break
        else:
            return arms


def _share(one: Arm, other: Arm) -> bool:
    """True if something would be computed for both: something with state or, if neither has any, anything."""
    if one.states or other.states:
        return any(state in other.states for state in one.states)
    return any(stream in other.base.upstream() for stream in one.base.upstream())


def _with_shared_state(arms: list[Arm], cohort: Callable[[Aggregate], object]) -> list[Arm]:
    groups: dict[tuple[int, tuple[str, ...], object], list[Aggregate]] = {}
    for window in distinct([window for arm in arms for window in arm.windows]):
        if window.window_spec.gap_ms is None:
            base, _ = _rows_of(window)
            groups.setdefault((id(base), window.window_spec.by, cohort(window)), []).append(window)
    for group in groups.values():
        windows = sorted(group, key=lambda window: identity(window.stateful))
        raised = [_raised(arm, windows) for arm in arms]
        if len(windows) > 1 and all(found is not None for found in raised):
            read = [_rows_of(window) for window in windows]
            shared = SharedState(read[0][0], tuple(windows), tuple(conditions for _, conditions in read))
            arms = [
                Arm(arm.sink, shared, ((arm.base, ""), *arm.steps))
                if isinstance(arm.base, Aggregate) and arm.base in windows
                else arm
                for found in raised
                for arm in found or []
            ]
    return arms


def _rows_of(window: Aggregate) -> tuple[Stream, tuple[str, ...]]:
    """The stream whose rows a window takes, and the conditions between the two."""
    stream, conditions = window.inputs[0], []
    while isinstance(stream, Where):
        conditions.append(stream.condition)
        stream = stream.inputs[0]
    return stream, tuple(conditions)


def _raised(arm: Arm, windows: list[Aggregate]) -> list[Arm] | None:
    """The arm with taps at these windows themselves; None if something in between can't be a step."""
    if not any(window in arm.windows for window in windows) or isinstance(arm.base, Aggregate):
        return [arm]
    found: list[Arm] = []
    for further in one_up(arm):
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
