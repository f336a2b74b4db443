"""From a topology to queries: what runs together, and what a checkpoint holds on to."""

from __future__ import annotations

import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.streams import Source
from millstream.pipeline.planning.outputs import SharedWindows
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.planning.query_order import in_order

SCHEMA = "card string, amount double, paid_at timestamp"


def source(flow: Topology, topic: str = "payments") -> Source:
    return flow.source(topic, schema=SCHEMA, time="paid_at")


def test_what_shares_a_source_shares_a_query() -> None:
    flow = Topology("t")
    payments = source(flow)
    payments.window(by="card", size="1 minute").agg(n="count(*)").to_topic("counts")
    payments.window(by="card", size="1 hour").agg(n="count(*)").to_view("hourly", key="card")
    payments.rejected.to_topic("bad")
    (query,) = plan(flow).queries
    assert query.name == "payments"
    assert query.output_mode == "update"
    assert len(query.windows) == 2
    assert [sink.label for sink in query.sinks] == ["topic counts", "view hourly", "topic bad"]
    assert plan(flow).group(query) == "t"


def test_sources_that_never_meet_are_queries_of_their_own() -> None:
    flow = Topology("t")
    source(flow, "a").to_topic("x")
    source(flow, "b").to_topic("y")
    planned = plan(flow)
    assert [query.name for query in planned.queries] == ["a", "b"]
    assert [planned.group(query) for query in planned.queries] == ["t.a", "t.b"]


def test_a_source_by_pattern_has_a_query_whose_name_can_be_a_directory() -> None:
    flow = Topology("t")
    pattern = r"orders\.(eu|us)\..*"
    orders = flow.source(pattern=pattern, schema=SCHEMA, time="paid_at", name="orders")
    orders.to_view("latest", key="card", index=["amount", ["amount", "paid_at"]])
    orders.deduplicate(by="card", within="1 hour", name="once").to_topic("once")
    flow.source(pattern="orders.eu.*", format="text").to_topic("copies")
    planned = plan(flow)
    first, second = (query.name for query in planned.queries)
    assert first.startswith("orders-eu-us~")
    assert second.startswith("orders-eu~")
    assert planned.reads == [f"/{pattern}/", "/orders.eu.*/"]
    told = planned.describe()
    assert f"reads   /{pattern}/  json, event time (paid_at)" in told
    assert "state   once  first of card within 1 hour  (kernel, 8 buckets)" in told
    assert "indexes amount; amount, paid_at" in told


def test_a_topic_that_the_flow_writes_and_reads_by_pattern_is_its_own() -> None:
    flow = Topology("t")
    source(flow).to_topic("made.payments")
    flow.source(pattern=r"made\..*", format="text").to_topic("seen")
    planned = plan(flow)
    assert planned.own == {"made.payments"}
    assert "written by this flow: the topic is the cut" in planned.describe()
    assert [query.name for query in in_order(planned)[0]] == ["payments"]


def test_sources_that_meet_in_a_union_are_one_query() -> None:
    flow = Topology("t")
    a, b = source(flow, "a"), source(flow, "b")
    a.to_topic("x")
    b.to_topic("y")
    flow.union(a, b).to_topic("z")
    (query,) = plan(flow).queries
    assert query.name == "a+b"


def test_updating_and_final_windows_are_apart_and_a_union_before_a_sink_is_split() -> None:
    flow = Topology("t")
    payments = source(flow)
    fast = payments.window(by="card", size="1 minute").agg(n="count(*)")
    slow = payments.window(by="card", gap="1 minute").agg(n="count(*)")
    flow.union(fast, slow, tag="kind").where("n > 5").to_topic("alerts")
    payments.rejected.to_topic("bad")
    first, second = plan(flow).queries
    assert (first.name, first.output_mode) == ("payments", "update")
    assert (second.name, second.output_mode) == ("payments.final", "append")
    assert [sink.label for sink in first.sinks] == ["topic alerts", "topic bad"]
    assert [sink.label for sink in second.sinks] == ["topic alerts"]
    (route,) = second.routes
    assert route.output is slow.node
    assert [(step.kind, name) for step, name in route.steps] == [("union", "window 2"), ("where", "")]


def test_a_window_whose_results_go_two_ways_is_computed_once() -> None:
    flow = Topology("t")
    counts = source(flow).window(by="card", size="1 minute").agg(n="count(*)")
    counts.where("n > 5").to_topic("many")
    counts.select("card", "n").to_view("all_counts", key="card")
    (query,) = plan(flow).queries
    assert query.outputs == [counts.node]
    assert [[step.kind for step, _ in route.steps] for route in query.routes] == [["where"], ["select"]]


def test_windows_over_the_same_rows_by_the_same_key_share_their_state() -> None:
    flow = Topology("t")
    payments = source(flow)
    fast = payments.window(by="card", size="1 minute").agg(n="count(*)")
    large = payments.where("amount > 5").window(by="card", size="1 hour", every="1 minute").agg(n="count(*)")
    other = payments.window(by="amount", size="1 hour").agg(n="count(*)")
    flow.union(fast, large, other, tag="kind").to_topic("counts")
    (query,) = plan(flow).queries
    shared, alone = query.outputs
    assert isinstance(shared, SharedWindows)
    taken = dict(zip(shared.windows, shared.conditions, strict=True))
    assert taken == {fast.node: (), large.node: ("amount > 5",)}
    assert alone is other.node


def test_windows_behind_an_operator_keep_their_own_state() -> None:
    flow = Topology("t")
    payments = source(flow)
    windows = [payments.window(by="card", size=size).agg(n="count(*)") for size in ("1 minute", "1 hour")]
    flow.union(*windows).operator(lambda df: df.dropDuplicates()).to_topic("counts")
    (query,) = plan(flow).queries
    assert [output.name for output in query.outputs] == ["operator 1"]


def test_rows_that_go_several_ways_without_a_window_are_read_once() -> None:
    flow = Topology("t")
    payments = source(flow)
    payments.where("amount > 5").to_topic("large")
    payments.select("card").to_topic("cards")
    (query,) = plan(flow).queries
    assert query.outputs == [payments.node]


def test_an_operator_over_updating_and_final_windows_is_refused() -> None:
    flow = Topology("t")
    payments = source(flow)
    fast = payments.window(by="card", size="1 minute").agg(n="count(*)")
    slow = payments.window(by="card", size="1 minute", emit="final").agg(n="count(*)")
    flow.union(fast, slow).operator(lambda df: df).to_topic("alerts")
    with pytest.raises(TopologyError, match="can't do both in one query"):
        plan(flow)


def test_rows_without_state_go_along_with_a_final_query() -> None:
    flow = Topology("t")
    payments = source(flow)
    payments.window(by="card", gap="1 minute").agg(n="count(*)").to_topic("sessions")
    payments.rejected.to_topic("bad")
    (query,) = plan(flow).queries
    assert query.name == "payments"
    assert len(query.sinks) == 2


def test_the_plan_says_in_words_what_will_run() -> None:
    flow = Topology("t")
    source(flow).window(by="card", size="1 minute").agg(n="count(*)").to_topic("counts")
    flow.source("counts", format="text").to_view("seen", key="value")
    text = plan(flow).describe()
    assert "t: 2 Spark queries, at-least-once" in text
    assert "reads   counts  text  <- written by this flow: the topic is the cut" in text
    assert "state   window 1  1 minute by card" in text
