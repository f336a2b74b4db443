"""The state machine of a pattern: how each event can continue a partial match.

Rules:

1. A pattern is a sequence of steps. A step takes as many events as its rule says (``least`` to ``most``, or
   none if it is optional). A *negation* between steps takes no events and forbids those that fit it.
2. A match begins with an event that fits the first step (or the next one, if the first is optional). Every
   such event begins a match. The first and the last event of a match are less than ``within`` apart.
3. An event that fits is taken. A partial match skips only events that fit nothing it waits for. For a step
   that must follow *directly* (or whose events must be *consecutive*), not even those may be skipped.
4. An event that fits in several ways (as one more event of a step, or as the first of a later step) is
   taken in all of them. If several ways lead to the same state, the one that stayed longer with the
   earlier steps is kept.
5. A negation forbids events between the last event taken before it and the first one taken after it. An
   event that is itself taken is not in between. At the end of a pattern, a negation forbids events until
   ``within`` is over, and the match is complete then.
6. A match is complete with the first event that can be its last.

Rules 3 to 6 leave at most one match for each first event, whatever the order of evaluation.

Theory of operation. The progress of a partial match is a *state*: the step that took the last event, how
many events it has taken (counted no further than matters), and what was skipped since: whether any event
was, and which negations the skipped events fit. An event has one bit for each step: it fits the step or
it doesn't. So the effect of an event is a function of state and bits alone, and is computed once for
every pair that occurs. States and bits are integers, which are fast to look up and the same in every run
of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_COUNT, _STEP = 32, 8  # bits of a state for the count and for the step; the signs are above them
MOST_STEPS = 60  # each step has a bit in a 64-bit integer
_PASSED = 1  # the sign that an event was skipped


@dataclass(frozen=True, slots=True)
class StepRule:
    """How many events a step takes and how closely they must follow. A ``negated`` step forbids events."""

    name: str
    least: int = 1
    most: int | None = 1
    optional: bool = False
    negated: bool = False
    directly: bool = False
    consecutive: bool = False


@dataclass(frozen=True, slots=True)
class Transition:
    """What an event does to a partial match. ``taken``: the next states, each with the step that took the
    event, in order of preference. ``stays``: the state if no step took the event; None if it failed."""

    taken: tuple[tuple[int, int], ...]
    stays: int | None


@dataclass(frozen=True, slots=True)
class _Way:
    """A transition to another step. ``barred_by``: the signs of skipped events that forbid it."""

    to: int
    barred_by: int


class Automaton:
    """The states of a pattern and their moves. ``START`` is the state before any event."""

    START = 0

    def __init__(self, steps: Sequence[StepRule]) -> None:
        self.steps = tuple(steps)
        self._signs: dict[int, int] = {}  # by negation: the bit that says that a skipped event fits it
        for number, step in enumerate(self.steps):
            if step.negated:
                self._signs[number] = _PASSED << 1 + len(self._signs)
        self._ways = [self._ways_from(number) for number in range(-1, len(self.steps))]
        self._ends = [self._end_of(number) for number in range(-1, len(self.steps))]
        self._moves: dict[int, dict[int, Transition | None]] = {}
        self.ends_by_time = self.steps[-1].negated
        self.takes_notice = any(step.directly or step.consecutive for step in self.steps)

    # ---- the table ----------------------------------------------------------------------------------

    def moves(self, bits: int) -> dict[int, Transition | None]:
        """The moves of events with these bits, by state, as far as ``move`` has computed them."""
        found = self._moves.get(bits)
        if found is None:
            found = self._moves[bits] = {}
        return found

    def move(self, state: int, bits: int) -> Transition | None:
        """What an event with these bits does in a state; None if it changes nothing."""
        of_bits = self.moves(bits)
        if state not in of_bits:
            found = self._move(state, bits)
            of_bits[state] = None if not found.taken and found.stays == state else found
        return of_bits[state]

    def wants(self, state: int) -> int:
        """The bits that can matter in a state."""
        number, _, _ = _parts(state)
        mine = 0 if number < 0 else 1 << number
        reached = [way.to for way in self._ways[number + 1]]
        furthest = max([number, *reached], default=number)
        forbidden = [one for one in self._signs if number < one and (one < furthest or self.ends_by_time)]
        return mine | sum(1 << one for one in (*reached, *forbidden))

    def complete(self, state: int) -> bool:
        """True if a match that has just reached this state is complete."""
        return not self.ends_by_time and self._may_end(state)

    def complete_by_time(self, state: int) -> bool:
        """True if a partial match in this state is complete once its time is over."""
        return self.ends_by_time and self._may_end(state)

    def goes_on(self, state: int) -> bool:
        """True if some event could still be taken in this state."""
        number, count, signs = _parts(state)
        if self._may_repeat(number, count, signs):
            return True
        return count >= self.steps[number].least and any(
            not way.barred_by & signs for way in self._ways[number + 1]
        )

    @staticmethod
    def step_of(state: int) -> int:
        """The step that took the last event."""
        return _parts(state)[0]

    # ---- working it out -----------------------------------------------------------------------------

    def _move(self, state: int, bits: int) -> Transition:
        number, count, signs = _parts(state)
        taken: list[tuple[int, int]] = []
        if number >= 0 and bits >> number & 1 and self._may_repeat(number, count, signs):
            step = self.steps[number]
            counted = count + 1 if step.most is not None else min(count + 1, step.least)
            taken.append((_state(number, counted, 0), number))
        if number < 0 or count >= self.steps[number].least:
            taken += [
                (_state(way.to, 1, 0), way.to)
                for way in self._ways[number + 1]
                if bits >> way.to & 1 and not way.barred_by & signs
            ]
        if taken or number < 0:
            return Transition(tuple(taken), None)
        return Transition((), self._passed_by(number, count, signs, bits))

    def _passed_by(self, number: int, count: int, signs: int, bits: int) -> int | None:
        """The state after an event that was not taken; None if the match has failed."""
        signs |= _PASSED
        for negation, sign in self._signs.items():
            if bits >> negation & 1:
                signs |= sign
        # Keep only the signs that can matter later. Otherwise equal states would have different numbers.
        step = self.steps[number]
        matters = _PASSED if step.consecutive else 0
        for way in self._ways[number + 1]:
            matters |= way.barred_by
        matters |= self._ends[number + 1] or 0
        state = _state(number, count, signs & matters)
        if self.goes_on(state) or self.complete_by_time(state):
            return state
        return None

    def _may_repeat(self, number: int, count: int, signs: int) -> bool:
        if number < 0:
            return False
        step = self.steps[number]
        return (step.most is None or count < step.most) and not (step.consecutive and signs & _PASSED)

    def _may_end(self, state: int) -> bool:
        number, count, signs = _parts(state)
        barred_by = self._ends[number + 1]
        return barred_by is not None and count >= self.steps[number].least and not barred_by & signs

    def _ways_from(self, number: int) -> list[_Way]:
        """The transitions to the next step and, past optional steps, to those after them."""
        found: list[_Way] = []
        barred_by = 0
        for following in range(number + 1, len(self.steps)):
            step = self.steps[following]
            if step.negated:
                barred_by |= self._signs[following]
                continue
            found.append(_Way(following, barred_by | (_PASSED if step.directly and number >= 0 else 0)))
            if not step.optional:
                break
        return found

    def _end_of(self, number: int) -> int | None:
        """The signs that forbid ending after a step; None if another step must come before the end."""
        if number < 0:
            return None
        rest = range(number + 1, len(self.steps))
        if any(not self.steps[one].negated and not self.steps[one].optional for one in rest):
            return None
        return sum(self._signs[one] for one in rest if self.steps[one].negated)


def _state(number: int, count: int, signs: int) -> int:
    return signs << _COUNT + _STEP | count << _STEP | number + 1


def _parts(state: int) -> tuple[int, int, int]:
    return (state & (1 << _STEP) - 1) - 1, state >> _STEP & (1 << _COUNT) - 1, state >> _COUNT + _STEP
