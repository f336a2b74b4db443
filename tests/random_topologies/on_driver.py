"""Runs a case in the test driver, and compares its results with the model."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from millstream.testing import Driver
from millstream.testing import Record as DriverRecord
from tests.random_topologies.case import Case
from tests.random_topologies.sinks import TopicSink, ViewSink
from tests.random_topologies.values import EPOCH


def differences(case: Case) -> list[str]:
    """The differences from the model; empty if there are none."""
    with Driver(case.topology()) as driver:
        for batch in case.batches:
            topics: dict[str, list[Any]] = {}
            for topic, record in batch:
                at = EPOCH + timedelta(microseconds=record.time)
                topics.setdefault(topic, []).append(
                    DriverRecord(record.value, timestamp=at, partition=record.partition)
                )
            for topic, records in topics.items():
                driver.feed(topic, records)
        driver.finish()
        expected = case.expected()
        found = []
        for sink in case.sinks:
            rows = expected[sink.stream]
            if isinstance(sink, TopicSink):
                found.append(sink.difference(rows, [one.value for one in driver.records(sink.topic)]))
            else:
                found.append(sink.difference(rows, _view(driver, sink)))
        return [one for one in found if one is not None]


def _view(driver: Driver, sink: ViewSink) -> list[dict[str, Any]]:
    found = []
    for row in driver.view(sink.view).values():
        values = dict(row)
        for name, kind in sink.about.columns.items():
            if kind == "timestamp" and values[name] is not None:
                values[name] = (values[name] - EPOCH) // timedelta(microseconds=1)
        found.append(values)
    return found
