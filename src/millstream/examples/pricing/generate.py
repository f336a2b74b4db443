"""Ride requests and reports of free drivers in the areas of a city, with planted surges, from a seed.

Each area has drivers, who report every twenty seconds while they are free, and a proportional number of
riders, who ask at random times. The generator plants two kinds of moves, one at a time in an area, and
records them separately:

    surge      four times as many riders ask: a concert is over
    shortage   five of six drivers have gone elsewhere

The same seed, start and length give the same events.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.examples.example import BEGINNING_MS, Event, iso
from millstream.examples.feed import main

REQUESTS, DRIVERS = "rides.requests", "rides.drivers"
KINDS = ("surge", "shortage")
AREAS = ("airport", "centre", "harbour", "north", "old town", "university")
_DRIVERS = 12  # per area
_REPORT_MS = 20_000
_REQUESTS_A_SECOND = _DRIVERS / 30  # four per driver in two minutes
_LONG_MS = 240_000  # how long a planted move lasts
_REST_MS = 240_000  # how long its area is left alone afterwards: the window has to forget it


@dataclass(frozen=True, slots=True)
class Move:
    """A planted move: an area where the price must rise between ``start_ms`` and ``end_ms``."""

    area: str
    kind: str
    start_ms: int
    end_ms: int


@dataclass(slots=True)
class Generator:
    """Events from ``start_ms`` on, for ``seconds`` or without end. ``planted`` grows along with them."""

    seed: int = 7
    start_ms: int = BEGINNING_MS
    seconds: float | None = None
    plant_every: float = 60.0  # seconds between two moves, on average
    planted: list[Move] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """The events, in the order of their times."""
        rng = random.Random(self.seed)
        end = math.inf if self.seconds is None else self.start_ms + self.seconds * 1000
        now: dict[str, Move] = {}  # the current or last move of an area
        next_plant = self.start_ms + rng.uniform(5_000, 25_000)
        due = self._beginning(rng)
        while due[0][0] < end:
            at, _, area, driver = heapq.heappop(due)
            if next_plant <= at:
                if next_plant + _LONG_MS + 20_000 < end:  # plus the time that results wait for stragglers
                    self._plant(rng, int(next_plant), now)
                next_plant += rng.uniform(0.5, 1.5) * self.plant_every * 1000
            move = now.get(area)
            kind = move.kind if move is not None and move.start_ms <= at < move.end_ms else None
            if driver is None:
                yield self._request(rng, int(at), area)
                rate = _REQUESTS_A_SECOND * (4 if kind == "surge" else 1)
                heapq.heappush(due, (at + rng.expovariate(rate) * 1000, rng.random(), area, None))
            else:
                if kind != "shortage" or driver % 6 == 0:
                    yield self._report(int(at), area, driver)
                heapq.heappush(due, (at + _REPORT_MS + rng.uniform(-500, 500), rng.random(), area, driver))

    def _beginning(self, rng: random.Random) -> list[tuple[float, float, str, int | None]]:
        """The first event of each area: when, and by a rider or by which driver."""
        due: list[tuple[float, float, str, int | None]] = []
        for area in AREAS:
            due.append((self.start_ms + rng.expovariate(_REQUESTS_A_SECOND) * 1000, rng.random(), area, None))
            due += [
                (self.start_ms + rng.uniform(0, _REPORT_MS), rng.random(), area, driver)
                for driver in range(_DRIVERS)
            ]
        heapq.heapify(due)
        return due

    def _plant(self, rng: random.Random, at_ms: int, now: dict[str, Move]) -> None:
        free = [area for area in AREAS if area not in now or now[area].end_ms + _REST_MS < at_ms]
        if free:
            area = rng.choice(free)
            now[area] = Move(area, KINDS[len(self.planted) % len(KINDS)], at_ms, at_ms + _LONG_MS)
            self.planted.append(now[area])

    def _request(self, rng: random.Random, at_ms: int, area: str) -> Event:
        request = {"area": area, "rider": f"r{rng.randrange(100_000):05d}", "at": iso(at_ms)}
        return Event(at_ms, REQUESTS, area, json.dumps(request).encode())

    def _report(self, at_ms: int, area: str, driver: int) -> Event:
        report = {"area": area, "driver": f"{area} {driver}", "at": iso(at_ms)}
        return Event(at_ms, DRIVERS, area, json.dumps(report).encode())


if __name__ == "__main__":
    main(Generator)
