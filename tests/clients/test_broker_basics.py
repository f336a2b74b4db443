"""Producing and consuming with the clients people have, over every codec, restart and size."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import millstream
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for
from tests.support.wire_client import FETCH, METADATA, WireClient, answer, fetch

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"value %d " % n * (n % 7 + 1) for n in range(2000)]


@pytest.fixture(scope="module")
def broker() -> Iterator[millstream.Broker]:
    with millstream.Broker() as broker:
        yield broker


def produce(address: str, topic: str, values: list[bytes], **settings: object) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": address, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failed == []


def consume(address: str, topic: str, count: int, offset: int = 0, **settings: object) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False, **settings}
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[bytes] = []

    def more() -> bool:
        for message in consumer.consume(5000, timeout=0.5):
            assert message.error() is None, message.error()
            found.append(message.value())
        return len(found) >= count

    try:
        wait_for(more, what=f"{count} records")
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_it_wrote(broker: millstream.Broker, codec: str, acks: str) -> None:
    topic = f"confluent-{codec}-{acks}"
    produce(broker.address, topic, VALUES, **{"compression.type": codec, "acks": acks, "linger.ms": 5})
    assert consume(broker.address, topic, len(VALUES)) == VALUES


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_reads_what_it_wrote(broker: millstream.Broker, codec: str | None) -> None:
    topic = f"kafka-python-{codec}"
    producer = kafka.KafkaProducer(bootstrap_servers=broker.address, compression_type=codec)
    sent = [producer.send(topic, value, key=b"k", headers=[("h", b"1")]) for value in VALUES]
    producer.flush(30)
    assert [future.get().offset for future in sent] == list(range(len(VALUES)))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=broker.address, auto_offset_reset="earliest", consumer_timeout_ms=15_000
    )
    found = []
    for record in consumer:
        found.append(record.value)
        assert (record.key, list(record.headers)) == (b"k", [("h", b"1")])
        if len(found) == len(VALUES):
            break
    consumer.close()
    assert found == VALUES


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_reads_what_it_wrote(broker: millstream.Broker, codec: str | None) -> None:
    topic = f"aiokafka-{codec}"

    async def main() -> list[bytes | None]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.address, compression_type=codec, enable_idempotence=True
        )
        await producer.start()
        waiting = [await producer.send(topic, value) for value in VALUES]
        metadata = [await future for future in waiting]
        assert [one.offset for one in metadata] == list(range(len(VALUES)))
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=broker.address, auto_offset_reset="earliest"
        )
        await consumer.start()
        found: list[bytes | None] = []
        async with asyncio.timeout(20):
            while len(found) < len(VALUES):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [record.value for record in records]
        await consumer.stop()
        return found

    assert asyncio.run(main()) == VALUES


def test_one_client_reads_what_another_wrote_in_every_codec(broker: millstream.Broker) -> None:
    for codec in CODECS:
        produce(broker.address, "mixed", [b"from " + codec.encode()], **{"compression.type": codec})
    expected = [b"from " + codec.encode() for codec in CODECS]
    assert consume(broker.address, "mixed", len(CODECS)) == expected


def test_a_consumer_is_told_of_new_records_without_asking_again(broker: millstream.Broker) -> None:
    """A long poll of minutes is answered when the record comes, not when its time is up."""
    produce(broker.address, "live", [b"first"])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "live",
            "fetch.wait.max.ms": 250_000,
            "socket.timeout.ms": 300_000,
        }
    )
    consumer.assign([TopicPartition("live", 0, 0)])
    assert wait_for(lambda: consumer.poll(0.5), what="the first record").value() == b"first"
    assert consumer.poll(0.3) is None
    produce(broker.address, "live", [b"second"])
    assert wait_for(lambda: consumer.poll(0.5), what="the second record").value() == b"second"
    consumer.close()


def test_large_messages_pass_up_to_the_limit_of_the_topic() -> None:
    with millstream.Broker(topic={"max.message.bytes": "30000000"}) as broker:
        values = [os.urandom(size) for size in (1, 100_000, 1_000_000, 20_000_000, 3)]
        produce(broker.address, "large", values, **{"message.max.bytes": 30_000_000})
        assert consume(broker.address, "large", 5, **{"fetch.message.max.bytes": 1000}) == values


def test_a_message_that_is_too_large_is_refused_and_the_next_is_not(broker: millstream.Broker) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.address, "message.max.bytes": 5_000_000})
    producer.produce("limit", os.urandom(2_000_000), on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    producer.produce("limit", b"small", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None
    assert consume(broker.address, "limit", 1) == [b"small"]


def test_many_partitions_are_read_together(broker: millstream.Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("wide", 16)])["wide"].result(60)
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(16_000):
        producer.produce("wide", b"%d" % number * 40, partition=number % 16)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "w"})
    consumer.assign([TopicPartition("wide", p, 0) for p in range(16)])
    found: dict[int, list[bytes]] = {p: [] for p in range(16)}

    def more() -> bool:
        for message in consumer.consume(5000, timeout=0.5):
            assert message.error() is None
            found[message.partition()].append(message.value())
        return sum(map(len, found.values())) == 16_000

    wait_for(more, what="every record")
    consumer.close()
    assert found == {p: [b"%d" % n * 40 for n in range(p, 16_000, 16)] for p in range(16)}


def test_records_and_an_idempotent_producer_outlive_a_restart(tmp_path: Path) -> None:
    port = 0
    producer: Producer | None = None
    delivered = 0

    def count(error: object, message: object) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1

    for round_number in range(3):
        with millstream.Broker(tmp_path, port=port) as broker:
            port = int(broker.address.rsplit(":", 1)[1])
            if producer is None:
                producer = Producer(
                    {"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 0}
                )
            for number in range(500):
                producer.produce("kept", b"%d" % (round_number * 500 + number), on_delivery=count)
                if number == 250:
                    producer.poll(0)
            if round_number == 2:
                assert producer.flush(30) == 0
                assert consume(broker.address, "kept", 1500) == [b"%d" % n for n in range(1500)]
    assert delivered == 1500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_and_answers_what_is_in_flight(tmp_path: Path, number: int) -> None:
    with ServeProcess(tmp_path) as server:
        with WireClient(server.address) as client:
            client.call(METADATA, 12, topics=[{"name": "t"}], allow_auto_topic_creation=True)
            client.send(fetch(5, "t", wait=60_000))
            # An answer to somebody else: by then the long poll has been read as well.
            with WireClient(server.address) as other:
                other.call(METADATA, 12, topics=[])
            server.process.send_signal(number)
            correlation_id, found = answer(FETCH, 12, client.receive())
            assert correlation_id == 5
            assert found.responses[0].partitions[0].error_code.value == 0
            assert client.is_closed()
        assert server.wait() == 0
    assert "shut down cleanly" in server.logged()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_1000_partitions_are_back_after_a_clean_shutdown(tmp_path: Path) -> None:
    with millstream.Broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for future in admin.create_topics([NewTopic(f"many-{n}", 100) for n in range(10)]).values():
            future.result(60)
    with millstream.Broker(tmp_path) as broker:
        found = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=60)
        assert sum(len(topic.partitions) for topic in found.topics.values()) == 1000
