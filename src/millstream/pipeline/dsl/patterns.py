"""Patterns as users write them: steps, ``>>`` between them, and ``stream.pattern(...)``. Declarations only.

    declined = step("declined", "status = 'declined'").times(3) >> step("paid", "status = 'ok'")
    payments.pattern(by="card", within="5 minutes", steps=declined)

``kernel/automaton.py`` defines in every detail what a pattern means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.dsl.expressions import ExpressionError, duration_ms, no_such_column
from millstream.pipeline.dsl.stateful import Input, StatefulChannel, declare_as
from millstream.pipeline.dsl.streams import Stream
from millstream.pipeline.kernel.channels import TIME_BASIS
from millstream.pipeline.kernel.patterns.automaton import MOST_STEPS, StepRule
from millstream.sqltypes.ddl import quoted

if TYPE_CHECKING:
    from millstream.pipeline.kernel.patterns.measures import Measure

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
ON_ERROR = ("fail", "channel")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a pattern: which events fit it, how many it takes, and where they may come. Every method
    returns a step that is changed in one respect; ``>>`` puts one step after another."""

    rule: StepRule
    condition: str | None
    where: Callable[[Any, Mapping[str, list[Any]]], Any] | None
    at: str

    def times(self, least: int, most: int | None = None) -> Step:
        """``times(3)`` takes three events, ``times(2, 5)`` two to five."""
        return self._taking("times", least, least if most is None else most)

    def at_least(self, least: int) -> Step:
        """Take this many events or more."""
        return self._taking("at_least", least, None)

    def one_or_more(self) -> Step:
        return self._taking("one_or_more", 1, None)

    def optional(self) -> Step:
        """The step may be left out."""
        return self._changed("optional", optional=True)

    def directly(self) -> Step:
        """The step begins with the very next event of the key after the previous step."""
        return self._changed("directly", directly=True)

    def consecutive(self) -> Step:
        """The step's events come one directly after another."""
        return self._changed("consecutive", consecutive=True)

    def __rshift__(self, other: Step | Steps) -> Steps:
        return Steps((self,)) >> other

    def _taking(self, what: str, least: int, most: int | None) -> Step:
        for number in (least, most):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise TopologyError(
                    f"step {self.rule.name!r}: {what} takes numbers from 1 on, not {number!r};"
                    " a step that may be left out is .optional()",
                    where=caller(),
                )
        if most is not None and most < least:
            raise TopologyError(
                f"step {self.rule.name!r}: {least} to {most} events is no number", where=caller()
            )
        return self._changed(what, least=least, most=most)

    def _changed(self, what: str, **rules: Any) -> Step:
        if self.rule.negated:
            raise TopologyError(
                f"no({self.rule.name!r}, ...) takes no events, so .{what}(...) means nothing", where=caller()
            )
        return replace(self, rule=replace(self.rule, **rules))


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps one after another."""

    steps: tuple[Step, ...]

    def __rshift__(self, other: Step | Steps) -> Steps:
        if isinstance(other, Step):
            return Steps((*self.steps, other))
        if isinstance(other, Steps):
            return Steps((*self.steps, *other.steps))
        raise TopologyError(f"a pattern is made of steps; {other!r} is not one", where=caller())


def step(
    name: str,
    condition: str | None = None,
    *,
    where: Callable[[Any, Mapping[str, list[Any]]], Any] | None = None,
) -> Step:
    """A step for events for which the SQL ``condition`` is true, and ``where(event, so_far)`` too if it is
    given. ``where`` is a function of the event and of the events that earlier steps took, by step name."""
    return _step(name, condition, where, negated=False)


def no(
    name: str,
    condition: str | None = None,
    *,
    where: Callable[[Any, Mapping[str, list[Any]]], Any] | None = None,
) -> Step:
    """No such event may come between the steps before and after this one. At the end of a pattern, none may
    come until the pattern's time is up."""
    return _step(name, condition, where, negated=True)


def _step(name: object, condition: object, where: object, *, negated: bool) -> Step:
    at = caller()
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TopologyError(
            f"{name!r} can't be a step's name: letters, digits and _, beginning with a letter", where=at
        )
    if condition is None and where is None:
        raise TopologyError(
            f'step {name!r} needs a condition in SQL, for example step({name!r}, "eur < 2"), or where=',
            where=at,
        )
    if where is not None and not callable(where):
        raise TopologyError(f"step {name!r}: where= is a function of (event, so_far)", where=at)
    function: Any = where
    if isinstance(function, FunctionType) and function.__code__.co_argcount != 2:
        raise TopologyError(
            f"step {name!r}: where= is called with two arguments, the event and what was taken so far",
            where=at,
        )
    if condition is not None and not isinstance(condition, str):
        raise TopologyError(f"step {name!r}: a condition is SQL as text; a function is where=", where=at)
    return Step(StepRule(name, negated=negated), condition, where, at)


class PatternStream(StatefulChannel):
    """The matches of a pattern."""

    _beside_columns: tuple[str, ...] | None = None

    @property
    def overflow(self) -> StatefulChannel:
        """The partial matches that were dropped because their key had too many."""
        return self._channel_of("overflow", caller())

    @property
    def timed_out(self) -> StatefulChannel:
        """The partial matches that ran out of time."""
        plan: Any = self.stateful.plan
        self.stateful.plan = replace(plan, timed_out=True)
        return self._channel_of("timed_out", caller())

    @property
    def failed(self) -> StatefulChannel:
        """The events on which a function of the pattern failed, with ``error`` and ``error_at``."""
        at = caller()
        if not self.stateful.plan.to_channel:  # type: ignore[attr-defined]
            raise TopologyError(
                f"{self.name!r} stops the job where a function fails; with on_error='channel' it goes on and"
                " gives such events here",
                where=at,
            )
        return self.flow._channel(self.stateful, "failed", f"{self.name}.failed", at)

    def _channel_of(self, name: str, at: str) -> StatefulChannel:
        made = self.flow._channel(self.stateful, name, f"{self.name}.{name}", at)
        made.columns = self._beside_columns
        return made


