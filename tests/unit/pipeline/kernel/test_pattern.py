"""Patterns against a plain matcher that tries every way through every event, however the input is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.channels import FAILED, OVERFLOW
from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.kernel.patterns.automaton import StepRule
from millstream.pipeline.kernel.patterns.measures import parsed
from millstream.pipeline.kernel.patterns.pattern import (
    AFTER_MATCH,
    ALL,
    PAST_LAST,
    TIMED_OUT,
    TO_NEXT,
    PatternPlan,
    condition_column,
)
from millstream.pipeline.kernel.program import MAIN
from tests.support.kernel_feed import SECOND, Event, Feed, run

WITHIN = 10 * SECOND


def plan_of(*steps: StepRule, **how: Any) -> PatternPlan:
    given: dict[str, Any] = {"within": WITHIN, "keys": 1, "at": "here:1", "basis": "event time (at)", **how}
    given.setdefault("conditions", (True,) * len(steps))
    given.setdefault("predicates", (None,) * len(steps))
    return PatternPlan(steps, **given)


def schema_of(plan: PatternPlan) -> pa.Schema:
    hidden = [
        pa.field(condition_column(number), pa.bool_())
        for number, known in enumerate(plan.conditions)
        if known
    ]
    return pa.schema([pa.field("card", pa.string()), pa.field("n", pa.int64()), *hidden])


def event(
    plan: PatternPlan, seconds: float, fits: str, *, card: str = "a", n: int = 0, partition: int = 0
) -> Event:
    """An event that fits the steps whose names' first letters are given."""
    row: dict[str, Any] = {"card": card, "n": n}
    for number, rule in enumerate(plan.steps):
        row[condition_column(number)] = rule.name[0] in fits
    return Event(round(seconds * SECOND), row, partition)


def matched(
    plan: PatternPlan, given: Sequence[tuple[float, str]], channel: str = MAIN
) -> list[dict[str, Any]]:
    """What a pattern gives for events, each numbered by its position, all time being over at the end."""
    events = [event(plan, seconds, fits, n=number) for number, (seconds, fits) in enumerate(given)]
    return run(plan, [schema_of(plan)], [[*events, event(plan, 10_000, "", card="z")]]).get(channel, [])


def numbers(plan: PatternPlan, row: dict[str, Any]) -> dict[str, list[int]]:
    return {rule.name: [one["n"] for one in row[rule.name]] for rule in plan.steps if not rule.negated}


def shown(plan: PatternPlan, given: Sequence[tuple[float, str]]) -> list[dict[str, list[int]]]:
    return [numbers(plan, row) for row in matched(plan, given)]


A, B, C = StepRule("a"), StepRule("b"), StepRule("c")
NOT = StepRule("x", negated=True)


def test_three_declined_payments_and_then_a_success() -> None:
    plan = plan_of(replace(A, least=3, most=3), B)
    assert shown(plan, [(0, "a"), (1, "a"), (2, ""), (3, "a"), (4, "b")]) == [{"a": [0, 1, 3], "b": [4]}]
    assert shown(plan, [(0, "a"), (1, "a"), (2, "b")]) == []


def test_a_match_says_when_it_began_and_ended_and_by_which_time() -> None:
    (row,) = matched(plan_of(A, B), [(1, "a"), (3, "b")])
    assert (row["card"], row["match_start"].second, row["match_end"].second) == ("a", 1, 3)
    assert row["time_basis"] == "event time (at)"


def test_the_last_event_is_less_than_the_time_after_the_first() -> None:
    assert shown(plan_of(A, B), [(0, "a"), (9.999, "b")]) == [{"a": [0], "b": [1]}]
    assert shown(plan_of(A, B), [(0, "a"), (10, "b")]) == []


