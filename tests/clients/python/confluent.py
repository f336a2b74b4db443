"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

import sys

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.clients.python.command import Stop, record, say, tell

READING = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}


class Client:
    def __init__(self, address: str) -> None:
        self.address = {"bootstrap.servers": address, "log_level": 0}
        self.admin = AdminClient(self.address)

    def administer(self, topic: str) -> None:
        admin = self.admin
        new = NewTopic(topic, 2, 1, config={"retention.ms": "60000"})
        admin.create_topics([new])[topic].result(60)
        said: dict[str, object] = {"again": _code(lambda: admin.create_topics([new])[topic].result(60))}
        said |= {"partitions": self._partitions(topic), "retention": self._setting(topic)}
        change = ConfigEntry("retention.ms", "70000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(60)
        said["altered"] = self._setting(topic)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
        said["grown"] = self._partitions(topic)
        said["listed"] = topic in admin.list_topics(timeout=90).topics
        admin.delete_topics([topic])[topic].result(60)
        said["missing"] = _code(lambda: admin.delete_topics([topic])[topic].result(60))
        say(**said)

    def _partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=90).topics[topic].partitions)

    def _setting(self, topic: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return str(self.admin.describe_configs([resource])[resource].result(60)["retention.ms"].value)

    def produce(self, topic: str, count: str, codec: str) -> None:
        producer = Producer({**self.address, "compression.type": codec, "enable.idempotence": True})

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is not None:
                raise KafkaException(error)
            say(partition=message.partition(), offset=message.offset())  # type: ignore[attr-defined]

        for number in range(int(count)):
            producer.produce(topic, on_delivery=delivered, **record(number))
        assert producer.flush(60) == 0

    def consume(self, group: str, topic: str, protocol: str) -> None:
        stop = Stop()
        consumer = Consumer({**self.address, **READING, "group.id": group, "group.protocol": protocol})
        consumer.subscribe([topic])
        while not stop:
            message = consumer.poll(0.1)
            if message is None:
                continue
            assert message.error() is None, message.error()
            tell(message.partition(), message.offset(), message.key(), message.value(), message.headers())
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException as error:
                print(f"commit: {error}", file=sys.stderr)  # a rebalance came between: it is read again
        consumer.close()

    def read(self, topic: str, partition: str, where: str, count: str) -> None:
        consumer = Consumer({**self.address, **READING, "group.id": "unused"})
        wanted = TopicPartition(topic, int(partition), int(where.lstrip("@")))
        if where.startswith("@"):
            (wanted,) = consumer.offsets_for_times([wanted], 20)
        consumer.assign([wanted])
        for message in consumer.consume(int(count), 20):
            assert message.error() is None, message.error()
            tell(message.partition(), message.offset(), message.key(), message.value(), message.headers())
        consumer.close()

    def transact(self, topic: str, name: str) -> None:
        producer = Producer({**self.address, "transactional.id": name})
        producer.init_transactions(20)
        for word in ("yes", "no", "also"):
            producer.begin_transaction()
            for number in range(2):
                producer.produce(topic, f"{word}-{number}", partition=0)
            producer.flush(60)
            (producer.abort_transaction if word == "no" else producer.commit_transaction)(20)

    def describe_group(self, group: str, topic: str) -> None:
        described = self.admin.describe_consumer_groups([group])[group].result(60)
        fetched = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(
            20
        )
        offsets = {str(each.partition): each.offset for each in fetched.topic_partitions}
        state = described.state.name.title().replace("_", "")
        say(state=state, members=len(described.members), offsets=offsets)

    def delete_group(self, group: str) -> None:
        self.admin.delete_consumer_groups([group])[group].result(60)


def _code(call: object) -> int:
    try:
        call()  # type: ignore[operator]
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


if __name__ == "__main__":
    address, command, *rest = sys.argv[1:]
    getattr(Client(address), command.replace("-", "_"))(*rest)
