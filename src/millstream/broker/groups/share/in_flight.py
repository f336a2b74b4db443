"""A run of records of a share partition, with the state of each.

Most runs are acknowledged as they were given out: whole. So a run has one state, and only the first
acknowledgement of a part of it makes ``marks``, a byte for each record. Everything else is the same for all
records of a run: how often they were delivered, who holds those that are acquired, and until when.
"""

from __future__ import annotations

import math

# The states of a record. Whether it was accepted or given up is counted when it happens, and not kept: the
# protocol never asks.
AVAILABLE, ACQUIRED, FINISHED = range(3)
MIXED = 0xFF  # of a run: look at its marks

NEVER = math.inf


class InFlight:
    """See the module's description. ``last`` is inclusive."""

    __slots__ = ("count", "deadline", "first", "last", "marks", "owner", "size", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: int,
        count: int = 0,
        *,
        owner: str = "",
        deadline: float = NEVER,
        marks: bytearray | None = None,
        size: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count  # deliveries
        self.owner = owner  # the member that holds the acquired records
        self.deadline = deadline  # when their lock runs out
        self.marks = marks  # only where the state is MIXED
        self.size = size or last - first + 1  # as it was first given out; parts of it keep that

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        state = self.state if self.marks is None else self.marks.hex()
        return f"InFlight({self.first}-{self.last} {state} x{self.count} {self.owner})"

    @property
    def unfinished(self) -> int:
        """The number of records that are available or acquired."""
        if self.marks is None:
            return 0 if self.state == FINISHED else len(self)
        return len(self.marks) - self.marks.count(FINISHED)

    def count_of(self, state: int) -> int:
        if self.marks is None:
            return len(self) if self.state == state else 0
        return self.marks.count(state)

    def first_available(self) -> int:
        """The offset of the first available record; -1 if there is none."""
        if self.marks is None:
            return self.first if self.state == AVAILABLE else -1
        found = self.marks.find(AVAILABLE)
        return -1 if found < 0 else self.first + found

    def is_held_by(self, member: str, first: int, last: int) -> bool:
        """True if all of these records are acquired by this member."""
        if self.owner != member:
            return False
        if self.marks is None:
            return self.state == ACQUIRED
        return self.marks.count(ACQUIRED, first - self.first, last + 1 - self.first) == last - first + 1

    def mark(self, first: int, last: int, states: bytes) -> None:
        """Set the state of these records: one for all, or one for each."""
        if first == self.first and last == self.last and len(states) == 1:
            self.state, self.marks = states[0], None
        else:
            if self.marks is None:
                self.marks = bytearray((self.state,)) * len(self)
                self.state = MIXED
            count = last - first + 1
            self.marks[first - self.first : last + 1 - self.first] = (
                states * count if len(states) == 1 else states
            )
            self.unify()
        self._let_go()

    def unify(self) -> None:
        """Drop the marks if they are all the same."""
        if self.marks is not None and self.marks.count(self.marks[0]) == len(self.marks):
            self.state, self.marks = self.marks[0], None

    def _let_go(self) -> None:
        if not self.count_of(ACQUIRED):
            self.owner, self.deadline = "", NEVER

    def trim(self, count: int) -> None:
        """Drop the first records, which are finished."""
        assert self.marks is not None
        del self.marks[:count]
        self.first += count
        self.unify()

    def cut(self, offset: int) -> InFlight:
        """Cut off the records from ``offset`` on, and return them as a run of their own."""
        rest = InFlight(
            offset,
            self.last,
            self.state,
            self.count,
            owner=self.owner,
            deadline=self.deadline,
            size=self.size,
        )
        if self.marks is not None:
            rest.marks = self.marks[offset - self.first :]
            del self.marks[offset - self.first :]
        self.last = offset - 1
        for part in (self, rest):
            part.unify()
            part._let_go()
        return rest

    def runs(self) -> list[InFlight]:
        """The same records as runs of one state each."""
        if self.marks is None:
            return [self]
        found = []
        marks, start = self.marks, 0
        while start < len(marks):
            state, stop = marks[start], start + 1
            while stop < len(marks) and marks[stop] == state:
                stop += 1
            held = state == ACQUIRED
            found.append(
                InFlight(
                    self.first + start,
                    self.first + stop - 1,
                    state,
                    self.count,
                    owner=self.owner if held else "",
                    deadline=self.deadline if held else NEVER,
                    size=self.size,
                )
            )
            start = stop
        return found
