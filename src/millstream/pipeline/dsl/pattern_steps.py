"""The steps of a pattern as users write them, and ``>>`` between them.

    declined = step("declined", "status = 'declined'").times(3) >> step("paid", "status = 'ok'")
    payments.pattern(by="card", within="5 minutes", steps=declined)

``kernel/patterns/automaton.py`` defines in every detail what a pattern means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.columns import is_column
from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.kernel.patterns.automaton import MOST_STEPS, StepRule

if TYPE_CHECKING:
    from millstream.pipeline.dsl.columns import Sql

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")  # of a step or a measure


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a pattern: which events fit it, how many it takes, and where they may come. Every method
    returns a step that is changed in one respect; ``>>`` puts one step after another.

        >>> declined = step("declined", "status = 'declined'").times(3).consecutive()
        >>> both = declined >> step("paid", F.col("status") == "ok")
    """

    rule: StepRule
    condition: Sql | None
    where: Callable[[Any, Mapping[str, list[Any]]], Any] | None
    at: str

    def times(self, least: int, most: int | None = None) -> Step:
        """``times(3)`` takes three events, ``times(2, 5)`` two to five.

        >>> some = step("declined", "status = 'declined'").times(2, 5)
        """
        return self._taking("times", least, least if most is None else most)

    def at_least(self, least: int) -> Step:
        """Take this many events or more.

        >>> many = step("declined", "status = 'declined'").at_least(3)
        """
        return self._taking("at_least", least, None)

    def one_or_more(self) -> Step:
        return self._taking("one_or_more", 1, None)

    def optional(self) -> Step:
        """The step may be left out.

        >>> maybe = step("warned", "status = 'warned'").optional()
        """
        return self._changed("optional", optional=True)

    def directly(self) -> Step:
        """The step begins with the very next event of the key after the previous step.

        >>> next_one = step("paid", "status = 'ok'").directly()
        """
        return self._changed("directly", directly=True)

    def consecutive(self) -> Step:
        """The step's events come one directly after another.

        >>> in_a_row = step("declined", "status = 'declined'").times(3).consecutive()
        """
        return self._changed("consecutive", consecutive=True)

    def __rshift__(self, other: Step | Steps) -> Steps:
        return Steps((self,)) >> other

    def _taking(self, what: str, least: int, most: int | None) -> Step:
        for number in (least, most):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise TopologyError(
                    f"step {self.rule.name!r}: {what} takes numbers of at least 1, not {number!r}; for a"
                    " step that may be absent, use .optional()",
                    where=caller(),
                )
        if most is not None and most < least:
            raise TopologyError(
                f"step {self.rule.name!r}: {least} to {most} events is an empty range", where=caller()
            )
        return self._changed(what, least=least, most=most)

    def _changed(self, what: str, **rules: Any) -> Step:
        if self.rule.negated:
            raise TopologyError(
                f"absent({self.rule.name!r}, ...) takes no events, so .{what}(...) does not apply",
                where=caller(),
            )
        return replace(self, rule=replace(self.rule, **rules))


@dataclass(frozen=True, slots=True)
class Steps:
    """A sequence of steps."""

    steps: tuple[Step, ...]

    def __rshift__(self, other: Step | Steps) -> Steps:
        if isinstance(other, Step):
            return Steps((*self.steps, other))
        if isinstance(other, Steps):
            return Steps((*self.steps, *other.steps))
        raise TopologyError(f"a pattern is made of steps; {other!r} is not one", where=caller())


def step(
    name: str,
    condition: Sql | None = None,
    *,
    where: Callable[[Any, Mapping[str, list[Any]]], Any] | None = None,
) -> Step:
    """A step for events for which the SQL ``condition`` is true, and ``where(event, so_far)`` too if it is
    given. ``where`` is a function of the event and of the events that earlier steps took, by step name.

        >>> small = step("small", "eur < 2").times(3)
        >>> rising = step("rising", where=lambda event, so_far: event.eur > so_far["small"][-1].eur)
    """
    return _step(name, condition, where, negated=False)


def absent(
    name: str,
    condition: Sql | None = None,
    *,
    where: Callable[[Any, Mapping[str, list[Any]]], Any] | None = None,
) -> Step:
    """No such event may come between the steps before and after this one. At the end of a pattern, none may
    come until the pattern's time is up.

        >>> refund = absent("refund", F.col("eur") < 0)
        >>> steps = [step("small", F.col("eur") < 2), refund, step("big", F.col("eur") > 500)]
        >>> found = payments.pattern(by="card", within="5 minutes", steps=steps)
    """
    return _step(name, condition, where, negated=True)


def _step(name: object, condition: object, where: object, *, negated: bool) -> Step:
    at = caller()
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise TopologyError(
            f"{name!r} can't be a step's name: use letters, digits and _, and begin with a letter", where=at
        )
    if condition is None and where is None:
        raise TopologyError(
            f'step {name!r} needs a condition in SQL, for example step({name!r}, "eur < 2"), or where=',
            where=at,
        )
    if where is not None and not callable(where):
        raise TopologyError(f"step {name!r}: where= must be a function of (event, so_far)", where=at)
    function: Any = where
    if isinstance(function, FunctionType) and function.__code__.co_argcount != 2:
        raise TopologyError(
            f"step {name!r}: where= must take two arguments, the event and the events matched so far",
            where=at,
        )
    if condition is not None and not isinstance(condition, str) and not is_column(condition):
        raise TopologyError(
            f"step {name!r}: a condition is SQL, as text or as PySpark's Column; give a function as where=",
            where=at,
        )
    return Step(StepRule(name, negated=negated), condition, where, at)


def checked_steps(given: object, strict: bool, at: str) -> tuple[Step, ...]:
    """The steps of a pattern. Raises TopologyError if they can't form one."""
    written = Steps(())
    for part in given if isinstance(given, list | tuple) else (given,):
        if not isinstance(part, Step | Steps):
            raise TopologyError(
                f"steps= must be a list of step(...) and absent(...), or step(...) >> step(...); {part!r} is"
                " neither",
                where=at,
            )
        written = written >> part
    steps = written.steps
    if not steps:
        raise TopologyError("a pattern needs at least one step", where=at)
    if len(steps) > MOST_STEPS:
        raise TopologyError(
            f"a pattern may have at most {MOST_STEPS} steps; this one has {len(steps)}", where=at
        )
    seen: set[str] = set()
    for each in steps:
        if each.rule.name.lower() in seen:
            raise TopologyError(f"two steps of this pattern are called {each.rule.name!r}", where=each.at)
        seen.add(each.rule.name.lower())
    if steps[0].rule.negated:
        raise TopologyError(
            f"a pattern can't begin with absent({steps[0].rule.name!r}, ...): there is no event to count"
            " from",
            where=steps[0].at,
        )
    taking = [each for each in steps if not each.rule.negated]
    if all(each.rule.optional for each in taking):
        raise TopologyError("all steps of this pattern are optional, so it would match anything", where=at)
    if steps[-1].rule.optional:
        raise TopologyError(
            f"the last step, {steps[-1].rule.name!r}, is optional: a match is complete without it, so it"
            " would never match an event",
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
