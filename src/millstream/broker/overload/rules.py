"""Backpressure's rules: which Produce requests are held, and for how long. A state machine without I/O.

Rules
-----
1. Time comes in as ``now`` (monotonic seconds), and nothing is sent from here.
2. A held request comes with a *token*, which is opaque here. It is released exactly once: because there is
   room again, because its time is up, or because its client is gone.
3. Requests that wait for the same backlog are released in the order they came.
4. No request waits past its deadline. A client's requests that wait *in a row* wait no longer than that in
   total.
5. If no group is waited for, no request is held.

Theory
------
A pipe blocks its writer when it is full. Here the pipe is a partition. It is full while the slowest of the
groups that count is further behind than ``LagLimits`` allow. A request that finds the partition full still
has its records appended: they are in the log, where they need no memory. Its response is held, and its
connection is not read from. So a producer gets one request further than it should. Its next requests wait
in the network, and finally in the producer itself, where the application notices.

Groups commit offsets now and then. So the offset of the slowest one (``ConsumerBacklog.slowest``) is looked
up after a commit and by the clock. What producers append in between is counted.

The records of a transaction can't be read before it is committed. If they counted, a producer would wait
for readers that wait for its commit. So for a transactional request only *stable* records count: those of
earlier transactions, not its own.

A client measures a request's time from when it sent it, and may have sent several. While one is held, the
others wait behind it and their time runs too. So ``patience`` counts from when the connection began to
wait, until there is nothing more to be read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

Token = TypeVar("Token", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)  # of a backlog

TOLD_AT_MOST_MS = 100  # for both, see told_ms()
TOLD_IF_STILL_FULL_MS = 1000


class LagLimits(NamedTuple):
    """How far behind a group may be; -1 means no limit."""

    records: int
    bytes: int

    def are_passed(self, records: int, size: int) -> bool:
        return 0 <= self.records < records or 0 <= self.bytes < size


class ConsumerBacklog:
    """How far the slowest group is behind in one partition, as last looked up."""

    __slots__ = ("_behind_bytes", "_stable_bytes", "_taken", "limits", "slowest")

    def __init__(self, limits: LagLimits) -> None:
        self.limits = limits
        self.slowest: int | None = None  # the offset it has committed; None: no group is waited for
        self._behind_bytes = self._stable_bytes = 0
        self._taken = 0  # bytes appended since those were looked up

    def seen(self, slowest: int | None, *, behind_bytes: int = 0, stable_bytes: int = 0) -> None:
        """Note the result of a lookup: the slowest group's offset, and the bytes from there to the end of
        the log and to the last stable offset."""
        self.slowest = slowest
        self._behind_bytes, self._stable_bytes, self._taken = behind_bytes, stable_bytes, 0

    def took(self, size: int) -> None:
        """Count ``size`` appended bytes."""
        self._taken += size

    def is_over(self, end_offset: int) -> bool:
        """True if the slowest group is too far behind the end of the log."""
        if self.slowest is None:
            return False
        return self.limits.are_passed(end_offset - self.slowest, self._behind_bytes + self._taken)

    def is_stable_over(self, stable_offset: int) -> bool:
        """True if the slowest group is too far behind the last stable offset: records that an open
        transaction holds back don't count."""
        if self.slowest is None:
            return False
        return self.limits.are_passed(stable_offset - self.slowest, self._stable_bytes)


def patience(since: float | None, now: float, *, drained: bool, most: float) -> tuple[float, float]:
    """When a connection began to wait, and until when its next request may be held. ``drained``: nothing
    more is to be read from it, so whatever comes next is sent after ``now``."""
    begun = now if since is None or drained else since
    return begun, begun + most


def told_ms(held: float, *, still_full: bool) -> int:
    """The throttle time for a response that was held for ``held`` seconds.

    Clients show it, and newer clients send nothing for that long. So it is not the time held, which would
    double the wait. But if the time was up while the partition is still full, it is of no use for the
    client to come back at once.
    """
    if still_full:
        return TOLD_IF_STILL_FULL_MS
    return max(1, min(round(held * 1000), TOLD_AT_MOST_MS))


class _Held(NamedTuple, Generic[Key]):
    backlogs: frozenset[Key]
    since: float
    deadline: float


class Release(NamedTuple, Generic[Token, Key]):
    """One token that is released."""

    token: Token
    backlogs: frozenset[Key]
    held: float  # seconds
    still_full: bool  # released only because its time was up


class Holding(Generic[Token, Key]):
    """All held requests, in the order they came."""

    def __init__(self) -> None:
        self._held: dict[Token, _Held[Key]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def count(self, backlog: Key) -> int:
        """How many requests wait for a backlog to shrink."""
        return sum(backlog in held.backlogs for held in self._held.values())

    def hold(self, token: Token, backlogs: frozenset[Key], now: float, deadline: float) -> None:
        """Hold a request until there is room in all of the backlogs."""
        if token in self._held:
            raise AssertionError(f"{token} is held already")
        self._held[token] = _Held(backlogs, now, deadline)

    def forget(self, token: Token) -> None:
        """Drop a request whose client is gone. A second call does nothing."""
        self._held.pop(token, None)

    def release(self, now: float, is_full: Callable[[Key], bool]) -> Iterator[Release[Token, Key]]:
        """Release the requests whose wait is over, oldest first. Releasing one request can fill a backlog
        again, so fullness is checked again before each release. A request that is held again in the meantime
        is not looked at until the next call."""
        for token, held in list(self._held.items()):
            if self._held.get(token) is not held:
                continue
            still_full = any(map(is_full, held.backlogs))
            if not still_full or now >= held.deadline:
                del self._held[token]
                yield Release(token, held.backlogs, max(0.0, now - held.since), still_full)
