"""Starting the queries of a job on a machine that may be slow: a few at a time, again where Spark was too
impatient, and with a word about what is waited for.

Every source of a query is a Python process. Six queries that start at once are six such processes, and on a
busy machine none of them gets enough of it. So no more are started at once than there are cores.

A processor has such a process as well, which Spark starts with the query's first batch: maybe days after the
query itself. Until then a query that fails for want of time is started again, since nothing of it has run.

The first is started alone. Spark keeps the environment of these processes in one map for all sources of a
session, and every source adds its entries when it starts, without a lock
(``PythonStreamingSourceRunner.init``). Two at once can leave the map with another size than it has entries;
after that every task is "not serializable", for as long as the JVM lives. Later sources only replace entries.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

ATTEMPTS = 5
_SLOW_S = 15.0  # after which it is said what is waited for; then after twice that, and so on
_LOOK_EVERY_S = 0.02
_STAY_EVERY_S = 0.1
# Spark's words for a Python process that it did not wait for long enough.
TOO_SLOW = re.compile(r"worker failed to connect back|waiting for the Python worker to connect back", re.I)


class Started(Protocol):
    """What is asked of Spark's queries."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    @property
    def status(self) -> Any: ...

    def exception(self) -> Any: ...


class Starting:
    """The queries of one job. ``begun`` says whether a query has come to deliver a batch. ``clock`` and
    ``sleep`` are those of tests, if given."""

    def __init__(
        self,
        starters: Mapping[str, Callable[[], Started]],
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
        self._stopping = stopping
        self._at_once = at_once or max(2, os.cpu_count() or 1)
        self._clock = clock
        self._sleep = sleep
        self.attempts = dict.fromkeys(starters, 0)
        self._stays = True
        self._since: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self.queries: dict[str, Any] = {}

    def run(self) -> None:
        """Until every query has its sources, or has failed for good: why, it says itself."""
        for name in self._starters:
            while not self._stopping() and not self._has_room():
                self._sleep(_LOOK_EVERY_S)
            if self._stopping():
                return
            self._start(name)
        while not self._stopping() and self._waiting():
            self._sleep(_LOOK_EVERY_S)

    def stay(self) -> None:
        """After ``run``, until every query has begun its first batch or has failed for good."""
        try:
            while not self._stopping() and any(
                not self._begun(name) and (query.isActive or self.comes_back(name))
                for name, query in list(self.queries.items())
            ):
                self._waiting()
                self._sleep(_STAY_EVERY_S)
        finally:
            self._stays = False

    def comes_back(self, name: str) -> bool:
        """Whether a query that has ended is about to be started again."""
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
        self.attempts[name] += 1  # last: others ask meanwhile whether the one that failed comes back

    def _waiting(self) -> list[str]:
        """Those that have no sources yet; what failed for want of time is started again."""
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


def busy() -> str:
    """How much this machine has to do."""
    cores = os.cpu_count() or 1
    return f"the load of this machine is {os.getloadavg()[0]:.0f} on {cores} core{'s' * (cores > 1)}"
