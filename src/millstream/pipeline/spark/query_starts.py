"""Starts a job's queries on a machine that may be slow: a few at a time, and again if Spark gave up.

While it waits, it reports what it is waiting for.

Every source of a query is a Python process. Six queries that start at once are six such processes, and on a
busy machine none of them gets enough CPU. So no more queries are started at once than there are cores (but
at least two).

A processor has such a process as well. Spark starts it with the query's first batch, perhaps days after the
query itself. Until then, a query that fails because such a process was too slow is started again, since
nothing of it has run.

The first query is started alone. Spark keeps the environment of these processes in one map for all sources of
a session, and every source adds its entries when it starts, without a lock
(``PythonStreamingSourceRunner.init``). Two at once can leave the map with a size that differs from its number
of entries. After that, every task is "not serializable" for as long as the JVM lives. Later sources only
replace entries. For the same reason, jobs in one process start their queries one after the other
(``in_turn``).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

ATTEMPTS = 5
_SLOW_S = 15.0  # after this time it says what it is waiting for; then after twice that, and so on
_LOOK_EVERY_S = 0.02
_STAY_EVERY_S = 0.1
# Spark's messages when it did not wait long enough for a Python process.
TOO_SLOW = re.compile(r"worker failed to connect back|waiting for the Python worker to connect back", re.I)


class StartedQuery(Protocol):
    """The part of Spark's queries that is used here."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    @property
    def status(self) -> Any: ...

    def exception(self) -> Any: ...


class QueryStarter:
    """Starts the queries of one job. ``begun`` returns True once a query has begun to deliver a batch. Tests
    pass their own ``clock`` and ``sleep``."""

    def __init__(
        self,
        starters: Mapping[str, Callable[[], StartedQuery]],
        *,
        say: Callable[[str], None],
        begun: Callable[[str], bool] = lambda name: False,
        stopping: Callable[[], bool] = lambda: False,
        at_once: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._starters = starters
        self._say = say
        self._begun = begun
        self.stopping = stopping
        self._at_once = at_once or max(2, os.cpu_count() or 1)
        self._clock = clock
        self._sleep = sleep
        self.attempts = dict.fromkeys(starters, 0)
        self._stays = True
        self._since: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self.queries: dict[str, Any] = {}

    def run(self) -> None:
        """Start the queries and wait until each has its sources, or has failed for good. A failed query's own
        exception says why."""
        for name in self._starters:
            while not self.stopping() and not self._has_room():
                self._sleep(_LOOK_EVERY_S)
            if self.stopping():
                return
            self._start(name)
        while not self.stopping() and self._waiting():
            self._sleep(_LOOK_EVERY_S)

    def stay(self) -> None:
        """After ``run``, wait until every query has begun its first batch or has failed for good."""
        try:
            while not self.stopping() and any(
                not self._begun(name) and (query.isActive or self.comes_back(name))
                for name, query in list(self.queries.items())
            ):
                self._waiting()
                self._sleep(_STAY_EVERY_S)
        finally:
            self._stays = False

    def comes_back(self, name: str) -> bool:
        """True if a query that has ended is about to be started again."""
        query = self.queries[name]
        return (
            self._stays
            and self.attempts[name] < ATTEMPTS
            and not self._begun(name)
            and not query.isActive
            and TOO_SLOW.search(str(query.exception())) is not None
        )

    def _has_room(self) -> bool:
        waiting = len(self._waiting())
        return waiting < (self._at_once if waiting < len(self.queries) else 1)

    def _start(self, name: str) -> None:
        self._since[name] = self._clock()
        self._told[name] = _SLOW_S
        self.queries[name] = self._starters[name]()
        self.attempts[name] += 1  # last, because other threads ask meanwhile whether the query comes back

    def _waiting(self) -> list[str]:
        """The queries that have no sources yet. A query that failed because a process was too slow is started
        again."""
        waiting = []
        for name, query in list(self.queries.items()):
            if query.isActive:
                if str(query.status["message"]).startswith("Initializing"):
                    self._tell(name)
                    waiting.append(name)
            elif self.comes_back(name):
                self._say(
                    f"query {name!r}: a Python process of its own was not up in the 10 s that Spark gives"
                    f" it; {busy()}. It is started again ({self.attempts[name] + 1} of {ATTEMPTS})"
                )
                self._start(name)
                waiting.append(name)
        return waiting

    def _tell(self, name: str) -> None:
        waited = self._clock() - self._since[name]
        if waited >= self._told[name]:
            self._told[name] *= 2
            self._say(
                f"query {name!r} has waited {waited:.0f} s for the Python process of its source; {busy()}"
            )


@contextmanager
def in_turn(stopping: Callable[[], bool]) -> Iterator[None]:
    """Wait until no other job of this process is starting its queries, or until this one is to stop."""
    while not (mine := _TURN.acquire(timeout=_STAY_EVERY_S)) and not stopping():
        pass
    try:
        yield
    finally:
        if mine:
            _TURN.release()


_TURN = threading.Lock()


def busy() -> str:
    """The load of this machine, in words."""
    cores = os.cpu_count() or 1
    return f"the load of this machine is {os.getloadavg()[0]:.0f} on {cores} core{'s' * (cores > 1)}"
