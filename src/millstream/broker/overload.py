"""Backpressure: who is held, and for how long. A state machine without I/O.

Rules
-----
1. Time comes in as ``now`` (monotonic seconds); nothing is sent from here.
2. A request that is held comes with a *token*, which means nothing here. It is let go exactly once: because
   there is room again, because its time is up, or because nobody wants its answer any more.
3. Those who wait for the same place are let go in the order they came.
4. Nobody waits past its deadline, and a client's requests never wait for longer *in a row* than that.
5. Where no group is waited for, nobody is held.

Theory
------
A pipe blocks its writer when it is full. Here the pipe is a partition, and it is full while the slowest of
the groups that count has more before it than ``Limits`` allow. The records of a request that finds it full
are taken: they are in the log, where they need no memory. What is held is its answer, and its connection is
not read from: so a producer gets one request further than it should, and its next ones wait in the network
and at last in the producer itself, where the application notices.

Groups commit offsets now and then, so how far the slowest is (``Lag.slowest``) is looked up when one of them
did and by the clock; what producers add meanwhile is counted.

A transaction's records can't be read before it is committed. If they counted, a producer would wait for
readers who wait for its commit. So a transactional request is held for what is *stable* only: for earlier
transactions, not for its own.

A client counts the time of a request from when it sent it, and may have sent several. While one is held the
others wait behind it, so their time runs too: ``patience`` counts from when the connection began to wait,
until there is nothing more to be read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

Token = TypeVar("Token", bound=Hashable)
Place = TypeVar("Place", bound=Hashable)

TOLD_AT_MOST_MS = 100  # see told_ms()
TOLD_IF_STILL_FULL_MS = 1000


class Limits(NamedTuple):
    """How far behind a group may be; -1: any number."""

    records: int
    bytes: int

    def are_passed(self, records: int, size: int) -> bool:
        return 0 <= self.records < records or 0 <= self.bytes < size


class Lag:
    """How far the slowest group is behind in one partition, as far as that is known."""

    __slots__ = ("_behind_bytes", "_stable_bytes", "_taken", "limits", "slowest")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.slowest: int | None = None  # the offset it has committed; None: nobody is waited for
        self._behind_bytes = self._stable_bytes = 0
        self._taken = 0  # bytes since those were looked up

    def seen(self, slowest: int | None, *, behind_bytes: int = 0, stable_bytes: int = 0) -> None:
        """Looked up: where the slowest group is, and how many bytes are from there to the end of the log and
        to what is stable of it."""
        self.slowest = slowest
        self._behind_bytes, self._stable_bytes, self._taken = behind_bytes, stable_bytes, 0

    def took(self, size: int) -> None:
        """So many bytes were appended."""
        self._taken += size

    def is_over(self, end_offset: int) -> bool:
        """Whether the slowest group is too far behind the end of the log."""
        if self.slowest is None:
            return False
        return self.limits.are_passed(end_offset - self.slowest, self._behind_bytes + self._taken)

    def is_stable_over(self, stable_offset: int) -> bool:
        """The same, without what open transactions keep from being read."""
        if self.slowest is None:
            return False
        return self.limits.are_passed(stable_offset - self.slowest, self._stable_bytes)


def patience(since: float | None, now: float, *, drained: bool, most: float) -> tuple[float, float]:
    """Since when a connection has been waiting, and until when its next request may be held. ``drained``: no
    more of it is to be read, so whatever comes next was sent after now."""
    begun = now if since is None or drained else since
    return begun, begun + most


def told_ms(held: float, *, still_full: bool) -> int:
    """The throttle time to put into an answer that was held for so many seconds.

    Clients show it, and newer ones send nothing for that long. So it is not how long it was, which would
    double it; where its time was up, though, there is no use in coming back at once."""
    if still_full:
        return TOLD_IF_STILL_FULL_MS
    return max(1, min(round(held * 1000), TOLD_AT_MOST_MS))


class _Held(NamedTuple, Generic[Place]):
    places: frozenset[Place]
    since: float
    deadline: float


class Release(NamedTuple, Generic[Token, Place]):
    """One token is let go."""

    token: Token
    places: frozenset[Place]
    held: float  # seconds
    still_full: bool  # only its time was up


class Holding(Generic[Token, Place]):
    """All who are held, in the order they came."""

    def __init__(self) -> None:
        self._held: dict[Token, _Held[Place]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def count(self, place: Place) -> int:
        """How many wait for a place."""
        return sum(place in held.places for held in self._held.values())

    def hold(self, token: Token, places: frozenset[Place], now: float, deadline: float) -> None:
        """Hold until there is room in all of the places."""
        if token in self._held:
            raise AssertionError(f"{token} is held already")
        self._held[token] = _Held(places, now, deadline)

    def forget(self, token: Token) -> None:
        """Nobody waits for this one. Called twice, it does nothing."""
        self._held.pop(token, None)

    def release(self, now: float, is_full: Callable[[Place], bool]) -> Iterator[Release[Token, Place]]:
        """Those whose wait is over, the oldest first. Who is let go may fill a place again at once, so that
        is asked for each of them in its turn; who is held anew meanwhile is looked at the next time."""
        for token, held in list(self._held.items()):
            if self._held.get(token) is not held:
                continue
            still_full = any(map(is_full, held.places))
            if not still_full or now >= held.deadline:
                del self._held[token]
                yield Release(token, held.places, max(0.0, now - held.since), still_full)
