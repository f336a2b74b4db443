"""What a job tells about itself, from progress made by hand: no broker, no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import Topology
from millstream.examples.fraud import EXAMPLE as FRAUD
from millstream.jobs.report import MOST_BYTES, Edge, GraphNode, JobStatus, encoded
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.run.reporting.progress import BatchProgress, OperatorStatus, StoreStatus
from millstream.pipeline.run.reporting.status_account import (
    ERRORS,
    TIMELINE,
    RunningProcess,
    StatusAccount,
    blamed,
    parts,
)
from millstream.pipeline.run.shadow_copy import write_elsewhere

START = 1_700_000_000_000
SCHEMA = "card string, amount double, paid_at timestamp"


def account(flow: Topology | None = None) -> StatusAccount:
    return StatusAccount(
        plan(flow or load_topology(FRAUD.pipeline)), RunningProcess("r1", "host", 7, START, "views.db")
    )


def progress(batch: int = 0, ms: int = 500, query: str = "payments", **more: Any) -> BatchProgress:
    told: dict[str, Any] = {
        "rows_in": 100,
        "rejected": 0,
        "rows_out": {"topic alerts": 3},
        "lags": {"payments": 20},
        "watermark": None,
        "milliseconds": ms,
        "state_rows": 0,
        "counts": {"source payments": 98, "rejected payments": 2, "sink topic alerts": 3},
    }
    return BatchProgress(query, batch, **{**told, **more})


def edge(status: JobStatus, tail: str, head: str) -> Edge:
    key = {node.title if node.kind != "topic" else f"topic {node.title}": node.key for node in status.nodes}
    return next(each for each in status.edges if (each.tail, each.head) == (key[tail], key[head]))


def node(status: JobStatus, title: str, kind: str | None = None) -> GraphNode:
    return next(each for each in status.nodes if each.title == title and kind in (each.kind, None))


# Counts ----------------------------------------------------------------------------------------------


def test_rows_on_an_arrow_come_from_whatever_tells_them() -> None:
    drawn = graph(load_topology(FRAUD.pipeline))
    titles = {box.key: f"topic {box.title}" if box.kind == "topic" else box.title for box in drawn.boxes}
    counted = {
        (titles[tail], titles[head]): names
        for (tail, head), names in zip(drawn.arrows, drawn.counted, strict=True)
    }
    assert counted["topic payments", "priced"] == ("source payments",)
    assert counted["topic payments", "payments.rejected"] == ("rejected payments",)
    assert counted["priced", "burst"] == ("stream priced",)
    assert counted["burst", "alerts"] == ("stream burst",)
    assert counted["alerts", "topic alerts"] == ("sink topic alerts",), "as many as its sink has"
    assert counted["payments.rejected", "topic payments.rejected"] == ("rejected payments",)


def test_an_arrow_of_which_nobody_knows_says_so() -> None:
    running = account()
    running.progressed(progress(), START + 1000)
    told = running.status(START + 1000)
    assert edge(told, "topic payments", "priced").rows == 98
    assert edge(told, "alerts", "topic alerts").rows == 3
    assert edge(told, "priced", "burst").rows is None
    assert edge(told, "priced", "burst").per_second is None


def test_a_source_that_two_queries_read_is_not_counted_twice() -> None:
    flow = Topology("two")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    payments.window(by="card", size="1 minute", name="now").agg(n="count(*)").to_topic("now")
    payments.window(by="card", size="1 minute", emit="final", name="then").agg(n="count(*)").to_topic("then")
    running = account(flow)
    for query, rows in (("payments", 10), ("payments.final", 4)):
        running.progressed(progress(query=query, counts={"source payments": rows}), START + 1000)
    told = running.status(START + 1000)
    assert edge(told, "topic payments", "now").rows == 10
    assert edge(told, "topic payments", "then").rows == 4
    assert [query.group for query in told.queries] == ["two.payments", "two.payments.final"]


# Rates -----------------------------------------------------------------------------------------------


def test_rates_are_those_of_the_last_seconds_and_fall_to_nothing() -> None:
    running = account()
    for number in range(20):
        running.progressed(progress(number), START + 500 * (number + 1))
    assert running.status(START + 10_000).queries[0].per_second == 200.0
    assert edge(running.status(START + 10_000), "topic payments", "priced").per_second == 196.0
    later = running.status(START + 60_000)
    assert later.queries[0].per_second == 0.0
    assert later.queries[0].rows_in == 2000, "the total stays"


def test_one_long_batch_has_the_rate_of_its_own_length() -> None:
    running = account()
    running.progressed(progress(ms=40_000, rows_in=4000), START + 40_000)
    assert running.status(START + 40_000).queries[0].per_second == 100.0
    assert running.status(START + 60_000).queries[0].per_second > 0, "the next is not due yet"
    for number in range(1, 30):
        running.progressed(progress(number, ms=500), START + 60_000 + 500 * number)
    assert running.status(START + 74_500).queries[0].per_second == 200.0, "it is past"


# A batch's time --------------------------------------------------------------------------------------


def test_the_parts_of_a_batch_are_its_whole_time() -> None:
    spent = parts(
        progress(
            ms=1000,
            spark={
                "latestOffset": 10,
                "queryPlanning": 40,
                "walCommit": 30,
                "commitOffsets": 20,
                "addBatch": 880,
            },
            steps={"ledger": 1.4, "begin": 5, "send": 600, "offsets": 8.6, "commit": 15, "views": 120},
        )
    )
    assert spent == {
        "look": 10,
        "plan": 40,
        "process": 600,
        "ledger": 10,
        "commit": 20,
        "views": 120,
        "checkpoint": 50,
        "rest": 150,
    }
    assert sum(spent.values()) == 1000


# States and errors -----------------------------------------------------------------------------------


def test_a_job_goes_from_starting_to_its_end() -> None:
    running = account()
    assert running.status(START).state == "starting"
    running.turned("running", START + 5)
    running.turned("waiting", START + 10, "no broker answers")
    assert running.status(START + 11).reason == "no broker answers"
    running.progressed(progress(), START + 20)
    told = running.status(START + 21)
    assert (told.state, told.reason, told.since_ms) == ("running", None, START + 20)
    running.turned("stopped", START + 30)
    assert running.status(START + 40).since_ms == START + 30


def test_a_failure_names_operator_key_and_record() -> None:
    running = account()
    running.failed(
        "query 'payments' failed: operator 'scored' failed for card='c1': ZeroDivisionError: division by zero"
        " (card='c1', amount=0.0)",
        START + 1,
        where="fraud.py:12",
    )
    told = running.status(START + 2)
    assert told.state == "failed"
    (error,) = told.errors
    assert (error.operator, error.key, error.record) == ("scored", "card='c1'", "card='c1', amount=0.0")
    assert (error.where, error.fatal) == ("fraud.py:12", True)
    assert error.what.endswith("ZeroDivisionError: division by zero")
    assert blamed("no broker answers") == (None, None, None)


def test_what_did_not_parse_is_shown_with_a_record_and_counted_together() -> None:
    running = account()
    for number in range(3):
        running.progressed(
            progress(number, samples={"payments": ("not JSON", f"oops{number}")}), START + number
        )
    (error,) = running.status(START + 10).errors
    assert (error.what, error.operator, error.times) == ("did not parse: not JSON", "payments", 6)
    assert error.record == "oops2", "the newest"
    assert node(running.status(START + 10), "payments").rejected == 6


def test_state_lateness_and_watermark_stand_at_their_operators() -> None:
    flow = Topology("t", guarantee="at-least-once")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    payments.window(by="card", size="1 minute", every="event", name="sliding").agg(n="count(*)").to_topic("a")
    counts = payments.window(by="card", size="1 minute", name="counts").agg(n="count(*)")
    counts.to_view("counts", key="card")
    running = account(flow)
    kernel = OperatorStatus((START + 5) * 1000, None, None, None, 12, 3400, late=2)
    watermark = datetime.fromtimestamp((START + 7) / 1000, UTC)
    for number in range(2):
        running.progressed(
            progress(
                number,
                watermark=watermark,
                operators={"sliding": kernel},
                windows={"counts": StoreStatus(5, 900, 1)},
                lags={"payments": 17},
            ),
            START + 10,
        )
    told = running.status(START + 10)
    sliding, window, source = node(told, "sliding"), node(told, "counts", "window"), node(told, "payments")
    assert (sliding.entries, sliding.bytes, sliding.late, sliding.watermark_ms) == (12, 3400, 4, START + 5)
    assert (window.entries, window.bytes, window.dropped, window.watermark_ms) == (5, 900, 2, START + 7)
    assert (source.lag, source.watermark_ms, source.rejected) == (17, START + 7, 4)


# Bounds ----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text(max_size=3000), max_size=30),
    st.integers(0, 3 * TIMELINE),
)
def test_it_does_not_grow_with_time_nor_with_what_goes_wrong(said: list[str], batches: int) -> None:
    running = account()
    for number in range(batches):
        running.progressed(progress(number), START + number)
    for text in said:
        running.troubled(text, START)
        running.progressed(progress(1, samples={"payments": (text[:50], text)}), START)
    told = running.status(START + 1)
    assert len(told.batches) <= TIMELINE
    assert len(told.errors) <= ERRORS
    data = encoded(told)
    assert len(data) < 100_000
    assert json.loads(data)["version"] == 1


def test_a_graph_beyond_all_bounds_is_left_out_rather_than_the_job() -> None:
    told = account().status(START)
    huge = [GraphNode(f"s{n}", "where", "t" * 500, ["l" * 500]) for n in range(2000)]
    data = encoded(JobStatus(**{**{f: getattr(told, f) for f in told.__slots__}, "nodes": huge}))
    assert len(data) <= MOST_BYTES
    assert json.loads(data)["state"] == "starting"


def test_a_copy_that_writes_elsewhere_has_a_name_of_its_own() -> None:
    flow = load_topology(FRAUD.pipeline)
    write_elsewhere(flow, "replay-")
    told = account(flow).status(START)
    assert told.job == "replay-fraud"
    assert told.views == ["replay_blocked_cards"]
    assert "replay-alerts" in told.queries[0].writes
