"""Creates, fills and reads topics for tests with confluent-kafka, a client that is not millstream's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from millstream.records.build import Record
from tests.support.waiting import wait_for

_numbers = itertools.count()


def create_topic(
    address: str, name: str = "", partitions: int = 2, config: Mapping[str, str] | None = None
) -> str:
    """Create a topic, wait until its partitions can be read, and return its name, which is generated unless
    given. Apache Kafka answers when its controller knows the topic; its broker knows it somewhat later.
    """
    name = name or f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])
    made[name].result(60)
    ends = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
    wait_for(lambda: _are_served(admin, ends), what=f"the partitions of {name} have a leader")
    return name


def _are_served(admin: AdminClient, ends: dict[TopicPartition, OffsetSpec]) -> bool:
    try:
        for found in admin.list_offsets(ends, request_timeout=30).values():
            found.result(60)
    except KafkaException:  # librdkafka does not say of these which are worth another try
        return False
    return True


def delete_topic(address: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([name])[name].result(60)


def set_group_settings(address: str, group: str, settings: Mapping[str, str]) -> None:
    """Set settings of a group, as an admin client does."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    admin = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)


def end_offsets(address: str, topic: str, partitions: int) -> dict[int, int]:
    """The end of each partition's log."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends"})
    try:
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=60)[1]
            for index in range(partitions)
        }
    finally:
        consumer.close()


def delete_records(address: str, topic: str, partition: int, before: int) -> None:
    """Delete the records of a partition before an offset, as retention would."""
    admin = AdminClient({"bootstrap.servers": address})
    wanted = TopicPartition(topic, partition, before)
    for done in admin.delete_records([wanted]).values():
        done.result(60)


def produce(address: str, topic: str, records: Iterable[Record], partition: int = 0, **settings: Any) -> None:
    """Produce records to one partition, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, **settings})
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        timestamp = {"timestamp": record.timestamp} if record.timestamp >= 0 else {}
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            headers=list(record.headers),
            on_delivery=delivered,
            **timestamp,
        )
        producer.poll(0)
    producer.flush(30)
    assert not failures, failures


def values(*texts: object) -> list[Record]:
    """Records with these values and nothing else."""
    return [Record(None, str(text).encode()) for text in texts]


def consume(address: str, topic: str, partitions: int = 2) -> list[tuple[int, Record]]:
    """All records in a topic, each with its partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    found = []
    try:
        for partition in range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 15)
            if high == low:
                continue
            consumer.assign([TopicPartition(topic, partition, low)])
            while consumer.position([TopicPartition(topic, partition)])[0].offset < high:
                for message in consumer.consume(10_000, 1.0):
                    assert message.error() is None, message.error()
                    headers = tuple(message.headers() or ())
                    record = Record(
                        message.key(), message.value(), headers, message.timestamp()[1], message.offset()
                    )
                    found.append((partition, record))
    finally:
        consumer.close()
    return found
