"""Readers with every Python client library that keep reading, each in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import aiokafka
import kafka
from confluent_kafka import Consumer


class Reader:
    """Keeps reading in its own thread, and remembers what it saw."""

    def __init__(self, read: Callable[[Reader], None]) -> None:
        self.seen: list[str] = []
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(read,))
        self._thread.start()

    def _run(self, read: Callable[[Reader], None]) -> None:
        try:
            read(self)
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(90)
        assert self.failure is None, self.failure


def with_confluent_kafka(address: str, topic: str, group: str) -> Reader:
    def read(reader: Reader) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 200,
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe([topic])
        while not reader.stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                reader.seen.append(message.value().decode())
        consumer.close()

    return Reader(read)


def with_aiokafka(address: str, topic: str, group: str) -> Reader:
    async def read_on(reader: Reader) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            metadata_max_age_ms=200,
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            while not reader.stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    reader.seen += [record.value.decode() for record in records]
        finally:
            await consumer.stop()

    return Reader(lambda reader: asyncio.run(read_on(reader)))


def with_kafka_python(address: str, topic: str, group: str) -> Reader:
    def read(reader: Reader) -> None:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            metadata_max_age_ms=200,
            enable_auto_commit=False,
        )
        assigned = time.monotonic()
        while not reader.stopping.is_set():
            for records in consumer.poll(100).values():
                reader.seen += [record.value.decode() for record in records]
            if consumer.assignment():
                assigned = time.monotonic()
            elif time.monotonic() > assigned + 10:
                # A consumer that led its group while the topic did not exist may never get partitions again.
                # This is a bug in the library: it happens on Apache Kafka too.
                consumer.unsubscribe()
                consumer.subscribe([topic])
                assigned = time.monotonic()
        consumer.close()

    return Reader(read)


LIBRARIES = [with_confluent_kafka, with_aiokafka, with_kafka_python]
