"""What a standby lacks: the one account behind its status, its metrics and its promotion.

A standby that is promoted leads from its last whole cut (``broker.standby.followers``). So it lacks
everything that the leader is known to have beyond that cut, whether it was copied since or not:

- the cut that is being copied, as the leader described it;
- the leader's **last word**: what it has taken since that cut.

What the leader took after its last word is not in the account, and only the leader can know it. The
numbers here are a lower bound unless the leader said that it takes no more.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Place = tuple[bytes, int]  # topic id and partition


class Missing(NamedTuple):
    """Records that the leader is known to have had and this copy lacks."""

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
    """What the leader said about one partition."""

    place: Place
    topic: str
    end: int
    bytes: int  # since the standby was last told about it


class LagAccount:
    """The account of one standby. ``ends``: how far its last whole cut goes."""

    def __init__(self, ends: Mapping[Place, int]) -> None:
        self._ends = dict(ends)
        self._cut: dict[Place, Told] = {}  # from the cut being copied
        self._word: dict[Place, tuple[int, Told]] = {}  # with the cut that it goes beyond
        self._made = self._number = 0  # the catalogue's commits: applied here, and known at the leader
        self._is_new = False  # the cut being copied is its session's first: its commits were never counted

    def begin(self, number: int, told: Iterable[Told], *, first: bool) -> None:
        """A cut is being copied."""
        self._cut = {each.place: each for each in told}
        if first:
            self._word.clear()
            self._number = self._made = number
        self._is_new = first
        self._number = max(self._number, number)

    def heard(self, cut: int, number: int, told: Iterable[Told]) -> None:
        """The leader's last word: what it has beyond ``cut``.

        Last words come on a separate connection, so one may overtake the cut before it. What an earlier
        word said counts until that cut is whole.
        """
        self._word.update((each.place, (cut, each)) for each in told)
        self._number = max(self._number, number)

    def complete(self, cut: int, number: int, ends: Mapping[Place, int]) -> None:
        """The cut is whole. It includes what the leader had beyond an earlier cut."""
        self._ends.update(ends)
        self._cut.clear()
        self._word = {place: word for place, word in self._word.items() if word[0] >= cut}
        self._made, self._is_new = number, False
        self._number = max(self._number, number)

    @property
    def missing(self) -> list[Missing]:
        """The missing records, by topic and partition."""
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
        """Changes of the catalogue that are missing here. At least one while the number is not known."""
        return max(self._number - self._made, 1) if self._is_new else self._number - self._made
