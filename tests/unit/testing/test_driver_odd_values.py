"""Odd values through a whole flow: floating keys of state are refused, and views keep every value exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from millstream import Processor, Topology, step
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.streams import Source
from millstream.testing import Driver

SCHEMA = "x double, card string, paid_at timestamp"
EVENT = {"x": "NaN", "card": "a", "paid_at": "2026-01-01T12:00:00Z"}


class Counts(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 0) + 1
        context.emit(x=context.key, n=context.state)


def _table_join(flow: Topology, events: Source) -> None:
    names = flow.table("names", schema="x double, name string, since timestamp", key="x", time="since")
    events.join(names, on="x", name="wrong").to_topic("out")


OPERATORS: dict[str, Callable[[Topology, Source], Any]] = {
    "a window": lambda _, events: (
        events.window(by="x", size="1 minute", name="wrong").agg(n="count(*)").to_topic("out")
    ),
    "a window of an expression": lambda _, events: (
        events.window(by="CAST(x AS float) AS x", size="1 minute", name="wrong")
        .agg(n="count(*)")
        .to_topic("out")
    ),
    "a window that moves with every event": lambda _, events: (
        events.window(by="x", size="1 minute", every="event", name="wrong").agg(n="count(*)").to_topic("out")
    ),
    "a session": lambda _, events: (
        events.window(by="x", gap="1 minute", name="wrong").agg(n="count(*)").to_topic("out")
    ),
    "a processor": lambda _, events: events.process(
        key="x", with_=Counts, output="x double, n bigint", name="wrong"
    ).to_topic("out"),
    "a pattern": lambda _, events: events.pattern(
        by="x", within="1 minute", steps=[step("one", "card = 'a'"), step("two", "card = 'b'")], name="wrong"
    ).to_topic("out"),
    "a join": lambda flow, events: events.join(
        flow.source("others", schema=SCHEMA, time="paid_at"), on="x", within="1 minute", name="wrong"
    ).to_topic("out"),
    "a join with a table": _table_join,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_floating_key_of_state_is_refused_with_the_reason(operator: str) -> None:
    flow = Topology("odd")
    OPERATORS[operator](flow, flow.source("events", schema=SCHEMA, time="paid_at"))
    with (
        pytest.raises(
            TopologyError,
            match=r"'wrong': the key 'x' is (double|float).* NaN is not equal to itself\..* use CAST\(",
        ),
        Driver(flow) as driver,
    ):
        driver.feed("events", EVENT)


def test_what_the_refusal_advises_counts_nan_as_one_key() -> None:
    flow = Topology("odd")
    events = flow.source("events", schema=SCHEMA, time="paid_at")
    cast = events.select("CAST(x AS string) AS x", "paid_at")
    cast.process(key="x", with_=Counts, output="x string, n bigint", name="counted").to_topic("out")
    with Driver(flow) as driver:
        driver.feed("events", EVENT)
        driver.feed("events", [EVENT, EVENT])
        driver.finish()
        assert [row["n"] for row in driver.topic("out")] == [1, 2, 3]


def test_a_view_keeps_every_value_and_takes_a_floating_key() -> None:
    flow = Topology("odd")
    kinds = "x double, account decimal(20,0), m map<string,int>, at timestamp_ntz, n int"
    events = flow.source("events", schema=kinds)
    events.to_view("by_number", key="x", order="n")
    events.to_view("accounts", key="account", order="account")
    accounts = [Decimal("12345678901234567891") + n for n in range(3)]
    with Driver(flow) as driver:
        for n, account in enumerate(accounts):
            text = f'{{"x":"NaN","account":{account},"m":{{"a":{n}}},"at":"2026-01-01T12:00:00","n":{n}}}'
            driver.feed("events", text.encode())
        ((key, row),) = driver.view("by_number").items()
        assert math.isnan(key)
        assert row["m"] == {"a": 2}
        assert row["at"] == datetime(2026, 1, 1, 12)  # noqa: DTZ001
        assert sorted(driver.view("accounts")) == accounts


def test_local_times_of_avro_have_no_zone_wherever_they_are_shown() -> None:
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    fields = {"k": "string", "at": local, "all": {"type": "array", "items": local}}
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    flow = Topology("local")
    source = flow.source("in", format="avro", schema=json.dumps(schema), registry="http://127.0.0.1:1")
    source.to_view("v", key="k")
    source.to_topic("out")
    shown = "2026-01-31T12:00:00.000000"
    with Driver(flow) as driver:
        driver.feed("in", {"k": "a", "at": shown, "all": [shown]})
        assert driver.topic("out") == [{"k": "a", "at": shown, "all": [shown]}]
        assert driver.sql('SELECT k, at, "all" FROM v') == [{"k": "a", "at": shown, "all": f'["{shown}"]'}]
        assert driver.view("v")["a"]["at"] == datetime.fromisoformat(shown)
