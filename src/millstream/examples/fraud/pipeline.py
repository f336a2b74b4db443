"""Fraud in card payments: four rules, alerts while they matter, and a table of blocked cards.

millstream graph src/millstream/examples/fraud/pipeline.py
millstream run   src/millstream/examples/fraud/pipeline.py --broker 127.0.0.1:9092
"""

from millstream import Topology

flow = Topology("fraud", guarantee="exactly-once")

payments = flow.source(
    "payments",
    schema="id string NOT NULL, card string NOT NULL, amount double NOT NULL, currency string,"
    " country string, merchant string, paid_at timestamp",
    time="paid_at",
    lateness="2 minutes",
)


@payments.operator
def priced(df):
    """Every amount in euros"""
    euros = "CASE currency WHEN 'USD' THEN 0.92 WHEN 'GBP' THEN 1.17 WHEN 'CHF' THEN 1.04 ELSE 1 END"
    return df.selectExpr("*", f"amount * {euros} AS eur")


# Thieves use a stolen card many times, quickly.
burst = (
    priced.window(by="card", size="1 minute", every="30 seconds")
    .agg(payments="count(*)", spent="sum(eur)", last_paid="max(paid_at)")
    .where("payments >= 7")
)

# Thieves test a card with small amounts before a large one.
card_testing = (
    priced.window(by="card", size="4 minutes", every="2 minutes")
    .agg(
        payments="count(*)",
        spent="sum(eur)",
        last_paid="max(paid_at)",
        small="count_if(eur < 2)",
        large_after="max(if(eur > 300, paid_at, NULL))",
        first_small="min(if(eur < 2, paid_at, NULL))",
    )
    .where("small >= 3 AND large_after > first_small")
    .select("card", "window_start", "window_end", "payments", "spent", "last_paid", "time_basis")
)

# Nobody pays in shops in two countries within minutes.
two_countries = (
    priced.where("merchant != 'online'")
    .window(by="card", size="4 minutes", every="2 minutes")
    .agg(
        payments="count(*)",
        spent="sum(eur)",
        last_paid="max(paid_at)",
        one="min(country)",
        other="max(country)",
    )
    .where("one != other")
)

# One payment far above what the card usually pays.
unusual_amount = (
    priced.window(by="card", size="12 hours", every="6 hours")
    .agg(payments="count(*)", spent="sum(eur)", last_paid="max(paid_at)", last_eur="max_by(eur, paid_at)")
    .where("payments >= 6 AND last_eur > 200 AND last_eur > 12 * (spent - last_eur) / (payments - 1)")
)

alerts = flow.union(burst, card_testing, two_countries, unusual_amount, tag="rule")

alerts.to_topic("alerts", key="card")
alerts.select("card", "rule", "last_paid AS blocked_at", "payments", "spent").to_view(
    "blocked_cards", key="card", order="blocked_at"
)
payments.rejected.to_topic("payments.rejected")