class Bounds(NamedTuple):
    """The most partial matches and events that are kept for a key."""

    max_partial: int
    max_events: int


def declare_pattern(
    stream: Stream,
    by: str | Sequence[str],
    steps: Sequence[Step] | Steps | Step,
    within: str | None,
    give: Mapping[str, str] | None,
    after_match: str,
    strict: bool,
    bounds: Bounds,
    on_error: str,
    name: str | None,
    at: str,
) -> PatternStream:
    from millstream.pipeline.kernel.patterns import pattern as kernel

    stream._needs_time(at)
    assert stream.time is not None
    written = _steps(steps, strict, at)
    keys = (by,) if isinstance(by, str) else tuple(by)
    one = Input(stream, keys)
    for each in written:
        if each.condition is not None:
            stream._check(each.condition, f"the condition of step {each.rule.name!r}", each.at)
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
    made = declare_as(
        PatternStream,
        "pattern",
        [Input(stream, keys, tuple(columns))],
        plan,
        at=at,
        name=name,
        columns=result,
        time=stream.time.of_results(kernel.MATCH_END),
    )
    made._beside_columns = beside
    return made


def check_on_error(on_error: object, at: str) -> None:
    if on_error not in ON_ERROR:
        raise TopologyError(
            f"on_error={on_error!r} is not 'fail' (the job stops) or 'channel' (the record goes to .failed)",
            where=at,
        )


def _steps(given: object, strict: bool, at: str) -> tuple[Step, ...]:
    """The steps of a pattern. Raises TopologyError if they can't form one."""
    written = Steps(())
    for part in given if isinstance(given, list | tuple) else (given,):
        if not isinstance(part, Step | Steps):
            raise TopologyError(
                f"steps= is a list of step(...) and no(...), or step(...) >> step(...); {part!r} is neither",
                where=at,
            )
        written = written >> part
    steps = written.steps
    if not steps:
        raise TopologyError("a pattern has at least one step", where=at)
    if len(steps) > MOST_STEPS:
        raise TopologyError(f"a pattern has {MOST_STEPS} steps at most; this has {len(steps)}", where=at)
    seen: set[str] = set()
    for each in steps:
        if each.rule.name.lower() in seen:
            raise TopologyError(f"there are two steps {each.rule.name!r} in this pattern", where=each.at)
        seen.add(each.rule.name.lower())
    if steps[0].rule.negated:
        raise TopologyError(
            f"a pattern can't begin with no({steps[0].rule.name!r}, ...): there is no event to count from",
            where=steps[0].at,
        )
    taking = [each for each in steps if not each.rule.negated]
    if all(each.rule.optional for each in taking):
        raise TopologyError("all steps of this pattern are optional: anything would match", where=at)
    if steps[-1].rule.optional:
        raise TopologyError(
            f"the last step, {steps[-1].rule.name!r}, is optional: a match is complete without it, so it"
            " would never be taken",
            where=steps[-1].at,
        )
    if strict:
        return tuple(
            each
            if each.rule.negated
            else replace(each, rule=replace(each.rule, directly=number > 0, consecutive=True))
            for number, each in enumerate(steps)
        )
    return steps


def _taking(rules: Sequence[StepRule]) -> list[str]:
    return [rule.name for rule in rules if not rule.negated]


def _measures(
    give: Mapping[str, str], rules: Sequence[StepRule], one: Input, at: str
) -> tuple[tuple[str, Measure], ...]:
    from millstream.pipeline.kernel.patterns.measures import MeasureError, parsed

    if not give:
        raise TopologyError("give= names at least one measure, for example {'n': 'count(small)'}", where=at)
    found = []
    for name, text in give.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise TopologyError(f"{name!r} can't be the name of a measure", where=at)
        try:
            measure = parsed(text, _taking(rules))
        except MeasureError as error:
            raise TopologyError(f"give: {name}: {error}", where=at) from None
        if measure.column is not None:
            if measure.column.lower() in (key.lower() for key in one.keys):
                raise TopologyError(f"give: {name}: {measure.column} is a key, and in the result", where=at)
            columns = one.stream.columns
            if columns is not None and measure.column.lower() not in (each.lower() for each in columns):
                raise TopologyError(f"give: {name}: {no_such_column(measure.column, columns)}", where=at)
        found.append((name, measure))
    return tuple(found)


def _measured(measures: Sequence[tuple[str, Measure]], one: Input) -> list[str]:
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
                f"the result would have two columns {name!r}; name the key (AS), the step or the measure"
                " otherwise",
                where=at,
            )
        seen.add(name.lower())


def _micros(within: object, at: str) -> int:
    if within is None:
        raise TopologyError(
            "a pattern needs within=, for example within='5 minutes': without it, what has begun would be"
            " kept for ever",
            where=at,
        )
    try:
        return 1000 * duration_ms(within)
    except ExpressionError as error:
        raise TopologyError(f"within: {error}", where=at) from None
