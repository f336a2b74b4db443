"""Compare the price rises with the planted surges and shortages."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.examples.example import Results, Score, milliseconds
from millstream.examples.pricing.generate import KINDS, Move

SURGE = 2.0  # a price counts as raised at this factor or more
CALM = 1.5  # and must fall back to this before it can rise again


def check(planted: Sequence[Move], results: Results) -> list[Score]:
    """A score for every kind. A move is found if it raised the price of its area before it was over. A rise
    that nothing planted explains counts against the first kind."""
    rises = raised(results)
    causes = [
        next((move for move in planted if area == move.area and move.start_ms <= at <= move.end_ms), None)
        for area, at in rises
    ]
    unexplained = causes.count(None)
    scores = []
    for kind in KINDS:
        found = {move for move in causes if move is not None and move.kind == kind}
        right = sum(move is not None and move.kind == kind for move in causes)
        given = right + (unexplained if kind == KINDS[0] else 0)
        scores.append(Score(kind, sum(move.kind == kind for move in planted), len(found), given, right))
    return scores


def raised(results: Results) -> list[tuple[str, int]]:
    """The area and the time of each rise to ``SURGE``."""
    rises = []
    up: set[str] = set()
    for price in results.get("prices", ()):
        area, factor = str(price["area"]), float(price["factor"])
        if factor >= SURGE and area not in up:
            rises.append((area, milliseconds(price["since"])))
            up.add(area)
        elif factor <= CALM:
            up.discard(area)
    return rises
