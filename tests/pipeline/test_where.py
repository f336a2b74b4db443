"""Rows that a condition leaves out still tell the time, on the kernel and in windows of Spark's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millstream import Broker, Topology
from tests.support.jobs import produce, records

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SCHEMA = "id bigint, card string, kind string, at timestamp"


def event(number: int, kind: str, at: str) -> bytes:
    return json.dumps({"id": number, "card": "a", "kind": kind, "at": f"2026-01-01T{at}Z"}).encode()


@pytest.mark.parametrize("engine", ["kernel", "native"])
def test_a_row_that_is_left_out_moves_time_on(
    run: Callable[..., Any], millstream_broker: Broker, engine: str
) -> None:
    flow = Topology("where")
    events = flow.source("payments", schema=SCHEMA, time="at", lateness="10 seconds")
    kept = events.where("kind = 'kept'").select("id", "card", "at")
    windows = kept.window(by="card", size="10 seconds", emit="final", engine=engine).agg(n="count(*)")
    windows.to_topic("windows", key="card")
    produce(millstream_broker, [event(1, "kept", "00:00:00"), event(2, "other", "00:01:00")])
    run(flow)
    produce(millstream_broker, [event(3, "other", "00:01:01")])
    run(flow)
    ends = [json.loads(one.value())["window_end"] for one in records(millstream_broker, "windows")]
    assert ends == ["2026-01-01T00:00:10.000000Z"], "closed by a row that is in no window"


def test_a_row_is_judged_by_all_rows_of_its_partition(
    run: Callable[..., Any], millstream_broker: Broker
) -> None:
    flow = Topology("where")
    events = flow.source("payments", schema=SCHEMA, time="at", lateness="10 seconds")
    moving = events.where("kind = 'kept'").window(by="card", size="1 second", every="event")
    moving.agg(id="last(id)").to_topic("moving", value=["id"])
    events.late.to_topic("late", value=["id"])
    late = event(3, "kept", "00:00:30")
    produce(millstream_broker, [event(1, "kept", "00:00:00"), event(2, "other", "00:01:00"), late])
    run(flow)
    assert [json.loads(one.value()) for one in records(millstream_broker, "late")] == [{"id": 3}]