def test_no_event_is_in_two_matches_unless_asked_for() -> None:
    given = [(0, "a"), (1, "a"), (2, "a"), (3, "b")]
    plan = plan_of(replace(A, most=None), B)
    assert shown(plan, given) == [{"a": [0, 1, 2], "b": [3]}]
    assert shown(replace(plan, after_match=TO_NEXT), given) == [
        {"a": [0, 1, 2], "b": [3]},
        {"a": [1, 2], "b": [3]},
        {"a": [2], "b": [3]},
    ]


def test_all_matches_may_share_their_first_event() -> None:
    plan = plan_of(A, replace(B, most=None), after_match=ALL)
    assert shown(plan, [(0, "a"), (1, "b"), (2, "b")]) == [{"a": [0], "b": [1]}, {"a": [0], "b": [1, 2]}]
    assert shown(replace(plan, after_match=TO_NEXT), [(0, "a"), (1, "b"), (2, "b")]) == [{"a": [0], "b": [1]}]


def test_an_optional_step_may_be_left_out_and_is_taken_if_it_comes() -> None:
    plan = plan_of(A, replace(B, optional=True), C)
    assert shown(plan, [(0, "a"), (1, "c")]) == [{"a": [0], "b": [], "c": [1]}]
    assert shown(plan, [(0, "a"), (1, "b"), (2, "c")]) == [{"a": [0], "b": [1], "c": [2]}]


def test_a_loop_that_fits_everything_does_not_eat_the_end() -> None:
    plan = plan_of(A, replace(B, most=None), C)
    assert shown(plan, [(0, "a"), (1, "b"), (2, "bc")]) == [{"a": [0], "b": [1], "c": [2]}]


def test_a_negation_forbids_between_two_steps_only() -> None:
    plan = plan_of(A, NOT, B)
    assert shown(plan, [(0, "a"), (1, "x"), (2, "b")]) == []
    assert shown(plan, [(0, "x"), (1, "a"), (2, "b"), (3, "x")]) == [{"a": [1], "b": [2]}]
    assert shown(plan, [(0, "a"), (1, "bx")]) == [{"a": [0], "b": [1]}]


def test_a_negation_after_a_loop_counts_from_its_last_event() -> None:
    plan = plan_of(replace(A, most=None), NOT, B, after_match=TO_NEXT)
    assert shown(plan, [(0, "a"), (1, "x"), (2, "a"), (3, "b")]) == [
        {"a": [0, 2], "b": [3]},
        {"a": [2], "b": [3]},
    ]


def test_absence_is_a_match_when_its_time_is_over() -> None:
    plan = plan_of(A, NOT)
    (row,) = matched(plan, [(1, "a"), (11, "x")])
    assert (row["match_start"].second, row["match_end"].second) == (1, 11)
    assert matched(plan, [(1, "a"), (10.9, "x")]) == []


def test_a_step_that_follows_directly_suffers_nothing_in_between() -> None:
    plan = plan_of(A, replace(B, directly=True))
    assert shown(plan, [(0, "a"), (1, "b")]) == [{"a": [0], "b": [1]}]
    assert shown(plan, [(0, "a"), (1, ""), (2, "b")]) == []


def test_consecutive_events_suffer_nothing_in_between() -> None:
    plan = plan_of(replace(A, least=2, most=2, consecutive=True), B)
    assert shown(plan, [(0, "a"), (1, ""), (2, "a"), (3, "a"), (4, ""), (5, "b")]) == [
        {"a": [2, 3], "b": [5]}
    ]


def test_partial_matches_that_ran_out_of_time_are_told_if_asked_for() -> None:
    plan = plan_of(A, B, C, timed_out=True)
    (row,) = matched(plan, [(0, "a"), (1, "b")], TIMED_OUT)
    assert (row["reached"], row["ended_at"].second, numbers(plan, row)) == (
        "b",
        10,
        {"a": [0], "b": [1], "c": []},
    )
    assert matched(replace(plan, timed_out=False), [(0, "a"), (1, "b")], TIMED_OUT) == []


