"""Alternating rounds: the same measurement on each server in turn, and the medians side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.servers import Server, settle

Measurement = Callable[[Server], dict[str, float]]


@dataclass
class Figure:
    """One row of the table. ``ratio`` is ours over theirs; ``target`` bounds it from the better side."""

    part: str
    what: str
    unit: str
    ours: float
    theirs: float | None
    higher_is_better: bool
    target: str = ""
    met: bool | None = None
    rounds: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True)
class Wanted:
    """What to make of one key of a measurement. ``at_least`` and ``at_most`` bound the ratio ours/theirs."""

    key: str
    what: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def higher_is_better(self) -> bool:
        return self.at_least is not None or (self.at_most is None and "/s" in self.unit)

    def figure(self, part: str, rounds: dict[str, list[float]]) -> Figure:
        ours, *others = (statistics.median(values) for values in rounds.values())
        theirs = others[0] if others else None
        ratio = ours / theirs if theirs else None
        target, met = "", None
        if self.at_least is not None:
            target, met = f"≥ {self.at_least:g}x", ratio is not None and ratio >= self.at_least
        elif self.at_most is not None:
            target, met = f"≤ {self.at_most:g}x", ratio is not None and ratio <= self.at_most
        return Figure(part, self.what, self.unit, ours, theirs, self.higher_is_better, target, met, rounds)


def alternate(
    part: str, servers: Sequence[Server], measure: Measurement, wanted: Sequence[Wanted], rounds: int
) -> Iterator[Figure]:
    """Measure each server ``rounds`` times, the order turned round every time; a figure per wanted key."""
    seen: dict[str, dict[str, list[float]]] = {w.key: {s.name: [] for s in servers} for w in wanted}
    for number in range(rounds):
        for server in servers if number % 2 == 0 else list(reversed(servers)):
            settle(server)
            result = measure(server)
            for w in wanted:
                seen[w.key][server.name].append(result[w.key])
    for w in wanted:
        yield w.figure(part, seen[w.key])
