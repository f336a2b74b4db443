"""What a standby lacks: the one account behind its status, its metrics and its promotion.

A standby that is promoted leads from its last whole cut (``broker.followers``). What it lacks is therefore
everything that the leader is known to have beyond that cut, whether it was copied since or not:

- the cut that is being copied, as the leader told of it;
- the leader's **last word**: what it has taken since that cut.

What the leader took after its last word is not in the account, and nobody but the leader can know it. Numbers
here are a lower bound unless the leader said that it takes no more.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Place = tuple[bytes, int]  # topic id and partition


class Missing(NamedTuple):
    """Records that the leader is known to have had and this copy has not."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int

    @property
    def records(self) -> int:
        return self.end_offset - self.first_offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: offsets {self.first_offset} to {self.end_offset - 1}"


class Told(NamedTuple):
    """What the leader said of one partition."""

    place: Place
    topic: str
    end: int
    bytes: int  # since it was last told of


class LagAccount:
    """Of one standby. ``ends``: how far its last whole cut goes."""

    def __init__(self, ends: Mapping[Place, int]) -> None:
        self._ends = dict(ends)
        self._cut: dict[Place, Told] = {}  # of the cut at hand
        self._word: dict[Place, tuple[int, Told]] = {}  # with the cut that it is beyond
        self._made = self._number = 0  # the catalogue's commits: made here, and known to be made there
        self._is_new = False  # the cut at hand is a session's first: its commits were never counted

    def begin(self, number: int, told: Iterable[Told], *, first: bool) -> None:
        """A cut is being copied."""
        self._cut = {each.place: each for each in told}
        if first:
            self._word.clear()
            self._number = self._made = number
        self._is_new = first
        self._number = max(self._number, number)

    def heard(self, cut: int, number: int, told: Iterable[Told]) -> None:
        """The leader's last word: what it has beyond ``cut``. Words come on a connection of their own, so one
        may overtake the cut before it: what an earlier word said counts until that cut is whole."""
        self._word.update((each.place, (cut, each)) for each in told)
        self._number = max(self._number, number)

    def complete(self, cut: int, number: int, ends: Mapping[Place, int]) -> None:
        """The cut is whole. What the leader had beyond an earlier cut is in it."""
        self._ends.update(ends)
        self._cut.clear()
        self._word = {place: word for place, word in self._word.items() if word[0] >= cut}
        self._made, self._is_new = number, False
        self._number = max(self._number, number)

    @property
    def missing(self) -> list[Missing]:
        """By topic and partition."""
        known: dict[Place, tuple[str, int]] = {}
        for told in self._told():
            _, end = known.get(told.place, ("", 0))
            known[told.place] = (told.topic, max(end, told.end))
        return sorted(
            Missing(topic, place[1], self._ends.get(place, 0), end)
            for place, (topic, end) in known.items()
            if end > self._ends.get(place, 0)
        )

    @property
    def records(self) -> int:
        return sum(each.records for each in self.missing)

    @property
    def bytes(self) -> int:
        return sum(told.bytes for told in self._told()) if self.missing else 0

    def _told(self) -> Iterator[Told]:
        yield from self._cut.values()
        yield from (told for _, told in self._word.values())

    @property
    def commits(self) -> int:
        """Changes of the catalogue that are not here; at least one while it is not known how many."""
        return max(self._number - self._made, 1) if self._is_new else self._number - self._made
