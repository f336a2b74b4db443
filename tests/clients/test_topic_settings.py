"""Every topic setting of Apache Kafka is taken by CreateTopics, and those that say so are kept to: on both
brokers, so that what is expected here is what Kafka does."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.text.position import TopicPartition as Place
from millstream.records.batch import batches
from millstream.records.compression import NAMES

# Apache Kafka's, as of 4.3, each with a value that is not its default.
SETTINGS = {
    "cleanup.policy": "compact",
    "compression.gzip.level": "5",
    "compression.lz4.level": "12",
    "compression.type": "zstd",
    "compression.zstd.level": "7",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "1000",
    "flush.messages": "100000",
    "flush.ms": "100000",
    "follower.replication.throttled.replicas": "0:0",
    "index.interval.bytes": "1024",
    "leader.replication.throttled.replicas": "*",
    "local.retention.bytes": "1000",
    "local.retention.ms": "1000",
    "max.compaction.lag.ms": "100000",
    "max.message.bytes": "100000",
    "message.timestamp.after.max.ms": "100000",
    "message.timestamp.before.max.ms": "100000",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "min.compaction.lag.ms": "1000",
    "min.insync.replicas": "1",
    "preallocate": "true",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "true",
    "remote.storage.enable": "false",
    "retention.bytes": "100000",
    "retention.ms": "100000",
    "segment.bytes": "2097152",
    "segment.index.bytes": "4096",
    "segment.jitter.ms": "1000",
    "segment.ms": "100000",
    "unclean.leader.election.enable": "true",
}
CODECS = {"uncompressed": "none", **{name: name for name in NAMES[1:]}}


def test_a_topic_may_have_every_setting_that_kafka_knows(admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1, config=SETTINGS)
    told = {setting.name: setting for setting in admin.topic_config(name)}
    kafkas = {setting for setting in told if not setting.startswith("millstream.")}
    assert kafkas - {"internal.segment.bytes"} == set(SETTINGS)
    assert {setting: told[setting].value for setting in SETTINGS} == SETTINGS
    assert all(told[setting].own for setting in SETTINGS)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("compression.type", "brotli"),
        ("compression.type", "none"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("leader.replication.throttled.replicas", "one"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused(admin: Admin, name: str, setting: str, value: str) -> None:
    with pytest.raises(Exception, match=setting):
        admin.create_topic(name, partitions=1, config={setting: value})


def codecs_in(admin: Admin, topic: str) -> list[str]:
    """The codec of every batch of partition 0."""
    cluster = Cluster(admin.connection)
    place = Place(topic, 0)
    try:
        start, end = cluster.ends([place], EARLIEST)[place], cluster.ends([place], LATEST)[place]
        assert end > start
        link = cluster.leader(place)
        link.send_fetch({place: (start, 1 << 20)}, wait_ms=1000, read_committed=False)
        (answer,) = link.receive_fetch()
        return [NAMES[header.codec] for _, header in batches(bytes(answer.records))]
    finally:
        cluster.close()


@pytest.mark.parametrize("kept", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_kept_in_the_codec_of_their_topic(
    admin: Admin, address: str, name: str, kept: str
) -> None:
    levels = {"compression.gzip.level": "1", "compression.lz4.level": "12", "compression.zstd.level": "-5"}
    admin.create_topic(name, partitions=2, config={"compression.type": kept, **levels})
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True}
        )
        for number in range(50):
            value = f"{codec} {number} {'x' * 100}"
            sent.append(value)
            producer.produce(name, value, key=str(number), partition=0, headers=[("h", b"1")])
            if number % 10 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0
    assert set(codecs_in(admin, name)) == {CODECS[kept]}
    consumer = Consumer({"bootstrap.servers": address, "group.id": name})
    consumer.assign([TopicPartition(name, 0, 0)])
    read = []
    while len(read) < len(sent):
        (record,) = consumer.consume(1, 60)
        assert record.error() is None
        assert record.headers() == [("h", b"1")]
        read.append(record.value().decode())
    consumer.close()
    assert read == sent


def test_a_topic_that_exists_may_be_given_a_codec(admin: Admin, address: str, name: str) -> None:
    admin.create_topic(name, partitions=1)
    producer = Producer({"bootstrap.servers": address})
    producer.produce(name, b"x" * 1000)
    producer.flush(60)
    admin.alter_topic(name, {"compression.type": "lz4"})
    producer.produce(name, b"x" * 1000)
    producer.flush(60)
    admin.alter_topic(name, {}, unset=["compression.type"])
    producer.produce(name, b"x" * 1000)
    producer.flush(60)
    assert codecs_in(admin, name) == ["none", "lz4", "none"]
