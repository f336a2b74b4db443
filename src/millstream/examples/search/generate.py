"""Log lines, and queries that users store, change and delete in the meantime, from a seed.

Lines use a vocabulary in which some words are common and most are rare. They arrive slightly out of order.
Queries ask for one to three words, and often exclude words, name a service, or set a minimum duration. The
generator computes the answers the slow way: every line against every query of its time. The same seed gives
the same lines, queries and answers.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from millstream.examples.example import BEGINNING_MS, Event, iso
from millstream.examples.feed import main

LINES, QUERIES = "lines", "queries"
KINDS = ("words", "words and none", "words and more")
SERVICES = ("checkout", "search", "login", "billing", "mail")
DELAY_MS = 3_000  # the longest time until a line is sent; less than the pipeline's lateness
LINE_MS = 50  # between two lines, on average
CHANGE_MS = 1_000  # between two changes of queries
RARE = 400  # words in the vocabulary that are not common
STORED = 100  # queries at the start, and about as many later on
_TOLD_MS = 20_000  # from a line until the pipeline has reported its matches
_SYLLABLES = (
    "ba",
    "cor",
    "den",
    "fi",
    "gal",
    "ho",
    "jun",
    "kel",
    "lo",
    "mir",
    "nos",
    "pa",
    "qui",
    "ras",
    "tu",
)
_COMMON = ("error", "timeout", "request", "user", "failed", "retry", "slow", "ok", "started", "closed")
_WHO = ("ada", "ben", "cleo", "dan", "eve", "finn")


@dataclass(frozen=True, slots=True)
class Query:
    """A query that a user has stored."""

    id: str
    who: str
    must: tuple[str, ...]
    must_not: tuple[str, ...] = ()
    service: str | None = None
    slower_than: int | None = None

    @property
    def kind(self) -> str:
        if self.service is not None or self.slower_than is not None:
            return "words and more"
        return "words and none" if self.must_not else "words"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a service logged."""

    id: str
    service: str
    ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """A line that a query asked for."""

    kind: str
    query: str
    who: str
    line: str


def meets(line: Line, query: Query) -> bool:
    """True if a query asks for this line. Case and dots do not matter."""
    words = line.text.lower().replace(".", " ").split()
    return (
        all(word.lower() in words for word in query.must)
        and not any(word.lower() in words for word in query.must_not)
        and (query.service is None or line.service == query.service)
        and (query.slower_than is None or line.ms > query.slower_than)
    )


@dataclass(slots=True)
class Generator:
    """Events from ``start_ms`` on. ``planted`` grows as they are taken."""

    seed: int = 7
    start_ms: int = BEGINNING_MS
    seconds: float | None = None
    planted: list[Match] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """The events, in the order in which they are sent."""
        rng = random.Random(self.seed)
        rare = ["".join(rng.choices(_SYLLABLES, k=rng.randrange(2, 5))) for _ in range(RARE)]
        end = None if self.seconds is None else self.start_ms + int(self.seconds * 1000)
        stored: dict[str, Query] = {}
        waiting: list[tuple[int, int, Event]] = []
        now, number, next_change = self.start_ms, 0, self.start_ms
        for _ in range(STORED):
            number += 1
            heapq.heappush(waiting, (now, number, self._store(rng, rare, stored, f"q{number}", now)))
        while end is None or now < end:
            quiet = end is not None and now > end - _TOLD_MS
            now += 1000 if quiet else rng.randrange(1, 2 * LINE_MS)
            while next_change < now:  # a line meets the queries that were stored before it
                number += 1
                event = self._change(rng, rare, stored, f"q{number}", next_change)
                heapq.heappush(waiting, (event.at_ms, number, event))
                next_change += CHANGE_MS
            number += 1
            event = self._log(rng, rare, stored, f"l{number}", now, quiet)
            heapq.heappush(waiting, (event.at_ms, number, event))
            while waiting and waiting[0][0] <= now:
                yield heapq.heappop(waiting)[2]
        while waiting:
            yield heapq.heappop(waiting)[2]

    # ---- lines --------------------------------------------------------------------------------------

    def _log(
        self, rng: random.Random, rare: list[str], stored: dict[str, Query], id: str, now: int, quiet: bool
    ) -> Event:
        """A line, and the queries that ask for it. At the end lines are few, and none matches a query."""
        chosen = rng.sample(_COMMON, rng.randrange(2, 5)) + rng.sample(rare, rng.randrange(3, 8))
        rng.shuffle(chosen)
        text = "still here" if quiet else ". ".join(chosen).capitalize()
        line = Line(id, rng.choice(SERVICES), int(rng.lognormvariate(4.5, 1.0)), text)
        self.planted += [
            Match(query.kind, query.id, query.who, line.id) for query in stored.values() if meets(line, query)
        ]
        value = {"id": id, "service": line.service, "ms": line.ms, "text": text, "logged_at": iso(now)}
        return Event(now + rng.randrange(DELAY_MS), LINES, id, json.dumps(value).encode())

    # ---- queries ------------------------------------------------------------------------------------

    def _change(
        self, rng: random.Random, rare: list[str], stored: dict[str, Query], id: str, now: int
    ) -> Event:
        """A user stores, changes or deletes a query, or stores an empty one, which is refused."""
        what = rng.random()
        if what < 0.05:
            return Event(now, QUERIES, id, json.dumps({"id": id, "who": rng.choice(_WHO)}).encode())
        if what < 0.4:
            return self._store(rng, rare, stored, rng.choice(sorted(stored)), now)
        if what < 0.7 and len(stored) > STORED // 2:
            ended = rng.choice(sorted(stored))
            del stored[ended]
            return Event(now, QUERIES, ended, None)
        return self._store(rng, rare, stored, id, now)

    def _store(
        self, rng: random.Random, rare: list[str], stored: dict[str, Query], id: str, now: int
    ) -> Event:
        query = Query(
            id=id,
            who=rng.choice(_WHO),
            must=(rng.choice(rare).upper(), *rng.sample(_COMMON, rng.randrange(3))),
            must_not=tuple(rng.sample(_COMMON, 1)) if rng.random() < 0.4 else (),
            service=rng.choice(SERVICES) if rng.random() < 0.2 else None,
            slower_than=rng.randrange(50, 200) if rng.random() < 0.2 else None,
        )
        stored[id] = query
        return Event(now, QUERIES, id, json.dumps(asdict(query)).encode())


if __name__ == "__main__":
    main(Generator)
