"""Card payments with planted fraud, and the pipeline that finds it; ``millstream demo`` shows it as well."""

from __future__ import annotations

from millstream.examples.shape import Example

EXAMPLE = Example(
    name="fraud",
    title="fraud in card payments: alerts while they matter, a table of blocked cards",
    about="""Eight thousand cards pay as people do, each by its habits. On some of them fraud is planted: a
    burst of payments, tiny amounts before a large one, shops of two countries within minutes, an amount far
    above the card's habit. Four rules over windows of a card's payments find it; alerts are events of a
    topic, and the cards to block are a view. Records that do not parse go to a topic of their own.""",
    operators=("operator", "hopping window", "where", "union with tag", "rejected", "view"),
    results={"alerts": ("last_paid", "card", "rule", "payments", "spent")},
    view="blocked_cards",
    change={
        "pipeline.py": "the columns of `payments`, then the rules, each a window with a condition",
        "generate.py": "_payment, which makes one event, and the four kinds of fraud below it",
        "check.py": "what makes an alert the right one for a planted fraud",
    },
    seconds=40.0,
    # Rules of thumb: a card whose habits are not known yet is missed, and a rare habit is taken for fraud.
    recall=0.9,
    precision=0.8,
)
