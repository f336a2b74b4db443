"""Spark's reports of batches, in our words."""

from __future__ import annotations

from typing import Any

from millstream import Topology
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.run.delivery.report import DeliveryReport
from millstream.pipeline.run.reporting.spark_reports import progress_of


def report(batch: int, **state: Any) -> dict[str, Any]:
    return {"batchId": batch, "observedMetrics": {"state moving": state}}


def test_an_operator_that_did_not_run_in_a_batch_is_as_it_was_and_counts_nothing() -> None:
    flow = Topology("t")
    events = flow.source("events", schema="k string, at timestamp", time="at")
    events.window(by="k", size="1 minute", every="event", name="moving").agg(n="count(*)").to_topic("counts")
    (query,) = plan(flow).queries
    ran = report(4, watermark=5, waits_for=6, timer=7, may_move=8, entries=2, bytes=90, late=3)
    before = progress_of(query, ran, DeliveryReport({}), {}).operators
    # Spark runs a batch of no records to close windows of its own; what is summed over no rows is null.
    idle = report(5, watermark=None, waits_for=None, timer=None, may_move=None, entries=None, bytes=None)
    after = progress_of(query, idle, DeliveryReport({}), before)
    moving = after.operators["moving"]
    assert (moving.watermark, moving.waits_for, moving.timer, moving.may_move) == (5, 6, 7, 8)
    assert (moving.entries, moving.bytes, moving.late) == (2, 90, 0)
    assert after.waits_for == 6
    emptied = report(6, watermark=9, waits_for=None, timer=None, may_move=None, entries=0, bytes=0)
    assert progress_of(query, emptied, DeliveryReport({}), after.operators).operators["moving"].entries == 0