@pytest.mark.parametrize("bound", [{"max_partial": 2}, {"max_events": 2}])
def test_too_many_partial_matches_drop_the_oldest_and_tell(bound: dict[str, int]) -> None:
    plan = plan_of(A, B, after_match=TO_NEXT, **bound)
    given = [(0, "a"), (1, "a"), (2, "a"), (3, "b")]
    assert shown(plan, given) == [{"a": [1], "b": [3]}, {"a": [2], "b": [3]}]
    (row,) = matched(plan, given, OVERFLOW)
    assert (row["match_start"].second, row["ended_at"].second, row["reached"]) == (0, 2, "a")
    assert numbers(plan, row) == {"a": [0], "b": []}


def test_measures_tell_what_was_asked_for() -> None:
    texts = ["sum(a.n)", "count(a)", "list(a.n)", "first(a.n)", "avg(a.n)", "max(a.n)", "b.n"]
    measures = tuple((text, parsed(text, ["a", "b"])) for text in texts)
    plan = plan_of(replace(A, least=3, most=3), B, measures=measures)
    (row,) = matched(plan, [(0, ""), (1, "a"), (2, "a"), (3, "a"), (4, "b")])
    assert [row[text] for text in texts] == [6, 3, [1, 2, 3], 1, 2.0, 3, 4]


def test_a_predicate_sees_the_event_and_what_was_taken_before() -> None:
    def rises(event: Any, so_far: Any) -> bool:
        return bool(event.n > so_far["a"][-1].n)

    plan = plan_of(A, B, predicates=(None, rises))
    events = [event(plan, 0, "a", n=5), event(plan, 1, "b", n=4), event(plan, 2, "b", n=6)]
    (row,) = run(plan, [schema_of(plan)], [[*events, event(plan, 99, "", card="z")]])[MAIN]
    assert [one["n"] for one in row["b"]] == [6]


def test_what_a_predicate_fails_on_goes_to_a_channel_and_changes_nothing() -> None:
    def fails(event: Any, so_far: Any) -> bool:
        return bool(1 / event.n)

    plan = plan_of(A, B, predicates=(None, fails), to_channel=True)
    events = [event(plan, 0, "a", n=5), event(plan, 1, "b", n=0), event(plan, 2, "b", n=6)]
    given = run(plan, [schema_of(plan)], [[*events, event(plan, 99, "", card="z")]])
    assert [one["n"] for one in given[MAIN][0]["b"]] == [6]
    ((failed),) = given[FAILED]
    assert (failed["card"], failed["n"], failed["error"]) == ("a", 0, "ZeroDivisionError: division by zero")
    assert "test_pattern.py:" in failed["error_at"]


# ---- against every way through every event ----------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """An event of a key in order of time."""

    time: int
    fits: str
    n: int


