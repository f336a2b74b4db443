"""The machine behind a pattern: steps in, and for every event the ways in which a partial match can go on.

Rules:

1. A pattern is a row of steps. A step takes as many events as it is told to (``least`` to ``most``, or none
   if it is optional); a *negation* between steps takes none and forbids.
2. A match begins with an event that fits the first step (or the one after it, where that is optional), and
   every such event begins one. Its first and its last event are less than ``within`` apart.
3. An event that fits is taken. Only events that fit nothing a partial match waits for are passed over; for a
   step that must follow *directly* (or whose events must be *consecutive*) not even those.
4. An event that fits in several ways, to be one more of a step or to go on to a further one, is taken in all
   of them. Of the ways that lead to the same place the one is kept that stayed longer with the earlier steps.
5. A negation forbids events between the last event taken before it and the first taken after it; an event
   that is itself taken is not between. At the end of a pattern it forbids until ``within`` is over, and the
   match is complete then.
6. A match is complete with the first event that can be its last.

Rules 3 to 6 leave one match for each first event at most, whatever the order in which anything is looked at.

Theory of operation. Where a partial match stands is a *state*: the step that took the last event, how many it
has taken (counted no further than matters), and what has come by since: whether anything was passed over, and
which negations it fits. Events fit steps or don't, one bit each. So what an event does is a function of state
and bits alone, and it is worked out once for every pair that occurs. States and bits are whole numbers, which
are quick to look up and stay what they are from one run of a job to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_COUNT, _STEP = 32, 8  # bits of a state for the count and for the step; what came by stands above them
MOST_STEPS = 60  # with a bit for each in a number of 64
_PASSED = 1  # something was passed over


@dataclass(frozen=True, slots=True)
class StepRule:
    """How many events a step takes and where they may stand. ``negated``: none, and that is the point."""

    name: str
    least: int = 1
    most: int | None = 1
    optional: bool = False
    negated: bool = False
    directly: bool = False
    consecutive: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """What an event does to a partial match: the states it goes on in, each with the step that took the
    event, in order of preference; if none takes it, the state it stays in (None: it has failed)."""

    taken: tuple[tuple[int, int], ...]
    stays: int | None


@dataclass(frozen=True, slots=True)
class _Way:
    """From one step to another, or to the end: the signs of what must not have come by."""

    to: int
    barred_by: int


class Automaton:
    """The states of a pattern. ``START`` is the one before any event."""

    START = 0

    def __init__(self, steps: Sequence[StepRule]) -> None:
        self.steps = tuple(steps)
        self._signs: dict[int, int] = {}  # of each negation, the bit that says that an event fits it
        for number, step in enumerate(self.steps):
            if step.negated:
                self._signs[number] = _PASSED << 1 + len(self._signs)
        self._ways = [self._ways_from(number) for number in range(-1, len(self.steps))]
        self._ends = [self._end_of(number) for number in range(-1, len(self.steps))]
        self._moves: dict[int, dict[int, Move | None]] = {}
        self.ends_by_time = self.steps[-1].negated
        self.takes_notice = any(step.directly or step.consecutive for step in self.steps)

    # ---- the table ----------------------------------------------------------------------------------

    def moves(self, bits: int) -> dict[int, Move | None]:
        """What events with these bits do, by state, as far as it was asked for; see ``move``."""
        found = self._moves.get(bits)
        if found is None:
            found = self._moves[bits] = {}
        return found

    def move(self, state: int, bits: int) -> Move | None:
        """What an event with these bits does in a state; None if that is nothing."""
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
        """Whether a match that has just come to this state is one."""
        return not self.ends_by_time and self._may_end(state)

    def complete_by_time(self, state: int) -> bool:
        """Whether a partial match in this state is one now that its time is over."""
        return self.ends_by_time and self._may_end(state)

    def goes_on(self, state: int) -> bool:
        """Whether any event could be taken in this state."""
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

    def _move(self, state: int, bits: int) -> Move:
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
            return Move(tuple(taken), None)
        return Move((), self._passed_by(number, count, signs, bits))

    def _passed_by(self, number: int, count: int, signs: int, bits: int) -> int | None:
        """The state after an event that was not taken."""
        signs |= _PASSED
        for negation, sign in self._signs.items():
            if bits >> negation & 1:
                signs |= sign
        # Only what can matter later, or the same state would go by several numbers.
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
        """To the next step, and past optional ones to those behind them."""
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
        """What bars the way from a step to the end; None if there is none, because another step must come."""
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
