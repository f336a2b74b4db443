"""A real broker with a console, and a browser to look at it with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.console.run import Console
from tests.support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For the tests of a file: while Playwright is at work, nobody else in this thread can use asyncio."""
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


@contextmanager
def traffic(address: str, **per_second: int) -> Iterator[None]:
    """Records written to topics all the time, and a group that reads them."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        while not ended.wait(0.1):
            for topic, rate in per_second.items():
                for number in range(rate // 10):
                    producer.produce(topic, b'{"card": "c1", "eur": 12.5, "country": "DE"}', key=str(number))
            producer.poll(0)
        producer.flush(10)

    def consume() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe(list(per_second))
        while not ended.is_set():
            consumer.consume(1000, 0.2)
        consumer.close()

    threads = [threading.Thread(target=work) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def write(address: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(records):
        producer.produce(topic, b'{"card": "c1", "eur": 12.5}', key=str(number))
    assert producer.flush(30) == 0