class Plainly:
    """Matches by trying: a path is a list of (event, step), and every rule is checked on the path itself."""

    def __init__(self, plan: PatternPlan, events: list[Seen]) -> None:
        self.plan, self.steps, self.events = plan, plan.steps, events

    def fits(self, event: int, step: int) -> bool:
        return self.steps[step].name[0] in self.events[event].fits

    def may_take(self, path: list[tuple[int, int]], passed: Sequence[int], step: int) -> bool:
        """Whether a step may take an event now, as far as what came before is concerned."""
        rule, last = self.steps[step], path[-1][1]
        count = sum(1 for _, taker in path if taker == last)
        if rule.negated:
            return False
        if step == last:
            return (rule.most is None or count < rule.most) and not (rule.consecutive and passed)
        between = range(last + 1, step)
        if step < last or count < self.steps[last].least or (rule.directly and passed):
            return False
        if any(not self.steps[one].negated and not self.steps[one].optional for one in between):
            return False
        return not any(
            self.steps[one].negated and self.fits(other, one) for one in between for other in passed
        )

    def may_end(self, path: list[tuple[int, int]], passed: Sequence[int]) -> bool:
        last = path[-1][1]
        count = sum(1 for _, taker in path if taker == last)
        rest = range(last + 1, len(self.steps))
        if count < self.steps[last].least:
            return False
        if any(not self.steps[one].negated and not self.steps[one].optional for one in rest):
            return False
        return not any(self.steps[one].negated and self.fits(other, one) for one in rest for other in passed)

    def ways(self, path: list[tuple[int, int]], next_: int) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """All that a path becomes: ("match", ...) whenever it is one, ("open", ...) if its time is over."""
        by_time = self.steps[-1].negated
        taken = path[-1][0] == next_ - 1
        if taken and not by_time and self.may_end(path, ()):
            yield "match", path
        passed = range(path[-1][0] + 1, next_)
        start = self.events[path[0][0]].time
        if next_ == len(self.events) or self.events[next_].time - start >= self.plan.within:
            if by_time and self.may_end(path, passed):
                yield "match", path
            elif any(self.may_take(path, passed, step) for step in range(len(self.steps))):
                yield "open", path
            return
        able = [s for s in range(len(self.steps)) if self.fits(next_, s) and self.may_take(path, passed, s)]
        for step in able:
            yield from self.ways([*path, (next_, step)], next_ + 1)
        if not able:
            yield from self.ways(path, next_ + 1)

    def begun(self, event: int) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        for step, rule in enumerate(self.steps):
            if self.fits(event, step) and not rule.negated:
                yield from self.ways([(event, step)], event + 1)
            if not rule.optional and not rule.negated:
                return

    def found(self) -> tuple[list[Any], list[Any]]:
        """Matches, and partial matches that ran out of time, each as (when, path)."""
        by_time = self.steps[-1].negated
        matches: list[tuple[int, int, list[tuple[int, int]]]] = []
        timed_out: list[tuple[int, int, list[tuple[int, int]]]] = []
        for first, event in enumerate(self.events):
            due = event.time + self.plan.within
            all_of_it = list(self.begun(first))
            ends: dict[int, list[tuple[int, int]]] = {}
            for kind, path in all_of_it:
                if kind == "match":
                    ends.setdefault(0 if by_time else path[-1][0], path)
            chosen = sorted(ends) if self.plan.after_match == ALL else sorted(ends)[:1]
            matches += [(due if by_time else self.events[end].time, first, ends[end]) for end in chosen]
            if not ends and all_of_it:
                timed_out.append((due, first, all_of_it[0][1]))
        matches.sort(key=lambda one: (one[0], 0 if by_time else one[2][-1][0], one[1]))
        if self.plan.after_match == PAST_LAST:
            kept: list[tuple[int, int, list[tuple[int, int]]]] = []
            for one in matches:
                if not kept or one[1] > kept[-1][2][-1][0]:
                    kept.append(one)
            matches = kept
            timed_out = [
                one
                for one in timed_out
                # Of two whose time is over at once the one that began first counts first.
                if not any(match[1] <= one[1] <= match[2][-1][0] and match[0] <= one[0] for match in matches)
            ]
        return matches, timed_out


def plainly(plan: PatternPlan, events: list[Seen]) -> tuple[list[Any], list[Any]]:
    def told(when: int, path: list[tuple[int, int]]) -> tuple[Any, ...]:
        taken: dict[str, list[int]] = {rule.name: [] for rule in plan.steps if not rule.negated}
        for number, step in path:
            taken[plan.steps[step].name].append(events[number].n)
        return events[path[0][0]].time, when, taken

    matches, timed_out = Plainly(plan, events).found()
    return [told(when, path) for when, _, path in matches], [told(when, path) for when, _, path in timed_out]


