"""Patterns on the kernel: partial matches per key, advanced by events in time order.

A key keeps a list of partial matches, oldest first, one for each event that began one. A partial match
holds one or a few ways in which it may still succeed (``automaton.py`` says when there is more than one),
each with the events it took. A key without partial matches keeps nothing.

Memory per key is bounded by ``max_partial`` partial matches and ``max_events`` events held by them (an
event counts once for every way that took it). Beyond that, the oldest partial match is dropped and
reported on the channel ``overflow``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.core.errors import TopologyError
from millstream.pipeline.kernel.channels import FAILED, HIDDEN, MAIN, OVERFLOW, TIME_BASIS
from millstream.pipeline.kernel.clock import OperatorClock
from millstream.pipeline.kernel.event import event_type
from millstream.pipeline.kernel.patterns.automaton import Automaton, StepRule
from millstream.pipeline.kernel.patterns.measures import Measure, MeasureError, type_of, worked_out
from millstream.pipeline.kernel.program import TIMESTAMP, Events, ProgramOutput
from millstream.pipeline.kernel.python_values import values_of
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.user_failures import FAILED_COLUMNS, RecordFailed, line, reason, shortened

TIMED_OUT = "timed_out"
PAST_LAST, TO_NEXT, ALL = "skip past last", "skip to next", "all"
AFTER_MATCH = (PAST_LAST, TO_NEXT, ALL)
MATCH_START, MATCH_END = "match_start", "match_end"
ENDED_AT, REACHED = "ended_at", "reached"  # of a partial match: when it ended, and at which step


Key = tuple[Any, ...]
Taken = tuple[int, int, tuple[Any, ...]]  # an event: its number in its key, time, columns without the keys
Way = tuple[int, tuple[tuple[int, Taken], ...]]  # a state, and the events taken so far with their steps
# When it began, whether it has given a match, the ways it may continue, and how many events these hold.
Partial = tuple[int, bool, tuple[Way, ...], int]
_UNBEGUN: tuple[Way, ...] = ((Automaton.START, ()),)
_UNKNOWN = object()
Predicate = Callable[[Any, Mapping[str, list[Any]]], Any]


def condition_column(number: int) -> str:
    """The column that says whether a row fits a step."""
    return f"{HIDDEN}step_{number}"


@dataclass(frozen=True)
class PatternPlan:
    """A pattern as it was declared. ``conditions`` says for each step whether SQL decides what fits it,
    in a column of the input. ``predicates`` are the functions that decide it, with or without SQL."""

    steps: tuple[StepRule, ...]
    conditions: tuple[bool, ...]
    predicates: tuple[Predicate | None, ...]
    within: int
    keys: int
    at: str
    basis: str
    after_match: str = PAST_LAST
    measures: tuple[tuple[str, Measure], ...] | None = None
    max_partial: int = 1000
    max_events: int = 10_000
    to_channel: bool = False  # events on which a predicate fails go to a channel
    timed_out: bool = False  # partial matches that ran out of time are reported

    in_order: ClassVar[bool] = True
    positional: ClassVar[tuple[int, ...]] = (0,)

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        layout = Layout.of(self, inputs[0])
        keys, told = layout.keys, [pa.field(name, kind) for name, kind in layout.told]
        basis = pa.field(TIME_BASIS, pa.string())
        start, end = pa.field(MATCH_START, TIMESTAMP), pa.field(MATCH_END, TIMESTAMP)
        ended = [pa.field(ENDED_AT, TIMESTAMP), pa.field(REACHED, pa.string())]
        found = {MAIN: pa.schema([*keys, start, end, *told, basis])}
        found[OVERFLOW] = pa.schema([*keys, start, *ended, *told, basis])
        if self.timed_out:
            found[TIMED_OUT] = found[OVERFLOW]
        if self.to_channel:
            found[FAILED] = pa.schema([*keys, *layout.own, *FAILED_COLUMNS])
        return found

    def program(self, inputs: Sequence[pa.Schema]) -> PatternProgram:
        return PatternProgram(self, inputs[0])

    def shape(self) -> Mapping[str, object]:
        taken = [
            {"step": rule.name, "least": rule.least, "most": rule.most, "optional": rule.optional,
             "negated": rule.negated, "directly": rule.directly, "consecutive": rule.consecutive}
            for rule in self.steps
        ]  # fmt: skip
        measured = None if self.measures is None else sorted({m.column for _, m in self.measures if m.column})
        return {"pattern": taken, "within_us": self.within, "holds": measured}

    def describe(self) -> str:
        return " then ".join(_described(rule) for rule in self.steps)


def _described(rule: StepRule) -> str:
    if rule.negated:
        return f"no {rule.name}"
    many = "" if (rule.least, rule.most) == (1, 1) else f" x{rule.least}"
    if rule.most is None:
        many += "+"
    elif rule.most != rule.least:
        many += f"-{rule.most}"
    return f"{rule.name}{many}{' (or not)' if rule.optional else ''}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns by role: the keys, the event's own, and what a match reports of them."""

    keys: list[pa.Field]
    own: list[pa.Field]
    told: list[tuple[str, pa.DataType]]
    work: list[Callable[[Any], Any]] = field(default_factory=list)

    @classmethod
    def of(cls, plan: PatternPlan, schema: pa.Schema) -> Layout:
        keys = list(schema)[: plan.keys]
        for key in keys:
            if pa.types.is_nested(key.type):
                raise TopologyError(
                    f"the key {key.name!r} is {key.type}; a key must be a plain value", where=plan.at
                )
        own = [one for one in list(schema)[plan.keys :] if not one.name.startswith(HIDDEN)]
        numbers = {rule.name: number for number, rule in enumerate(plan.steps) if not rule.negated}
        if plan.measures is None:
            events = pa.list_(pa.struct(own))
            names = [one.name for one in own]
            return cls(
                keys,
                own,
                [(name, events) for name in numbers],
                [_all_events(number, names) for number in numbers.values()],
            )
        places = {one.name.lower(): place for place, one in enumerate(own)}
        kinds = {one.name.lower(): one.type for one in own}
        told, work = [], []
        for name, measure in plan.measures:
            column = None if measure.column is None else measure.column.lower()
            if column is not None and column not in places:
                raise TopologyError(f"{name}={measure.text}: there is no such column", where=plan.at)
            try:
                kind = type_of(Measure(measure.function, measure.step, column), kinds)
            except MeasureError as error:
                raise TopologyError(f"{name}: {error}", where=plan.at) from None
            told.append((name, kind))
            work.append(worked_out(measure, numbers[measure.step], places.get(column or "", 0), kind))
        return cls(keys, own, told, work)


