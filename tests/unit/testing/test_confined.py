"""The test driver changes nothing around it: not the process, not PySpark, not the topology."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.column import Column
from pyspark.sql.functions import builtin
from pyspark.sql.types import DataType
from pyspark.sql.udf import UserDefinedFunction

from millstream import Processor, Topology, step
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.drawing.text import draw_text
from millstream.pipeline.planning.plan import plan
from millstream.testing import Driver

SCHEMA = "card string, eur double, at timestamp"


class Count(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 0) + 1
        context.emit(n=context.state)


def whole() -> Topology:
    """A topology with windows that may be Spark's own, and with everything that planning may change."""
    flow = Topology("whole")
    payments = flow.source("payments", schema=SCHEMA, time="at", lateness="10 seconds")
    cards = flow.table("cards", schema="card string, name string", key="card")
    double = F.udf(lambda eur: 2 * eur, "double")

    @payments.operator
    def priced(df: Any) -> Any:
        return df.withColumn("twice", double("eur"))

    native = payments.window(by="card", size="1 minute").agg(n="count(*)", spent="sum(eur)")
    native.where(F.col("n") > 0).to_topic("native", key="card")
    final = priced.window(by="card", size="1 minute", emit="final").agg(spent=F.sum("twice"))
    final.join(cards, on="card", how="left").to_view("spent", key="card")
    sessions = payments.window(by="card", opens="eur > 1", timeout="1 minute").agg(n="count(*)")
    sessions.outside.to_topic("outside")
    sessions.to_topic("sessions")
    counted = payments.process(key="card", with_=Count(), output="card string, n int")
    counted.to_topic("counted")
    found = payments.pattern(by="card", within="1 minute", steps=[step("a", "eur > 1"), step("b", "eur > 2")])
    found.timed_out.to_topic("timed_out")
    found.to_topic("found")
    cards.changes.to_topic("changes")
    payments.rejected.to_topic("rejected")
    payments.late.to_topic("late")
    return flow


def drive(flow: Topology) -> Any:
    with Driver(flow) as driver:
        driver.feed("cards", {"card": "a", "name": "Ann"}, key="a")
        for eur in (0.5, 1.5, 2.5):
            driver.feed("payments", {"card": "a", "eur": eur, "at": "2026-01-01T10:00:00Z"})
        driver.feed("payments", {"card": "a", "eur": 1.0, "at": "2026-01-01T10:05:00Z"})
        driver.feed("payments", {"card": "a", "eur": 1.0, "at": "2026-01-01T10:00:00Z"})
        driver.finish()
        topics = [topic for sink in flow.sinks for topic in sink.topics]
        return {topic: driver.topic(topic) for topic in topics}, driver.view("spent")


def shown(flow: Topology) -> Any:
    """All that can be seen of a topology and its plan."""
    planned = plan(flow)
    return (
        draw_text(graph(flow)),
        planned.describe(),
        [(one.name, one.kind, one.about(), one.columns, one.no_time) for one in flow.streams],
        [(one.state.identity, one.state.why, repr(one.state.inputs)) for one in flow.streams if one.state],
        [(query.name, [operator.identity for operator in query.operators]) for query in planned.queries],
        flow.kernel_only,
        flow.without_aggregates,
    )


def test_the_process_is_as_it_was() -> None:
    drive(whole())  # loads what it needs
    before = dict(os.environ), dict(sys.modules), list(sys.meta_path)
    classes = (UserDefinedFunction, Column, DataType, builtin)
    members = [dict(vars(one)) for one in classes]
    drive(whole())
    assert (dict(os.environ), dict(sys.modules), list(sys.meta_path)) == before
    assert [dict(vars(one)) for one in classes] == members


def test_a_topology_that_was_driven_is_the_same() -> None:
    untouched, flow = whole(), whole()
    first = drive(flow)
    assert drive(flow) == first, "driven twice"
    assert first[0]["native"], "and it does something"
    assert repr(shown(flow)) == repr(shown(untouched))
    assert drive(flow) == first, "driven after it was planned"


def test_a_topology_that_is_driven_may_go_on_being_declared() -> None:
    flow = whole()
    first = drive(flow)
    payments = next(stream for stream in flow.streams if stream.topic == "payments")
    count = len(flow.streams)
    drive(flow)
    assert len(flow.streams) == count
    flow.source("more", schema=SCHEMA, time="at").to_topic("more.copy")
    assert payments in flow.streams
    assert drive(flow)[0]["native"] == first[0]["native"]
