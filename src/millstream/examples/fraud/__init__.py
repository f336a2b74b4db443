"""Card payments with planted fraud, and a pipeline that finds it. ``millstream demo`` runs it too."""

from __future__ import annotations

from millstream.examples.example import Example

EXAMPLE = Example(
    name="fraud",
    title="fraud in card payments: alerts while they matter, a table of blocked cards",
    about="""Eight thousand cards pay, each with its own habits. The generator plants fraud on some of them: a
    burst of payments, tiny amounts before a large one, shops in two countries within minutes, or an amount
    far above the card's habit. Four rules over windows of a card's payments find it. Alerts go to a topic,
    and a view lists the cards to block. Records that do not parse go to a topic of their own.""",
    operators=("operator", "hopping window", "where", "union with tag", "rejected", "view"),
    results={"alerts": ("last_paid", "card", "rule", "payments", "spent")},
    view="blocked_cards",
    change={
        "pipeline.py": "the columns of `payments`, then the rules: each is a window with a condition",
        "generate.py": "_payment, which makes one event, and the four kinds of fraud below it",
        "check.py": "what makes an alert the right one for a planted fraud",
    },
    seconds=40.0,
    # The rules miss a card whose habits are not known yet, and take a rare habit for fraud.
    recall=0.9,
    precision=0.8,
)