@st.composite
def plans(draw: st.DrawFn) -> PatternPlan:
    steps: list[StepRule] = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        if steps and draw(st.integers(0, 3)) == 0:
            steps.append(StepRule("xyz"[len(steps) % 3], negated=True))
        least, extra = draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 1, None]))
        steps.append(
            StepRule(
                name,
                least=least,
                most=None if extra is None else least + extra,
                optional=draw(st.integers(0, 3)) == 0,
                directly=bool(steps) and draw(st.integers(0, 4)) == 0,
                consecutive=draw(st.integers(0, 4)) == 0,
            )
        )
    by_time = draw(st.integers(0, 3)) == 0
    if not by_time:
        steps[-1] = replace(steps[-1], optional=False)
    elif all(step.optional or step.negated for step in steps):
        steps[0] = replace(steps[0], optional=False)
    if by_time:
        steps.append(StepRule("w", negated=True))
    return plan_of(*steps, after_match=draw(st.sampled_from(AFTER_MATCH)), timed_out=draw(st.booleans()))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_matches_are_those_of_the_plain_matcher_however_the_input_is_cut(data: st.DataObject) -> None:
    plan = data.draw(plans())
    letters = "".join(rule.name for rule in plan.steps)
    count = data.draw(st.integers(1, 12))
    lateness = data.draw(st.sampled_from([0, 3, 8]))
    events = [
        event(
            plan,
            data.draw(st.integers(0, 24)),
            data.draw(st.text(st.sampled_from(letters), max_size=2)),
            card=data.draw(st.sampled_from("ab")),
            n=number,
            partition=data.draw(st.integers(0, 1)),
        )
        for number in range(count)
    ]
    ends = [event(plan, 10_000, "", card="z", partition=partition) for partition in (0, 1)]
    # A partition holds time back from its first row on: both have shown one before the first batch.
    begins = [event(plan, 0, "", card="z", partition=partition) for partition in (0, 1)]
    batches = [begins, *data.draw(cuts([*events, *ends]))]
    feed = Feed(
        plan,
        [schema_of(plan)],
        buckets=data.draw(st.integers(1, 3)),
        rules=TimeRules(lateness=lateness * SECOND),
    )
    for batch in batches:
        feed.batch(batch)
        if data.draw(st.booleans()):
            feed.reload(snapshot=data.draw(st.booleans()))
    on_time = by_card(plan, events, lateness * SECOND)
    for card, seen in on_time.items():
        matches, timed_out = plainly(plan, seen)
        assert [
            of_row(plan, row, "match_end") for row in feed.given.get(MAIN, []) if row["card"] == card
        ] == matches
        told = [of_row(plan, row, "ended_at") for row in feed.given.get(TIMED_OUT, []) if row["card"] == card]
        assert told == (timed_out if plan.timed_out else [])
    assert OVERFLOW not in feed.given


def of_row(plan: PatternPlan, row: dict[str, Any], end: str) -> tuple[Any, ...]:
    start = round(row["match_start"].timestamp() * SECOND)
    return start, round(row[end].timestamp() * SECOND), numbers(plan, row)


@st.composite
def cuts(draw: st.DrawFn, events: list[Event]) -> list[list[Event]]:
    places = sorted(draw(st.lists(st.integers(0, len(events)), max_size=4)))
    return [events[low:high] for low, high in zip([0, *places], [*places, len(events)], strict=True)]


def by_card(plan: PatternPlan, events: list[Event], lateness: int) -> dict[str, list[Seen]]:
    """The events of each card that are not late, in order."""
    latest: dict[int, int] = {}
    kept: list[tuple[int, int, int, Event]] = []
    for number, one in enumerate(events):
        if one.time >= latest.get(one.partition, one.time) - lateness:
            kept.append((one.time, one.partition, number, one))
        latest[one.partition] = max(latest.get(one.partition, one.time), one.time)
    found: dict[str, list[Seen]] = {}
    for _, _, _, one in sorted(kept, key=lambda entry: entry[:3]):
        fits = "".join(
            rule.name for number, rule in enumerate(plan.steps) if one.row[condition_column(number)]
        )
        found.setdefault(one.row["card"], []).append(Seen(one.time, fits, one.row["n"]))
    return found
