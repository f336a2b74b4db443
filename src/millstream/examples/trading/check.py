"""Compare the orders that the pipeline gave with those that the planted moves must lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millstream.examples.example import Results, Score, milliseconds
from millstream.examples.trading.generate import Move

SIZE, LIMIT = 100, 200  # of an order, and of a position: as in the pipeline
KINDS = ("apart", "rebound", "refused")


class Expected(NamedTuple):
    """An order that must be given, or refused, between two times."""

    kind: str
    instrument: str
    side: str
    start_ms: int
    end_ms: int


def expected(planted: Sequence[Move]) -> list[Expected]:
    """The orders that the moves must lead to, in time order. An order beyond the limit must be refused."""
    positions: dict[str, int] = {}
    found = []
    for move in planted:
        for instrument, side in _orders(move):
            after = positions.get(instrument, 0) + (SIZE if side == "buy" else -SIZE)
            kind = "refused" if abs(after) > LIMIT else move.kind
            if kind != "refused":
                positions[instrument] = after
            found.append(Expected(kind, instrument, side, move.start_ms, move.end_ms))
    return found


def _orders(move: Move) -> list[tuple[str, str]]:
    one, other = f"{move.stock}-A", f"{move.stock}-B"
    if move.kind == "rebound":
        return [(one, "buy"), (other, "buy")]
    if move.kind == "apart":
        still = other if move.moved == one else one
        return [(move.moved, "sell" if move.up else "buy"), (still, "buy" if move.up else "sell")]
    return []


def check(planted: Sequence[Move], results: Results) -> list[Score]:
    """A score for every rule, and for orders to be refused. Each expected order makes one order right: a
    second one is wrong."""
    given = [
        *((str(row["rule"]), row, "ordered_at") for row in results.get("orders", ())),
        *(("refused", row, "at") for row in results.get("orders.refused", ())),
    ]
    open_ = expected(planted)
    wanted = [one.kind for one in open_]
    right: list[str] = []
    for kind, row, time in given:
        at = milliseconds(row[time])
        for one in open_:
            if (kind, row["instrument"], row["side"]) == one[:3] and one.start_ms <= at <= one.end_ms:
                open_.remove(one)
                right.append(kind)
                break
    kinds = [kind for kind, _, _ in given]
    return [
        Score(kind, wanted.count(kind), right.count(kind), kinds.count(kind), right.count(kind))
        for kind in KINDS
    ]
