"""Administration as real clients do it: topics, settings, records, groups and their offsets, the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import aiokafka.admin
import kafka.admin
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

import millstream
from tests.support.waiting import wait_for


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[millstream.Broker]:
    with millstream.Broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def admin(broker: millstream.Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def produce(broker: millstream.Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0


def error_of(future: object) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        future.result(60)  # type: ignore[attr-defined]
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_topics_are_created_grown_described_and_deleted(admin: AdminClient) -> None:
    created = admin.create_topics(
        [
            NewTopic("orders", 2, 1, config={"retention.ms": "60000"}),
            NewTopic("bad name", 1, 1),
            NewTopic("copies", 1, 3),
            NewTopic("odd", 1, 1, config={"no.such.setting": "1"}),
        ]
    )
    created["orders"].result(60)
    assert error_of(created["bad name"]).code() == KafkaError.TOPIC_EXCEPTION
    assert "only ASCII letters" in error_of(created["bad name"]).str()
    assert error_of(created["copies"]).code() == KafkaError.INVALID_REPLICATION_FACTOR
    assert "single node" in error_of(created["copies"]).str()
    assert error_of(created["odd"]).code() == KafkaError.INVALID_CONFIG
    assert (
        error_of(admin.create_topics([NewTopic("orders", 1)])["orders"]).code()
        == KafkaError.TOPIC_ALREADY_EXISTS
    )

    admin.create_partitions([NewPartitions("orders", 5)])["orders"].result(60)
    fewer = admin.create_partitions([NewPartitions("orders", 3)])["orders"]
    assert error_of(fewer).code() == KafkaError.INVALID_PARTITIONS
    described = admin.describe_topics(TopicCollection(["orders"]))["orders"].result(60)
    assert len(described.partitions) == 5

    admin.delete_topics(["orders"])["orders"].result(60)
    assert error_of(admin.delete_topics(["orders"])["orders"]).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "orders" not in admin.list_topics(timeout=60).topics


def test_settings_are_described_and_changed(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 1, config={"retention.ms": "60000"})])["t"].result(60)
    topic = ConfigResource(ResourceType.TOPIC, "t")
    entries = admin.describe_configs([topic])[topic].result(60)
    assert entries["retention.ms"].value == "60000"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["segment.bytes"].is_default

    change = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("segment.ms", "5000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(60)
    entries = admin.describe_configs([topic])[topic].result(60)
    assert entries["cleanup.policy"].value == "delete,compact"
    assert entries["retention.ms"].is_default
    assert entries["segment.ms"].value == "5000"

    wrong = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry("segment.ms", "soon", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    error = error_of(admin.incremental_alter_configs([wrong])[wrong])
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "whole number" in error.str()

    broker = ConfigResource(ResourceType.BROKER, "0")
    entries = admin.describe_configs([broker])[broker].result(60)
    assert entries["num.partitions"].value == "1"
    assert entries["listen"].is_read_only
    more = ConfigResource(
        ResourceType.BROKER,
        "0",
        incremental_configs=[
            ConfigEntry("num.partitions", "3", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([more])[more].result(60)
    admin.create_topics([NewTopic("u", -1)])["u"].result(60)
    assert len(admin.list_topics("u", timeout=60).topics["u"].partitions) == 3


def test_settings_changed_while_running_outlive_a_restart(tmp_path: Path) -> None:
    resource = ConfigResource(
        ResourceType.BROKER,
        "0",
        incremental_configs=[
            ConfigEntry("num.partitions", "4", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    with millstream.Broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.incremental_alter_configs([resource])[resource].result(60)
    with millstream.Broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("t", -1)])["t"].result(60)
        assert len(admin.list_topics("t", timeout=60).topics["t"].partitions) == 4


def test_records_are_deleted_up_to_an_offset(broker: millstream.Broker, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 1)])["t"].result(60)
    produce(broker, "t", 10)
    at = TopicPartition("t", 0, 4)
    assert admin.delete_records([at])[at].result(60).low_watermark == 4
    beyond = TopicPartition("t", 0, 11)
    assert error_of(admin.delete_records([beyond])[beyond]).code() == KafkaError.OFFSET_OUT_OF_RANGE
    end = TopicPartition("t", 0, -1)
    assert admin.delete_records([end])[end].result(60).low_watermark == 10


def test_groups_are_listed_described_and_deleted(broker: millstream.Broker, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 2)])["t"].result(60)
    produce(broker, "t", 3)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    wait_for(lambda: consumer.poll(0.1), what="a record")
    consumer.commit(asynchronous=False)

    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(60)
    assert [(group.group_id, group.is_simple_consumer_group) for group in listed.valid] == [("g", False)]
    described = admin.describe_consumer_groups(["g"])["g"].result(60)
    (member,) = described.members
    assert (member.client_id, member.host) == ("reader", "/127.0.0.1")
    assert {(p.topic, p.partition) for p in member.assignment.topic_partitions} == {("t", 0), ("t", 1)}
    assert error_of(admin.delete_consumer_groups(["g"])["g"]).code() == KafkaError.NON_EMPTY_GROUP

    offsets = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 2)])
    with_members = admin.alter_consumer_group_offsets([offsets])["g"].result(60)
    assert with_members.topic_partitions[0].error.code() == KafkaError.UNKNOWN_MEMBER_ID
    consumer.close()

    admin.alter_consumer_group_offsets([offsets])["g"].result(60)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(60)
    assert [(p.partition, p.offset) for p in found.topic_partitions if p.offset >= 0] == [(0, 2)]
    admin.delete_consumer_groups(["g"])["g"].result(60)
    assert error_of(admin.delete_consumer_groups(["g"])["g"]).code() == KafkaError.GROUP_ID_NOT_FOUND
    assert admin.list_consumer_groups().result(60).valid == []


def test_the_cluster_is_described(broker: millstream.Broker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(60)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.address]
    assert len(cluster.cluster_id) == 22


def test_an_idempotent_producer_gets_its_id(broker: millstream.Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    delivered: list[object] = []
    for number in range(100):
        producer.produce("auto", str(number), on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(60) == 0
    assert delivered == [None] * 100


def test_kafka_python_administers(broker: millstream.Broker, tmp_path: Path) -> None:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        admin.create_topics([kafka.admin.NewTopic("t", 2, 1)])
        assert "t" in admin.list_topics()
        produce(broker, "t", 10)
        admin.create_partitions({"t": kafka.admin.NewPartitions(3)})
        assert len(admin.describe_topics(["t"])[0]["partitions"]) == 3
        directories = admin.describe_log_dirs()
        assert str(tmp_path / "data") in str(directories)
        assert admin.describe_cluster()["brokers"][0]["broker_id"] == 0
        admin.delete_topics(["t"])
        assert "t" not in admin.list_topics()
    finally:
        admin.close()


async def _administer_with_aiokafka(address: str) -> None:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        created = await admin.create_topics([aiokafka.admin.NewTopic("t", 2, 1)])
        assert [tuple(error)[:2] for error in created.topic_errors] == [("t", 0)]
        assert "t" in await admin.list_topics()
        await admin.create_partitions({"t": aiokafka.admin.NewPartitions(3)})
        assert len((await admin.describe_topics(["t"]))[0]["partitions"]) == 3
        assert await admin.list_consumer_groups() == []
        await admin.delete_topics(["t"])
        assert "t" not in await admin.list_topics()
    finally:
        await admin.close()


def test_aiokafka_administers(broker: millstream.Broker) -> None:
    import asyncio

    asyncio.run(asyncio.wait_for(_administer_with_aiokafka(broker.address), 30))
