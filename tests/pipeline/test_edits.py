"""A file is edited between two runs: state stays with what made it, and rows in it take on new columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from millstream import Broker, Processor, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import TopologyError
from millstream.pipeline.run.job import Job
from tests.support.jobs import produce, records

Run = Callable[..., tuple[Job, list[Any]]]


class Sums(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 0) + event.v
        context.emit(k=event.k, n=context.state)


class Products(Sums):
    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 1) * event.v
        context.emit(k=event.k, n=context.state)


def line(v: int, w: int, second: int, **more: Any) -> bytes:
    at = f"2026-01-01T12:00:{second:02}Z"
    return json.dumps({"k": "a", "v": v, "w": w, "z": 1, "gone": "x", "at": at, **more}).encode()


def last(broker: Broker, topic: str) -> dict[str, Any]:
    *_, found = records(broker, topic)
    value: dict[str, Any] = json.loads(found.value())
    return value


def before() -> Topology:
    flow = Topology("edited")
    rows = flow.source(
        "payments", schema="k string, v int, w int, at timestamp", time="at", lateness="5 seconds"
    )
    for name, aggregates in (("v", {"a": "min(v)", "b": "min(w)"}), ("w", {"a": "max(v)", "b": "max(w)"})):
        rows.window(by="k", size="1 hour", engine="kernel").agg(**aggregates).to_topic(f"kernel-{name}")
        rows.window(by="k", size="2 hours").agg(**aggregates).to_topic(f"spark-{name}")
    rows.process(key="k", with_=Sums, output="k string, n bigint").to_topic("sums")
    rows.process(key="k", with_=Products, output="k string, n bigint").to_topic("products")
    return flow


def after() -> Topology:
    flow = Topology("edited")
    flow.source("others", schema="x string").to_topic("copies")
    schema = "more array<string>, k string, z bigint, w int, v int, at timestamp"
    rows = flow.source("payments", schema=schema, time="at", lateness="5 seconds")
    products = rows.process(key="k", with_=Products, output="k string, n bigint")
    products.to_topic("products").where("n > 5").to_topic("large")
    rows.window(by="k", size="3 hours").agg(n="count(*)").to_topic("counts")
    rows.process(key="k", with_=Sums, output="k string, n bigint").to_topic("sums")
    for name, aggregates in (("w", {"b": "max(w)", "a": "max(v)"}), ("v", {"b": "min(w)", "a": "min(v)"})):
        rows.window(by="k", size="2 hours").agg(**aggregates).to_topic(f"spark-{name}")
        rows.window(by="k", size="1 hour", engine="kernel").agg(**aggregates).to_topic(f"kernel-{name}")
    return flow


def test_state_stays_with_what_made_it(run: Run, millstream_broker: Broker) -> None:
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("others")
    produce(millstream_broker, [line(2, 70, 10), line(3, 60, 20), line(5, 50, 30), line(7, 40, 31)])
    run(before())
    # Of those the last two are still within the lateness, and wait.
    assert (last(millstream_broker, "sums")["n"], last(millstream_broker, "products")["n"]) == (5, 6)
    produce(millstream_broker, [line(11, 30, 40, more=["x"])])
    run(after())
    for engine in ("kernel", "spark"):
        least, most = (last(millstream_broker, f"{engine}-{name}") for name in "vw")
        assert ((least["a"], least["b"]), (most["a"], most["b"])) == ((2, 30), (11, 70))
    assert (last(millstream_broker, "sums")["n"], last(millstream_broker, "products")["n"]) == (17, 210)
    assert last(millstream_broker, "counts")["n"] == 5
    assert [json.loads(one.value())["n"] for one in records(millstream_broker, "large")] == [30, 210]
    changed = before()
    with pytest.raises(TopologyError, match=r"\(window\) is gone") as refused:
        run(changed)
    assert "--reset-operator" in str(refused.value)
