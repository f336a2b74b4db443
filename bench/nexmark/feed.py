"""Events into topics, and answers out of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.nexmark import generator
from bench.nexmark.answers import Row
from bench.nexmark.generator import KINDS

_IN_FLIGHT = 200_000


def create(address: str, topics: Iterable[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        made.result(30)


def write(
    address: str, count: int, settings: generator.Settings, *, partitions: int = 2, prefix: str = ""
) -> None:
    """The first ``count`` events into the topics ``person``, ``auction`` and ``bid``, which are created; and
    a last one into every partition, so that all that waits for time is given."""
    create(address, [f"{prefix}{kind}" for kind in KINDS], partitions)
    client = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,  # a retry must not put events behind later ones
            "linger.ms": 5,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 2 * _IN_FLIGHT,
        }
    )
    for chunk in generator.chunks(count, settings):
        for kind, table in chunk.items():
            client.produce_batch(f"{prefix}{kind}", generator.records(table, kind, partitions))
        while len(client) > _IN_FLIGHT:
            client.poll(0.01)
    for kind, value in generator.closing(settings, count).items():
        for partition in range(partitions):
            client.produce(f"{prefix}{kind}", value, partition=partition)
    if client.flush(120):
        raise RuntimeError("events were not delivered")


def read(address: str, topic: str) -> list[dict[str, Any]]:
    """All answers in a topic now, those of a partition in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nexmark-answers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    places = [
        TopicPartition(topic, partition, 0)
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ]
    consumer.assign(places)
    found: list[dict[str, Any]] = []
    ended = 0
    while ended < len(places):
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                found.append(json.loads(message.value()))
            elif message.error().name() == "_PARTITION_EOF":
                ended += 1
            else:
                raise RuntimeError(str(message.error()))
    consumer.close()
    return found


def answer(rows: Iterable[dict[str, Any]], columns: Sequence[str], key: Sequence[str] = ()) -> list[Row]:
    """What a query answered, as DuckDB would give it: the columns in their order, times as times; of answers
    that changed the last. What is about the last events, which only tell the time, is left out."""
    if key:
        rows = {tuple(row[name] for name in key): row for row in rows}.values()
    return [
        tuple(_plain(row[name]) for name in columns)
        for row in rows
        if not any(row.get(name) == -1 for name in ("id", "auction", "bidder", "category"))
    ]


def counted(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order that does not depend on who gave them; numbers by their value."""
    plain = [tuple(float(value) if isinstance(value, Decimal) else value for value in row) for row in rows]
    return sorted(plain, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value[4:5] == "-" and value[10:11] == "T" and value.endswith("Z"):
        return datetime.fromisoformat(value).replace(tzinfo=None)
    return value
