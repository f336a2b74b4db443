"""Compare who was told of which lines with who had asked for them."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.examples.search.generate import KINDS, Match
from millstream.examples.shape import Results, Score, exact


def check(planted: Sequence[Match], results: Results) -> list[Score]:
    """A score for every kind of query. A match is right, once, if its query asked for the line."""
    kinds = {(one.query, one.line): one.kind for one in planted}
    asked = {(one.query, one.who, one.line) for one in planted}
    told = [(row["query"], row["who"], row["line"]) for row in results.get("matches", ())]
    scores = []
    for kind in KINDS:
        planted_of = {one for one in asked if kinds[one[0], one[2]] == kind}
        # An answer that nothing planted explains has no kind; it counts with the first.
        told_of = [one for one in told if kinds.get((one[0], one[2]), KINDS[0]) == kind]
        scores.append(exact(kind, planted_of, told_of))
    return scores
