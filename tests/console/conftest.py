"""A real broker with a console, and a browser to look at it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from millstream import Broker
from millstream.client.admin import Admin
from millstream.client.connect import Connection
from millstream.console.run import Console
from tests.support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One for a file of tests, on disk, with topics that people would have."""
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        with Admin(Connection.of(started.address)) as admin:
            for name in ("payments", "orders", "audit.log", *(f"service-{n:02}.events" for n in range(60))):
                admin.create_topic(name, partitions=2)
        write(started.address, "payments", 300)
        write(started.address, "orders", 20)
        yield started


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[Console]:
    with Console(broker.address) as started:
        yield started


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Console]:
    """A console for a broker that has nothing."""
    with Broker(tmp_path) as broker, Console(broker.address) as started:
        yield started


def write(address: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(records):
        producer.produce(topic, b'{"card": "c1", "eur": 12.5}', key=str(number))
    assert producer.flush(30) == 0
