"""Prices of several instruments, with planted moves that a rule should or should not trade on.

There are four stocks, each with shares of class A and B. Prices move at random, nearly in step for both
classes of a stock. The generator plants moves, one at a time in a stock, and records them separately:

    apart      one class rises or falls by 3.5 % within twenty seconds, the other does not
    rebound    both fall by 6 %, and come back by 5 %
    rally      both rise by 4 %: no order
    slump      both fall by 6 % and stay there: no order

The same seed, start and length give the same events.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from millstream.examples.example import BEGINNING_MS, Event, iso
from millstream.examples.feed import main

TICKS = "ticks"
STOCKS = ("DELTA", "LUMEN", "NORD", "VELA")
_EVERY_MS = 2000  # between two ticks of an instrument
_REST_MS = 105_000  # how long a stock is left alone after a move
_LONG_MS = 45_000

# The relative change of a price after so many seconds, with straight lines between the points.
_COURSES = {
    "apart": ((0, 0.0), (20, 0.035)),
    "rebound": ((0, 0.0), (20, -0.06), (40, -0.01)),
    "rally": ((0, 0.0), (30, 0.04)),
    "slump": ((0, 0.0), (20, -0.06)),
}
KINDS = tuple(_COURSES)


@dataclass(frozen=True, slots=True)
class Move:
    """A planted move. For ``apart``, ``moved`` is the instrument that moves, and ``up`` says if it rises."""

    stock: str
    kind: str
    start_ms: int
    end_ms: int
    moved: str = ""
    up: bool = True

    def drift(self, instrument: str, at_ms: float) -> float:
        """How much the move has changed a price by a given time."""
        if self.kind == "apart" and instrument != self.moved:
            return 0.0
        seconds = max(0.0, (at_ms - self.start_ms) / 1000)
        course = _COURSES[self.kind]
        for (before, low), (after, high) in pairwise(course):
            if seconds <= after:
                part = low + (high - low) * (seconds - before) / (after - before)
                return part if self.up else -part
        return course[-1][1] if self.up else -course[-1][1]


@dataclass(slots=True)
class Generator:
    """Events from ``start_ms`` on, for ``seconds`` or without end. ``planted`` grows along with them."""

    seed: int = 7
    start_ms: int = BEGINNING_MS
    seconds: float | None = None
    plant_every: float = 25.0  # seconds between two moves, on average
    planted: list[Move] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """The events, in the order of their times."""
        rng = random.Random(self.seed)
        end = math.inf if self.seconds is None else self.start_ms + self.seconds * 1000
        levels = {f"{stock}-{which}": rng.uniform(20, 200) for stock in STOCKS for which in "AB"}
        now: dict[str, Move] = {}  # the current move of a stock
        next_plant = self.start_ms + rng.uniform(10_000, 30_000)
        at_ms = self.start_ms
        while at_ms < end:
            if next_plant <= at_ms:
                if at_ms + _LONG_MS + 20_000 < end:  # plus the time that results wait for stragglers
                    self._plant(rng, at_ms, now)
                next_plant += rng.uniform(0.5, 1.5) * self.plant_every * 1000
            for stock in STOCKS:
                yield from self._ticks(rng, at_ms, stock, levels, now)
            at_ms += _EVERY_MS

    def _ticks(
        self, rng: random.Random, at_ms: int, stock: str, levels: dict[str, float], now: dict[str, Move]
    ) -> Iterator[Event]:
        both = rng.gauss(0, 0.0003)
        move = now.get(stock)
        if move is not None and at_ms >= move.end_ms + _REST_MS:  # its effect stays
            for which in "AB":
                levels[f"{stock}-{which}"] *= 1 + move.drift(f"{stock}-{which}", at_ms)
            del now[stock]
            move = None
        for place, which in enumerate("AB"):
            instrument = f"{stock}-{which}"
            levels[instrument] *= 1 + both + rng.gauss(0, 0.0001)
            drift = 0.0 if move is None else move.drift(instrument, at_ms)
            traded = at_ms + 200 * STOCKS.index(stock) + 100 * place
            yield self._tick(traded, instrument, levels[instrument] * (1 + drift))

    def _plant(self, rng: random.Random, at_ms: int, now: dict[str, Move]) -> None:
        free = [stock for stock in STOCKS if stock not in now]
        if free:
            stock, kind = rng.choice(free), KINDS[len(self.planted) % len(KINDS)]
            moved, up = "", True
            if kind == "apart":
                moved, up = f"{stock}-{rng.choice('AB')}", rng.random() < 0.5
            now[stock] = Move(stock, kind, at_ms, at_ms + _LONG_MS, moved, up)
            self.planted.append(now[stock])

    def _tick(self, at_ms: int, instrument: str, price: float) -> Event:
        tick = {"instrument": instrument, "price": round(price, 3), "traded_at": iso(at_ms)}
        return Event(at_ms, TICKS, instrument, json.dumps(tick).encode())


if __name__ == "__main__":
    main(Generator)
