"""A writer to a compacted topic: it counts up under its own keys, and deletes some of them now and then."""

from __future__ import annotations

import time
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.campaign.clients_common import IMPATIENT, stopping
from tests.campaign.clients_producing import FILLER
from tests.campaign.journal import Journal


def write(address: str, journal: Journal, options: dict[str, Any]) -> None:
    """Keys have the name of this life: what a killed life sent may arrive after its successor's records."""
    chance = Random(journal.life + str(options["seed"]))
    acknowledged: list[tuple[str, int]] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": 5000,
            "linger.ms": chance.choice((1, 5)),
            "batch.size": chance.choice((2000, 20_000, 100_000)),
            "compression.type": chance.choice(("none", "lz4", "zstd")),
            **IMPATIENT,
        }
    )

    def delivered(key: str, version: int, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            journal.note("wrong", f"a record was refused: {error}")
        else:
            acknowledged.append((key, version))

    def note() -> None:
        if acknowledged:
            journal.note("key acked", acknowledged.copy())
            journal.note("tally", "acknowledged", len(acknowledged))
            acknowledged.clear()

    number = 0
    while not stopping():
        block = []
        for _ in range(chance.randint(1, 300)):
            number += 1
            key = f"{journal.life}-{int(chance.triangular(0, options['keys'], 0))}"
            block.append((key, number, chance.random() < 0.1))
        journal.note("key sent", block)
        for key, version, is_tombstone in block:
            value = None if is_tombstone else b"%d:%s" % (version, FILLER[: chance.choice((0, 100, 300))])
            while True:
                try:
                    producer.produce(
                        options["topic"],
                        value,
                        key,
                        headers=[("number", str(version).encode())],
                        on_delivery=partial(delivered, key, version),
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(chance.choice((0, 0, 0.02)))
        note()
    left, deadline = 1, time.monotonic() + options.get("patience", 120)
    while left and time.monotonic() < deadline:
        left = producer.flush(0.5)
    note()
    if left:
        journal.note("wrong", f"{left} records were not acknowledged, though the broker was there")
