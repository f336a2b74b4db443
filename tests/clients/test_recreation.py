"""Readers that stay attached while their topic is deleted and created again under the same name: what they
get afterwards is the new topic, from its start, whoever's client it is and whichever broker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tests.support.topics import create_topic, delete_topic, produce, values
from tests.support.waiting import wait_for

OLD, NEW = 20, 5  # records; more before than after, so that the old position is beyond the new end


class Reader:
    """Reads on in a thread of its own, and remembers what it saw."""

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
        self._thread.join(30)
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
        while not reader.stopping.is_set():
            for records in consumer.poll(100).values():
                reader.seen += [record.value.decode() for record in records]
        consumer.close()

    return Reader(read)


def topic_id(address: str, topic: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": address})
    try:
        return str(admin.describe_topics(TopicCollection([topic]))[topic].result(15).topic_id)
    except KafkaException:
        return None


@pytest.mark.parametrize("attach", [with_confluent_kafka, with_aiokafka, with_kafka_python])
def test_a_reader_goes_on_with_the_new_topic(
    address: str, name: str, attach: Callable[[str, str, str], Reader]
) -> None:
    create_topic(address, name, 1)
    old_id = topic_id(address, name)
    produce(address, name, values(*(f"old {n}" for n in range(OLD))))
    reader = attach(address, name, f"{name}-group")
    try:
        wait_for(lambda: len(reader.seen) == OLD, timeout=30, what="it has read the old ones")
        delete_topic(address, name)

        def created() -> bool:
            with contextlib.suppress(KafkaException):  # some readers create what they miss
                create_topic(address, name, 1)
            return topic_id(address, name) not in (None, old_id)

        wait_for(created, what="it is there again")
        produce(address, name, values(*(f"new {n}" for n in range(NEW))))
        wait_for(lambda: reader.seen[-1] == f"new {NEW - 1}", timeout=30, what="it has read the new ones")
    finally:
        reader.stop()
    assert reader.seen == [f"old {n}" for n in range(OLD)] + [f"new {n}" for n in range(NEW)]
