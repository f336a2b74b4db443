"""kafka-python. Without further libraries it compresses by gzip alone."""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from kafka.errors import CommitFailedError, KafkaError

from tests.clients.python.command import Stop, record, say, tell

READING = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}


class Client:
    def __init__(self, address: str) -> None:
        self.address = {"bootstrap_servers": address}

    def administer(self, topic: str) -> None:
        with KafkaAdminClient(**self.address) as admin:
            new = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "60000"})
            admin.create_topics([new])
            said: dict[str, Any] = {"again": _code(lambda: admin.create_topics([new]))}
            said |= {"partitions": _partitions(admin, topic), "retention": _setting(admin, topic)}
            changes = {"retention.ms": (AlterConfigOp.SET, "70000")}
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changes)])
            said["altered"] = _setting(admin, topic)
            admin.create_partitions({topic: NewPartitions(3)})
            said["grown"] = _partitions(admin, topic)
            said["listed"] = topic in admin.list_topics()
            admin.delete_topics([topic])
            said["missing"] = _code(lambda: admin.delete_topics([topic]))
            say(**said)

    def produce(self, topic: str, count: str, codec: str) -> None:
        with KafkaProducer(**self.address, compression_type=None if codec == "none" else codec) as producer:
            sent = [producer.send(topic, **record(number)) for number in range(int(count))]
            for future in sent:
                told = future.get(20)
                say(partition=told.partition, offset=told.offset)

    def consume(self, group: str, topic: str, protocol: str) -> None:
        stop = Stop()
        with KafkaConsumer(**self.address, **READING, group_id=group, heartbeat_interval_ms=500) as consumer:
            # Known before it joins. A leader that does not know the topic yet assigns nothing, and on a busy
            # machine this client sometimes stays with that.
            while not consumer.partitions_for_topic(topic) and not stop:
                pass
            consumer.subscribe([topic])
            while not stop:
                for records in consumer.poll(100).values():
                    for each in records:
                        tell(each.partition, each.offset, each.key, each.value, each.headers)
                    try:
                        consumer.commit()
                    except CommitFailedError as error:
                        print(f"commit: {error}", file=sys.stderr)  # a rebalance came between

    def read(self, topic: str, partition: str, where: str, count: str) -> None:
        with KafkaConsumer(**self.address, **READING, group_id=None) as consumer:
            wanted = TopicPartition(topic, int(partition))
            consumer.assign([wanted])
            if where.startswith("@"):
                found = consumer.offsets_for_times({wanted: int(where[1:])})[wanted]
                consumer.seek(wanted, found.offset)
            else:
                consumer.seek(wanted, int(where))
            for _ in range(int(count)):
                each = next(consumer)
                tell(each.partition, each.offset, each.key, each.value, each.headers)

    def transact(self, topic: str, name: str) -> None:
        with KafkaProducer(**self.address, transactional_id=name) as producer:
            producer.init_transactions()
            for word in ("yes", "no", "also"):
                producer.begin_transaction()
                for number in range(2):
                    producer.send(topic, f"{word}-{number}".encode(), partition=0).get(20)
                (producer.abort_transaction if word == "no" else producer.commit_transaction)()

    def describe_group(self, group: str, topic: str) -> None:
        with KafkaAdminClient(**self.address) as admin:
            described = admin.describe_groups([group])[group]
            fetched = admin.list_group_offsets(group)[group]
            offsets = {str(place.partition): found.offset for place, found in fetched.items()}
            say(state=described["group_state"], members=len(described["members"]), offsets=offsets)

    def delete_group(self, group: str) -> None:
        with KafkaAdminClient(**self.address) as admin:
            admin.delete_groups([group])


def _partitions(admin: KafkaAdminClient, topic: str) -> int:
    return len(admin.describe_topics([topic])[0]["partitions"])


def _setting(admin: KafkaAdminClient, topic: str) -> Any:
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return described["topic"][topic]["retention.ms"]["value"]


def _code(call: Any) -> int:
    try:
        call()
    except KafkaError as error:
        return int(error.errno)
    return 0


if __name__ == "__main__":
    address, command, *rest = sys.argv[1:]
    getattr(Client(address), command.replace("-", "_"))(*rest)
