"""What people are shown of the state in a checkpoint."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from millstream import Processor, Topology
from millstream.pipeline.kernel.processor.processor import STATES
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.run.checkpoint.state_reader import listed
from millstream.testing import Driver


class Remembers(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        state = context.state or {"seen": [], "last": deque(maxlen=2), "total": Decimal(0)}
        state["seen"].append(event.n)
        state["last"].append(event.at)
        state["total"] += event.n
        context.state = state


def test_the_state_of_a_processor_is_shown_as_values() -> None:
    flow = Topology("states")
    events = flow.source("events", schema="k string, n int, at timestamp", time="at")
    events.process(key="k", with_=Remembers, output="k string", name="remembers").to_topic("out")
    with Driver(flow) as driver:
        for n in (1, 2):
            driver.feed("events", {"k": "a", "n": n, "at": datetime(2026, 1, 1, 12, n, tzinfo=UTC)})
        driver.finish()
        store = driver._running.states.named()["remembers"]._store
        (entry,) = (one for one in listed("remembers", 0, store) if one.container == STATES)
    times = ["2026-01-01T12:01:00+00:00", "2026-01-01T12:02:00+00:00"]
    assert entry.to_json() == {
        "operator": "remembers",
        "bucket": 0,
        "container": STATES,
        "key": ["a"],
        "value": {"seen": [1, 2], "last": times, "total": "3"},
        "due": None,
    }


def test_a_state_whose_class_is_not_there_is_said_to_be_so() -> None:
    store = StateStore()
    store.keyed(STATES).put(("a",), b"cnowhere_at_all\nGone\n.", None)
    (entry,) = listed("of", 0, store)
    assert "can't be unpickled here" in entry.value
    assert "nowhere_at_all" in entry.value
