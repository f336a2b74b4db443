"""Compare the lines reported to each user with the lines that the user's queries asked for."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.examples.example import Results, Score, exact
from millstream.examples.search.generate import KINDS, Match


def check(planted: Sequence[Match], results: Results) -> list[Score]:
    """A score for each kind of query. A match is right, once, if its query asked for the line."""
    kinds = {(one.query, one.line): one.kind for one in planted}
    asked = {(one.query, one.who, one.line) for one in planted}
    told = [(row["query"], row["who"], row["line"]) for row in results.get("matches", ())]
    scores = []
    for kind in KINDS:
        planted_of = {one for one in asked if kinds[one[0], one[2]] == kind}
        # A match that nothing planted explains has no kind. It counts with the first.
        told_of = [one for one in told if kinds.get((one[0], one[2]), KINDS[0]) == kind]
        scores.append(exact(kind, planted_of, told_of))
    return scores
