"""Patterns: ``stream.pattern(...)``, sequences of events of one key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.core.errors import TopologyError
from millstream.core.units import DurationError, duration_ms
from millstream.pipeline.dsl.declaring import check_on_error
from millstream.pipeline.dsl.expressions import no_such_column
from millstream.pipeline.dsl.graph import KeyedInput, StreamNode
from millstream.pipeline.dsl.pattern_steps import NAME, Step, Steps, checked_steps
from millstream.pipeline.dsl.stateful import ChannelNode, declare
from millstream.pipeline.kernel.channels import TIME_BASIS
from millstream.pipeline.kernel.patterns.automaton import StepRule
from millstream.sqltypes.ddl import quoted

if TYPE_CHECKING:
    from millstream.pipeline.kernel.patterns.measures import Measure


class PatternNode(ChannelNode):
    """The matches of a pattern."""

    beside_columns: tuple[str, ...] | None = None  # of partial matches

    def overflow(self, at: str) -> ChannelNode:
        """The partial matches that were dropped because their key had too many."""
        return self.side_output("overflow", at, columns=self.beside_columns)

    def timed_out(self, at: str) -> ChannelNode:
        """The partial matches that ran out of time."""
        plan: Any = self.state.plan
        self.state.plan = replace(plan, timed_out=True)
        return self.side_output("timed_out", at, columns=self.beside_columns)

    def failed(self, at: str) -> ChannelNode:
        """The events on which a function of the pattern failed."""
        if not self.state.plan.to_channel:  # type: ignore[attr-defined]
            raise TopologyError(
                f"{self.name!r} stops the job when a function fails; with on_error='channel' the job"
                " continues and such events appear here",
                where=at,
            )
        return self.side_output("failed", at)


class PatternBounds(NamedTuple):
    """The most partial matches and events that are kept for a key."""

    max_partial: int
    max_events: int


def declare_pattern(
    stream: StreamNode,
    by: str | Sequence[str],
    steps: Sequence[Step] | Steps | Step,
    within: str | None,
    give: Mapping[str, str] | None,
    after_match: str,
    strict: bool,
    bounds: PatternBounds,
    on_error: str,
    name: str | None,
    at: str,
) -> PatternNode:
    from millstream.pipeline.kernel.patterns import pattern as kernel

    stream.check_time(at)
    assert stream.time is not None
    written = tuple(_with_sql(each, stream) for each in checked_steps(steps, strict, at))
    keys = (by,) if isinstance(by, str) else tuple(by)
    one = KeyedInput(stream, keys)
    for each in written:
        if each.condition is not None:
            stream.check(each.condition, f"the condition of step {each.rule.name!r}", each.at)
    if after_match not in kernel.AFTER_MATCH:
        told = ", ".join(map(repr, kernel.AFTER_MATCH))
        raise TopologyError(f"after_match={after_match!r} is not one of {told}", where=at)
    check_on_error(on_error, at)
    for what, bound in bounds._asdict().items():
        if bound < 1:
            raise TopologyError(f"{what}={bound!r} must be at least 1", where=at)
    rules = tuple(each.rule for each in written)
    measures = None if give is None else _measures(give, rules, one, at)
    plan = kernel.PatternPlan(
        steps=rules,
        conditions=tuple(each.condition is not None for each in written),
        predicates=tuple(each.where for each in written),
        within=_micros(within, at),
        keys=len(keys),
        at=at,
        basis=stream.time.basis,
        after_match=after_match,
        measures=measures,
        max_partial=bounds.max_partial,
        max_events=bounds.max_events,
        to_channel=on_error == "channel",
    )
    asked = any(each.where is not None for each in written)
    columns = ["*"] if measures is None or asked else _measured(measures, one)
    columns += [
        f"({each.condition}) AS {kernel.condition_column(number)}"
        for number, each in enumerate(written)
        if each.condition is not None
    ]
    tell = [name for name, _ in measures] if measures is not None else _taking(rules)
    result = (*one.keys, kernel.MATCH_START, kernel.MATCH_END, *tell, TIME_BASIS)
    beside = (*one.keys, kernel.MATCH_START, kernel.ENDED_AT, kernel.REACHED, *tell, TIME_BASIS)
    for names in (result, beside):
        _check_names(names, at)
    made = declare(
        PatternNode,
        "pattern",
        [KeyedInput(stream, keys, tuple(columns))],
        plan,
        at=at,
        name=name,
        columns=result,
        time=stream.time.of_results(kernel.MATCH_END),
    )
    made.beside_columns = beside
    return made


def _with_sql(step: Step, stream: StreamNode) -> Step:
    what = f"the condition of step {step.rule.name!r}"
    return replace(step, condition=stream.flow.texts.condition(step.condition, what, step.at))


def _taking(rules: Sequence[StepRule]) -> list[str]:
    return [rule.name for rule in rules if not rule.negated]


def _measures(
    give: Mapping[str, str], rules: Sequence[StepRule], one: KeyedInput, at: str
) -> tuple[tuple[str, Measure], ...]:
    from millstream.pipeline.kernel.patterns.measures import MeasureError, parsed

    if not give:
        raise TopologyError(
            "give= must name at least one measure, for example {'n': 'count(small)'}", where=at
        )
    found = []
    for name, text in give.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise TopologyError(f"{name!r} can't be the name of a measure", where=at)
        try:
            measure = parsed(text, _taking(rules))
        except MeasureError as error:
            raise TopologyError(f"give: {name}: {error}", where=at) from None
        if measure.column is not None:
            if measure.column.lower() in (key.lower() for key in one.keys):
                raise TopologyError(
                    f"give: {name}: {measure.column} is a key and already in the result", where=at
                )
            columns = one.stream.columns
            if columns is not None and measure.column.lower() not in (each.lower() for each in columns):
                raise TopologyError(f"give: {name}: {no_such_column(measure.column, columns)}", where=at)
        found.append((name, measure))
    return tuple(found)


def _measured(measures: Sequence[tuple[str, Measure]], one: KeyedInput) -> list[str]:
    """The columns that measures need, and the time column, so that late rows still show their time."""
    assert one.stream.time is not None
    wanted = [one.stream.time.column, *(measure.column for _, measure in measures if measure.column)]
    keys = [key.lower() for key in one.keys]
    distinct = {column.lower(): column for column in reversed(wanted) if column.lower() not in keys}
    return [quoted(column) for column in distinct.values()]


def _check_names(names: Sequence[str], at: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise TopologyError(
                f"the result would have two columns {name!r}; rename the key (AS), the step or the measure",
                where=at,
            )
        seen.add(name.lower())


def _micros(within: object, at: str) -> int:
    if within is None:
        raise TopologyError(
            "a pattern needs within=, for example within='5 minutes': without it, unfinished matches would"
            " be kept forever",
            where=at,
        )
    try:
        return 1000 * duration_ms(within)
    except DurationError as error:
        raise TopologyError(f"within: {error}", where=at) from None
