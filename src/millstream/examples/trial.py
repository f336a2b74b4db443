"""Run a generator's events through a pipeline in the test driver: an hour of events takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from millstream.examples.example import Event, Generator, Results
from millstream.testing import Driver, Record


def trial(pipeline: Path, generator: Generator, topics: Iterable[str], *, batch: int = 2000) -> Results:
    """The results in ``topics`` for a bounded generator's events, in batches of ``batch`` events."""
    with Driver(pipeline) as driver:
        feed(driver, generator.events(), batch=batch)
        driver.finish()
        return {topic: driver.topic(topic) for topic in topics}


def feed(driver: Driver, events: Iterable[Event], *, batch: int = 2000) -> None:
    """Feed events with their keys and times, in batches."""
    for _, part in groupby(enumerate(events), key=lambda numbered: numbered[0] // batch):
        by_topic: dict[str, list[Record]] = {}
        for _, event in part:
            at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
            record = Record(event.value, event.key.encode(), timestamp=at)
            by_topic.setdefault(event.topic, []).append(record)
        for topic, records in by_topic.items():
            driver.feed(topic, records)