def _first(partial: Partial) -> int:
    """The number, in its key, of the event that began a partial match."""
    return partial[2][0][1][0][1][0]


def _all_events(number: int, names: list[str]) -> Callable[[Any], Any]:
    return lambda taken: [dict(zip(names, event, strict=True)) for event in taken[number]]


class PatternProgram:
    """A pattern running in one bucket."""

    def __init__(self, plan: PatternPlan, schema: pa.Schema) -> None:
        self._plan = plan
        self._layout = Layout.of(plan, schema)
        self._automaton = Automaton(plan.steps)
        self._names = [one.name for one in (*self._layout.keys, *self._layout.own)]
        self._event: Any = event_type(self._names)
        self._asked = 0  # bits of the steps that have a predicate
        self._given = 0  # bits of the steps that every event fits as far as SQL is concerned
        for number, predicate in enumerate(plan.predicates):
            self._asked |= (predicate is not None) << number
            self._given |= (not plan.conditions[number]) << number

    def open(self, store: StateStore) -> None:
        self._partial = store.keyed("partial")

    # ---- events -------------------------------------------------------------------------------------

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        table, index, time = events.tables[0], events.index, events.time
        bits = self._bits(table)[index]
        if not self._automaton.takes_notice:
            fits = np.flatnonzero(bits)  # an event that fits nothing changes nothing
            bits, index, time = bits[fits], index[fits], time[fits]
        if not len(index):
            return
        keys, rows = self._columns(table.take(pa.array(index)))
        self._partial.fetch(keys)
        held: dict[Key, list[Partial]] = {}
        counts: dict[Key, int] = {}
        for key, at, fit, row in zip(keys, time.tolist(), bits.tolist(), rows, strict=True):
            partial = held.get(key)
            if partial is None:
                counts[key], partial = self._partial.get(key) or (0, [])
            if partial:
                if partial[0][0] + self._plan.within <= at:
                    partial = self._expired(key, partial, at, out)
            elif not fit:
                continue
            counts[key] = count = counts[key] + 1 if partial else 0
            held[key] = self._moved(key, partial, (count, at, row), fit, out)
        for key, partial in held.items():
            self._keep(key, counts[key], partial)

    def _keep(self, key: Key, count: int, partial: list[Partial]) -> None:
        if partial:
            self._partial.put(key, (count, partial), due=partial[0][0] + self._plan.within)
        else:
            self._partial.remove(key)

    def _bits(self, table: pa.Table) -> Any:
        """The steps that each row fits, judged by the SQL conditions."""
        bits = np.full(table.num_rows, self._given, np.int64)
        for number, known in enumerate(self._plan.conditions):
            if known:
                column = table[condition_column(number)].fill_null(False).combine_chunks()
                bits |= column.to_numpy(zero_copy_only=False).astype(np.int64) << number
        return bits

    def _columns(self, table: pa.Table) -> tuple[list[Key], list[tuple[Any, ...]]]:
        size = self._plan.keys
        columns = [values_of(table[name]) for name in self._names]
        keys = list(zip(*columns[:size], strict=True))
        own = columns[size:]
        return keys, list(zip(*own, strict=True)) if own else [()] * len(keys)

    def _moved(
        self, key: Key, partial: list[Partial], event: Taken, bits: int, out: ProgramOutput
    ) -> list[Partial]:
        """A key's partial matches after an event. An event on which a predicate fails changes nothing."""
        try:
            moved, complete = self._step(key, partial, event, bits)
        except RecordFailed as failed:
            if not self._plan.to_channel:
                raise
            out.row(FAILED, (*key, *event[2], reason(failed.error), line(failed.error)))
            return partial
        if complete:
            if self._plan.after_match == PAST_LAST:
                self._tell(key, complete[0], event[1], out)
                return []
            for path in complete:
                self._tell(key, path, event[1], out)
        return self._bounded(key, moved, event[1], out)

    def _step(
        self, key: Key, partial: list[Partial], event: Taken, bits: int
    ) -> tuple[list[Partial], list[Any]]:
        """The partial matches after an event, and the matches that it completed, oldest first."""
        automaton, asked = self._automaton, self._asked
        move, complete, goes_on = automaton.move, automaton.complete, automaton.goes_on
        known = {} if asked else automaton.moves(bits)
        every = self._plan.after_match == ALL
        moved: list[Partial] = []
        matches: list[Any] = []
        for old in [*partial, None]:
            began, matched, ways, _ = old or (event[1], False, _UNBEGUN, 0)
            if len(ways) == 1 and old is not None and known.get(ways[0][0], _UNKNOWN) is None:
                moved.append(old)  # by far the most common: the event does not matter to it
                continue
            after: list[Way] = []
            there: set[int] = set()
            whole = None
            same = True
            for way in ways:
                state, path = way
                found = move(state, self._fits(key, state, path, event, bits) if asked else bits)
                if found is None:
                    if state in there:
                        same = False
                    else:
                        there.add(state)
                        after.append(way)
                elif found.taken:
                    same = False
                    for to, number in found.taken:
                        if to not in there:
                            there.add(to)
                            longer = (*path, (number, event))
                            if whole is None and complete(to):
                                whole = longer
                            if goes_on(to) or automaton.ends_by_time:
                                after.append((to, longer))
                else:
                    same = False
                    if found.stays is not None and found.stays not in there:
                        there.add(found.stays)
                        after.append((found.stays, path))
            if whole is not None:
                matches.append(whole)
            if same and old is not None:
                moved.append(old)
            elif after and (whole is None or every):
                held = sum(len(path) for _, path in after)
                moved.append((began, matched or whole is not None, tuple(after), held))
        return moved, matches

    def _fits(self, key: Key, state: int, path: Any, event: Taken, bits: int) -> int:
        """The bits of an event for a partial match, after calling the user's predicates."""
        open_ = self._automaton.wants(state) & bits & self._asked
        if not open_:
            return bits
        seen = self._event((*key, *event[2], event[1]))
        so_far: dict[str, list[Any]] = {rule.name: [] for rule in self._plan.steps if not rule.negated}
        for number, (_, time, row) in path:
            so_far[self._plan.steps[number].name].append(self._event((*key, *row, time)))
        for number, predicate in enumerate(self._plan.predicates):
            if open_ >> number & 1 and predicate is not None:
                try:
                    if not predicate(seen, so_far):
                        bits &= ~(1 << number)
                except Exception as error:
                    shown = shortened(self._names, (*key, *event[2]))
                    raise RecordFailed(shortened(self._names[: len(key)], key), shown, error) from error
        return bits

    def _bounded(self, key: Key, partial: list[Partial], at: int, out: ProgramOutput) -> list[Partial]:
        """The partial matches that may be kept: the latest ones. Reports those that are dropped."""
        events = sum([one[3] for one in partial])
        dropped = 0
        while len(partial) - dropped > self._plan.max_partial or events > self._plan.max_events:
            events -= partial[dropped][3]
            self._tell_partial(OVERFLOW, key, partial[dropped], at, out)
            dropped += 1
        return partial[dropped:] if dropped else partial

    # ---- time ---------------------------------------------------------------------------------------

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        for _, key, (count, partial) in self._partial.take_due(clock.watermark):
            left = self._expired(key, partial, clock.watermark, out)
            if left:
                self._keep(key, count, left)

    def _expired(self, key: Key, partial: list[Partial], until: int, out: ProgramOutput) -> list[Partial]:
        """The partial matches that are left at a time. One whose time is over may be a match because of
        that (the pattern ends with a negation); otherwise it has timed out."""
        within = self._plan.within
        over = sum(1 for one in takewhile(lambda one: one[0] + within <= until, partial))
        last = -1  # the last event of the last match
        for old in partial[:over]:
            began, matched, ways, _ = old
            if _first(old) <= last:
                continue
            ended = (path for state, path in ways if self._automaton.complete_by_time(state))
            whole = next(ended, None)
            if whole is not None:
                self._tell(key, whole, began + within, out)
                if self._plan.after_match == PAST_LAST:
                    last = whole[-1][1][0]
            elif self._plan.timed_out and not matched:
                self._tell_partial(TIMED_OUT, key, old, began + within, out)
        return [one for one in partial[over:] if _first(one) > last]

    def next_due(self) -> int | None:
        told = self._automaton.ends_by_time or self._plan.timed_out
        return self._partial.next_due() if told else None

    def next_timer(self) -> int | None:
        return None

    # ---- reporting ----------------------------------------------------------------------------------

    def _tell(self, key: Key, path: Any, end: int, out: ProgramOutput) -> None:
        out.row(MAIN, (*key, path[0][1][1], end, *self._told(path), self._plan.basis))

    def _tell_partial(self, channel: str, key: Key, partial: Partial, at: int, out: ProgramOutput) -> None:
        began, _, ways, _ = partial
        state, path = ways[0]
        reached = self._plan.steps[self._automaton.step_of(state)].name
        out.row(channel, (*key, began, at, reached, *self._told(path), self._plan.basis))

    def _told(self, path: Any) -> list[Any]:
        taken: list[list[Any]] = [[] for _ in self._plan.steps]
        for number, (_, _, row) in path:
            taken[number].append(row)
        return [work(taken) for work in self._layout.work]
