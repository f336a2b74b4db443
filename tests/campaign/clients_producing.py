"""Idempotent producers that number their records, and note which were acknowledged and where."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer

from tests.campaign.clients_common import IMPATIENT, now_ms, stopping
from tests.campaign.journal import Journal

FOR_EVER_MS = 2_000_000_000
RESERVED = 2000  # how many numbers are noted at a time as about to be sent
FILLER = bytes(range(33, 127)) * 400


class Numbers:
    """Numbers records per partition. Notes reservations and acknowledgements in as few lines as possible."""

    def __init__(self, journal: Journal, topic: str, partitions: int) -> None:
        self._journal, self._topic = journal, topic
        self.next = [0] * partitions
        self._reserved = [0] * partitions
        self._runs: dict[int, list[int]] = {}  # partition: number, count, offset, timestamp
        self._lock = threading.Lock()
        self._noted = time.monotonic()

    def take(self, partition: int) -> int:
        number = self.next[partition]
        if number >= self._reserved[partition]:
            self._reserved[partition] = number + RESERVED
            self._journal.note("sending", self._topic, partition, self._reserved[partition])
        self.next[partition] = number + 1
        return number

    def acknowledged(self, partition: int, number: int, offset: int, timestamp: int) -> None:
        with self._lock:
            run = self._runs.get(partition)
            if run is not None and run[0] + run[1] == number and run[2] + run[1] == offset:
                run[1] += 1
                return
            if run is not None:
                self._note(partition, run)
            self._runs[partition] = [number, 1, offset, timestamp]

    def _note(self, partition: int, run: list[int]) -> None:
        self._journal.note("acked", self._topic, partition, *run, now_ms())

    def note(self, *, every: float = 0.05) -> None:
        """Note acknowledgements, if that is due."""
        if time.monotonic() - self._noted < every:
            return
        with self._lock:
            self._noted = time.monotonic()
            for partition, run in self._runs.items():
                self._note(partition, run)
            self._runs.clear()

    def value(self, chance: Random, partition: int) -> bytes:
        number = self.take(partition)
        size = chance.choice((10, 50, 100, 200, 400)) if chance.random() < 0.999 else 30_000
        return b"%s:%d:%s" % (self._journal.life.encode(), number, FILLER[:size])


def with_librdkafka(address: str, journal: Journal, options: dict[str, Any]) -> None:
    chance = Random(journal.life + str(options["seed"]))
    topic, partitions = options["topic"], options["partitions"]
    numbers = Numbers(journal, topic, partitions)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": options.get("idempotent", True),
            "max.in.flight": 5 if options.get("idempotent", True) else 1,
            "acks": "all" if options.get("idempotent", True) else "1",
            "message.timeout.ms": 0,
            "message.send.max.retries": FOR_EVER_MS,
            "queue.buffering.max.messages": 20_000,
            "linger.ms": chance.choice((0, 1, 5, 20)),
            "batch.size": chance.choice((16_000, 100_000)),  # below the smallest segments
            "compression.type": chance.choice(("none", "lz4", "zstd", "gzip", "snappy")),
            **IMPATIENT,
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            journal.note("wrong", f"a record was refused: {error}")
            return
        number = int(message.value().split(b":", 2)[1])
        numbers.acknowledged(message.partition(), number, message.offset(), message.timestamp()[1])

    rate = options.get("rate", 0)
    began, sent = time.monotonic(), 0
    while not stopping():
        partition = chance.randrange(partitions)
        for _ in range(chance.randint(1, 400)):
            value = numbers.value(chance, partition)
            timestamp = now_ms() - chance.choice((0, 0, 0, 5, 300))
            while True:
                try:
                    producer.produce(
                        topic, value, partition=partition, timestamp=timestamp, on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
                    numbers.note()
            sent += 1
        producer.poll(0)
        numbers.note()
        while rate and sent > rate * (time.monotonic() - began) and not stopping():
            producer.poll(0.01)
            numbers.note()
    left = 1
    deadline = time.monotonic() + options.get("patience", 120)
    while left and time.monotonic() < deadline:
        left = producer.flush(0.5)
        numbers.note(every=0)
    if left:
        journal.note("wrong", f"{left} records were not acknowledged, though the broker was there")


def with_kafka_python(address: str, journal: Journal, options: dict[str, Any]) -> None:
    chance = Random(journal.life + str(options["seed"]))
    topic, partitions = options["topic"], options["partitions"]
    numbers = Numbers(journal, topic, partitions)
    producer = KafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=True,
        delivery_timeout_ms=600_000,
        retries=FOR_EVER_MS,
        linger_ms=2,
        reconnect_backoff_max_ms=200,
        max_block_ms=600_000,
    )

    def refused(error: BaseException) -> None:
        journal.note("wrong", f"kafka-python: a record was refused: {error!r}")

    while not stopping():
        partition = chance.randrange(partitions)
        futures = []
        for _ in range(chance.randint(1, 100)):
            value, timestamp = numbers.value(chance, partition), now_ms()
            future = producer.send(topic, value, partition=partition, timestamp_ms=timestamp)
            number = int(value.split(b":", 2)[1])
            future.add_callback(
                lambda sent, number=number, timestamp=timestamp: numbers.acknowledged(
                    sent.partition, number, sent.offset, timestamp
                )
            )
            future.add_errback(refused)
            futures.append(future)
        for future in futures:
            future.get(600)
        numbers.note()
        time.sleep(0.005)  # librdkafka makes the load; this client is here for the way it makes requests
    numbers.note(every=0)
    producer.close(timeout=10)
