"""Topics in memory, with real clients: more is written than all of them may have, and each gives way as it
has chosen."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Theirs

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from tests.support.command import CommandLine
from tests.support.serve import ServeProcess

LIMIT = 8_000_000
COUNT, SIZE = 400, 50_000  # more than twice the limit


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServeProcess]:
    settings = {"millstream.memory.bytes": str(LIMIT), "http.listen": "127.0.0.1:0"}
    with ServeProcess(tmp_path / "data", settings=settings) as server:
        yield server


def create(server: ServeProcess, **config: str) -> None:
    with Admin(Connection.of(server.address)) as admin:
        named = {name.replace("_", "."): value for name, value in config.items()}
        admin.create_topic("t", partitions=1, config={"millstream.storage": "memory", **named})


def value_of(number: int) -> bytes:
    return number.to_bytes(4, "big") + bytes(SIZE)


def write(server: ServeProcess, *, patience_ms: int = 30_000) -> tuple[list[int], list[KafkaError]]:
    """Write all of it; the offsets that were acknowledged, and the errors."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "message.timeout.ms": patience_ms,
            "batch.num.messages": 4,
            "log_level": 0,
        }
    )
    for number in range(COUNT):
        producer.produce("t", value_of(number), on_delivery=told)
        producer.poll(0)
    assert producer.flush(60) == 0
    return offsets, errors


def read(server: ServeProcess, first: int, end: int) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g", "log_level": 0})
    consumer.assign([Theirs("t", 0, first)])
    found: list[tuple[int, bytes]] = []
    while not found or found[-1][0] < end - 1:
        message = consumer.poll(30)
        assert message is not None, f"nothing came after {found[-1:]}"
        assert message.error() is None
        found.append((message.offset(), message.value()))
    consumer.close()
    return found


def metric(server: ServeProcess, name: str) -> float:
    address = re.search(r"metrics and health at (http://\S+)", server.logged())
    assert address is not None
    with urllib.request.urlopen(f"{address[1]}/metrics", timeout=20) as page:
        told = re.search(rf"^{name} (\S+)$", page.read().decode(), re.M)
    assert told is not None, name
    return float(told[1])


def test_a_buffer_spills_and_everything_can_be_read(server: ServeProcess) -> None:
    create(server)
    offsets, errors = write(server)
    assert (offsets, errors) == (list(range(COUNT)), [])
    assert metric(server, "millstream_memory_bytes") <= LIMIT
    assert metric(server, "millstream_memory_spilled_bytes_total") > COUNT * SIZE - LIMIT
    assert read(server, 0, COUNT) == [(number, value_of(number)) for number in range(COUNT)]
    described = CommandLine(server.address).ok("topic", "describe", "t")
    assert "spilled to disk" in " ".join(described.split())


def test_a_ring_drops_the_oldest(server: ServeProcess) -> None:
    create(server, millstream_overload="drop", millstream_overload_bytes="100000000")
    offsets, errors = write(server)
    assert (offsets, errors) == (list(range(COUNT)), [])
    assert metric(server, "millstream_memory_bytes") <= LIMIT
    with Admin(Connection.of(server.address)) as admin:
        (bounds,) = admin.bounds(admin.partitions(["t"])).values()
    assert 0 < bounds.start < COUNT - 20
    assert [offset for offset, _ in read(server, bounds.start, COUNT)] == list(range(bounds.start, COUNT))


def test_with_backpressure_producers_wait_and_what_was_acknowledged_is_there(server: ServeProcess) -> None:
    create(server, millstream_overload="backpressure", millstream_overload_groups="nobody")
    offsets, errors = write(server, patience_ms=3000)
    assert 0 < len(offsets) < COUNT
    assert len(offsets) + len(errors) == COUNT
    assert metric(server, "millstream_memory_bytes") <= LIMIT
    assert metric(server, "millstream_memory_full") == 1
    assert [offset for offset, _ in read(server, 0, len(offsets))] == list(range(len(offsets)))
    described = CommandLine(server.address).ok("topic", "describe", "t")
    assert "memory for topics is full" in " ".join(described.split())
