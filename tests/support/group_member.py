"""A consumer in a group, as a process that tests start, stop and kill.

    python -m tests.support.group_member ADDRESS GROUP TOPIC CLIENT [INSTANCE]

CLIENT is ``consumer`` (librdkafka in the consumer protocol), an assignment strategy (librdkafka in the
classic protocol), ``kafka-python`` or ``aiokafka``. It prints a line for each record, and then commits the
offsets, so every printed record counts as processed. On SIGTERM it leaves the group and ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys

_stopping = False


def _stop(*_: object) -> None:
    global _stopping
    _stopping = True


def with_librdkafka(address: str, group: str, topic: str, kind: str, instance: str) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    settings = {
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if kind == "consumer":
        settings |= {"group.protocol": "consumer"}
    else:
        settings |= {
            "partition.assignment.strategy": kind,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 200,
        }
    if instance:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    uncommitted = False
    try:
        while not _stopping:
            messages = [m for m in consumer.consume(50, timeout=0.1) if m.error() is None]
            for message in messages:
                print(message.partition(), message.offset(), message.value().decode())
            sys.stdout.flush()
            uncommitted = uncommitted or bool(messages)
            if uncommitted:
                try:
                    consumer.commit(asynchronous=False)
                    uncommitted = False
                except KafkaException as error:
                    # A rebalance came in between. If another member has the partition now, it reads these
                    # records again. If this member kept it, nobody does, so the next round commits them.
                    if error.args[0].code() in (KafkaError._NO_OFFSET,):
                        uncommitted = False
                        continue
                    print(f"commit: {error}", file=sys.stderr)
    finally:
        consumer.close()


def with_kafka_python(address: str, group: str, topic: str) -> None:
    import kafka
    from kafka.errors import KafkaError

    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=2000,
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
    )
    while not _stopping:
        for records in consumer.poll(100).values():
            for record in records:
                print(record.partition, record.offset, record.value.decode())
        sys.stdout.flush()
        try:
            consumer.commit()
        except KafkaError as error:  # a rebalance came in between
            print(f"commit: {error}", file=sys.stderr)
    consumer.close()


async def with_aiokafka(address: str, group: str, topic: str) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=2000,
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    await consumer.start()
    while not _stopping:
        fetched = await consumer.getmany(timeout_ms=100)
        for records in fetched.values():
            for record in records:
                print(record.partition, record.offset, record.value.decode())
        sys.stdout.flush()
        try:
            await consumer.commit()
        except KafkaError as error:  # a rebalance came in between
            print(f"commit: {error}", file=sys.stderr)
    await consumer.stop()


def main(address: str, group: str, topic: str, client: str, instance: str = "") -> None:
    signal.signal(signal.SIGTERM, _stop)
    if client == "kafka-python":
        with_kafka_python(address, group, topic)
    elif client == "aiokafka":
        asyncio.run(with_aiokafka(address, group, topic))
    else:
        with_librdkafka(address, group, topic, client, instance)


if __name__ == "__main__":
    main(*sys.argv[1:])
