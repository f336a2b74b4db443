"""Compare what was found with what was planted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.examples.example import Results, Score, milliseconds
from millstream.examples.fraud.generate import KINDS, Fraud


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of the pipeline: the card, the rule, and the payment that triggered it."""

    card: str
    rule: str
    last_paid_ms: int


def check(planted: Sequence[Fraud], results: Results) -> list[Score]:
    """A score for every kind."""
    alerts = [
        Alert(row["card"], row["rule"], milliseconds(row["last_paid"])) for row in results.get("alerts", ())
    ]
    until_ms = max((fraud.end_ms for fraud in planted), default=0)
    return judge(planted, alerts, until_ms)[:-1]


def judge(planted: Iterable[Fraud], alerts: Iterable[Alert], until_ms: int) -> list[Score]:
    """A score for each kind, and one for all. A fraud is found if any rule raised an alert for its card.
    A fraud that was still in progress at ``until_ms`` doesn't count."""
    frauds = {fraud.card: fraud for fraud in planted}
    cards: dict[str, set[str]] = {}  # by rule
    caught: set[str] = set()
    for alert in alerts:
        cards.setdefault(alert.rule, set()).add(alert.card)
        fraud = frauds.get(alert.card)
        if fraud is not None and alert.last_paid_ms >= fraud.start_ms:
            caught.add(alert.card)
    over = [fraud for fraud in frauds.values() if fraud.end_ms <= until_ms]
    scores = [
        Score(
            kind,
            sum(fraud.kind == kind for fraud in over),
            sum(fraud.kind == kind and fraud.card in caught for fraud in over),
            len(cards.get(kind, ())),
            len(cards.get(kind, set()) & caught),
        )
        for kind in KINDS
    ]
    flagged = set().union(*cards.values())
    total = Score("all", len(over), sum(f.card in caught for f in over), len(flagged), len(flagged & caught))
    return [*scores, total]
