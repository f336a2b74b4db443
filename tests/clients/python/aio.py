"""aiokafka, which is asked in its own way: everything is awaited. It can't delete groups."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import CommitFailedError

from tests.clients.python.command import Stop, record, say, tell

READING = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}


class Client:
    def __init__(self, address: str) -> None:
        self.address = {"bootstrap_servers": address}

    async def _with_admin(self, work: Any) -> None:
        admin = AIOKafkaAdminClient(**self.address)
        await admin.start()
        try:
            await work(admin)
        finally:
            await admin.close()

    async def administer(self, topic: str) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            async def partitions() -> int:
                return len((await admin.describe_topics([topic]))[0]["partitions"])

            async def setting() -> Any:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
                (answer,) = await admin.describe_configs([resource])
                return next(entry[1] for entry in answer.resources[0][4] if entry[0] == "retention.ms")

            new = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "60000"})
            await admin.create_topics([new])
            again = (await admin.create_topics([new])).topic_errors[0][1]
            said = {"again": again, "partitions": await partitions(), "retention": await setting()}
            await admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "70000"})]
            )
            said["altered"] = await setting()
            await admin.create_partitions({topic: NewPartitions(3)})
            said["grown"] = await partitions()
            said["listed"] = topic in await admin.list_topics()
            await admin.delete_topics([topic])
            said["missing"] = (await admin.delete_topics([topic])).topic_error_codes[0][1]
            say(**said)

        await self._with_admin(work)

    async def produce(self, topic: str, count: str, codec: str) -> None:
        compression = None if codec == "none" else codec
        producer = AIOKafkaProducer(**self.address, compression_type=compression, enable_idempotence=True)
        await producer.start()
        sent = [await producer.send(topic, **record(number)) for number in range(int(count))]
        for told in await asyncio.gather(*sent):
            say(partition=told.partition, offset=told.offset)
        await producer.stop()

    async def consume(self, group: str, topic: str, protocol: str) -> None:
        stop = Stop()
        consumer = AIOKafkaConsumer(
            topic,
            **self.address,
            **READING,
            group_id=group,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=2000,
        )
        await consumer.start()
        while not stop:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for each in records:
                    tell(each.partition, each.offset, each.key, each.value, each.headers)
                try:
                    await consumer.commit()
                except CommitFailedError as error:
                    print(f"commit: {error}", file=sys.stderr)  # a rebalance came between
        await consumer.stop()

    async def read(self, topic: str, partition: str, where: str, count: str) -> None:
        consumer = AIOKafkaConsumer(**self.address, **READING, group_id=None)
        await consumer.start()
        wanted = TopicPartition(topic, int(partition))
        consumer.assign([wanted])
        offset = int(where.lstrip("@"))
        if where.startswith("@"):
            offset = (await consumer.offsets_for_times({wanted: offset}))[wanted].offset
        consumer.seek(wanted, offset)
        for _ in range(int(count)):
            each = await consumer.getone()
            tell(each.partition, each.offset, each.key, each.value, each.headers)
        await consumer.stop()

    async def transact(self, topic: str, name: str) -> None:
        producer = AIOKafkaProducer(**self.address, transactional_id=name)
        await producer.start()
        for word in ("yes", "no", "also"):
            await producer.begin_transaction()
            for number in range(2):
                await producer.send_and_wait(topic, f"{word}-{number}".encode(), partition=0)
            await (producer.abort_transaction if word == "no" else producer.commit_transaction)()
        await producer.stop()

    async def describe_group(self, group: str, topic: str) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            (answer,) = await admin.describe_consumer_groups([group])
            _, _, state, _, _, members, *_ = answer.groups[0]
            fetched = await admin.list_consumer_group_offsets(group)
            offsets = {str(place.partition): found.offset for place, found in fetched.items()}
            say(state=state, members=len(members), offsets=offsets)

        await self._with_admin(work)


async def main() -> None:
    address, command, *rest = sys.argv[1:]
    await getattr(Client(address), command.replace("-", "_"))(*rest)


if __name__ == "__main__":
    asyncio.run(main())
