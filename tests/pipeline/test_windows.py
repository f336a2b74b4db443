"""Windows on the real engine: the kernel's and Spark's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream import Broker, Topology, aggregate
from millstream.pipeline.run.job import Job
from tests.support.jobs import produce, records

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = "card string NOT NULL, amount double, paid_at timestamp"
Run = Callable[..., tuple[Job, list[Any]]]


def payment(card: str, amount: float, seconds: float) -> bytes:
    at = (NOON + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"card": card, "amount": amount, "paid_at": at}).encode()


def found(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value()) for record in records(broker, topic)]


def test_sparks_windows_and_the_kernels_agree(run: Run, millstream_broker: Broker) -> None:
    """All aggregates that both have, on data in order."""
    aggregates = {
        "n": "count(*)",
        "spent": "sum(amount)",
        "mean": "round(avg(amount), 6)",
        "least": "min(amount)",
        "most": "max(amount)",
        "spread": "round(stddev(amount), 6)",
        "kinds": "approx_count_distinct(CAST(amount AS int))",
        "large": "count_if(amount > 3) + sum(CAST(amount AS decimal(10,2))) FILTER (WHERE amount > 2)",
    }
    produce(millstream_broker, [payment("ab"[n % 2], n % 7, 3.5 * n + 15 * (n // 6)) for n in range(30)])
    for engine in ("native", "kernel"):
        flow = Topology(engine, buckets=2)
        payments = flow.source("payments", schema=SCHEMA, time="paid_at")
        hops = payments.window(by="card", size="20 s", every="10 s", emit="final", engine=engine)
        hops.agg(**aggregates).to_topic(f"{engine}.hops")
        sessions = payments.window(by="upper(card) AS name", gap="7 s", engine=engine)
        sessions.agg(**aggregates).to_topic(f"{engine}.sessions")
        run(flow, engine)
    for kind in ("hops", "sessions"):
        native, kernel = (
            sorted(json.dumps(row, sort_keys=True) for row in found(millstream_broker, f"{engine}.{kind}"))
            for engine in ("native", "kernel")
        )
        assert len(native) > 4
        assert kernel == native


def test_what_depends_on_the_order_of_rows_goes_by_time(run: Run, millstream_broker: Broker) -> None:
    flow = Topology("ordered", buckets=2)
    payments = flow.source("payments", schema=SCHEMA, time="paid_at", lateness="1 minute")
    payments.window(by="card", size="1 minute").agg(
        first="first(amount)",
        last="last(amount)",
        least_at="min_by(paid_at, amount)",
        amounts="collect_list(amount)",
        kinds="collect_set(amount)",
    ).to_topic("ordered", key="card")
    given = [(3, 30), (1, 10), (4, 40), (1, 20)]  # not in order, and none is late
    produce(millstream_broker, [payment("a", amount, second) for amount, second in given])
    run(flow)
    last = found(millstream_broker, "ordered")[-1]
    assert (last["first"], last["last"]) == (1.0, 4.0)
    assert last["least_at"] == "2026-01-01T12:00:10.000000Z"
    assert (last["amounts"], last["kinds"]) == ([1.0, 1.0, 3.0, 4.0], [1.0, 3.0, 4.0])


@aggregate("amount", returns="double")
def median(amounts: list[float]) -> float:
    return sorted(amounts)[len(amounts) // 2]


def test_windows_of_the_kernel_with_their_channels(run: Run, millstream_broker: Broker) -> None:
    flow = Topology("windows", buckets=2)
    payments = flow.source("payments", schema=SCHEMA, time="paid_at", lateness="5 s", ahead="3650 days")
    payments.late.to_topic("late")
    minutes = payments.window(by="card", size="1 minute", emit="final", name="minutes").agg(
        n="count(*)", half="sum(amount) / 2", median=median
    )
    minutes.to_topic("minutes")
    hours = minutes.window(by="card", size="1 hour", emit="final", name="hours").agg(most="max(n)")
    hours.to_topic("hours")
    moving = payments.window(by="card", size="10 s", every="event", name="moving").agg(n="count(*)")
    moving.where("n > 1").to_topic("moving")
    opened = payments.window(
        by="card", opens="amount = 0", timeout="30 s", timeout_from="first", name="visits"
    )
    visits = opened.agg(n="count(*)")
    visits.to_topic("visits")
    visits.outside.to_topic("outside")
    given = [(1, 1), (0, 50), (7, 55), (5, 130), (9, 20), (2, 7300), (1, 7300)]
    produce(millstream_broker, [payment("a", amount, second) for amount, second in given])
    run(flow)

    def rows(topic: str, *names: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[name] for name in names) for row in found(millstream_broker, topic))

    assert rows("minutes", "window_start", "n", "half", "median") == [
        ("2026-01-01T12:00:00.000000Z", 3, 4.0, 1.0),
        ("2026-01-01T12:02:00.000000Z", 1, 2.5, 5.0),
    ]
    assert rows("hours", "window_start", "most") == [("2026-01-01T12:00:00.000000Z", 3)]
    assert rows("moving", "window_end", "n") == [("2026-01-01T12:00:55.000000Z", 2)]
    assert rows("visits", "window_start", "window_end", "n") == [
        ("2026-01-01T12:00:50.000000Z", "2026-01-01T12:01:20.000000Z", 2)
    ]
    assert rows("outside", "amount") == [(1.0,), (5.0,)]
    late = rows("late", "operator", "amount", "late_ms")
    assert [row for row in late if row[0] == "minutes"] == [("minutes", 9.0, 65_000)]
    assert {row[0] for row in late} == {"minutes", "moving", "visits"}
