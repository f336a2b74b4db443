"""Windows on the real engine: the kernel's and Spark's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream import Broker, Topology
from millstream.pipeline.job import Job
from tests.support.jobs import produce, records

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = "card string NOT NULL, amount double, paid_at timestamp"
Run = Callable[[Topology], tuple[Job, list[Any]]]


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
        "most": "max_by(amount, paid_at)",
        "spread": "round(stddev(amount), 6)",
        "kinds": "count(DISTINCT CAST(amount AS int))",
        "large": "count_if(amount > 3) + sum(CAST(amount AS decimal(10,2))) FILTER (WHERE amount > 2)",
        "amounts": "sort_array(collect_set(CAST(amount AS int)))",
    }
    flow = Topology("both")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    for engine in ("native", "kernel"):
        hops = payments.window(by="card", size="20 s", every="10 s", emit="final", engine=engine)
        hops.agg(**aggregates).to_topic(f"{engine}.hops")
        sessions = payments.window(by="upper(card) AS name", gap="7 s", engine=engine)
        sessions.agg(**aggregates).to_topic(f"{engine}.sessions")
    produce(millstream_broker, [payment("ab"[n % 2], n % 7, 3.5 * n + (n > 9) * 15) for n in range(30)])
    run(flow)
    for kind in ("hops", "sessions"):
        native, kernel = (
            sorted(json.dumps(row, sort_keys=True) for row in found(millstream_broker, f"{engine}.{kind}"))
            for engine in ("native", "kernel")
        )
        assert len(native) > 4
        assert kernel == native
