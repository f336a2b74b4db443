"""librdkafka's transactions, which are of the first protocol: committed, aborted, fenced, seen in metrics."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import millstream
from tests.support.waiting import wait_for

TIMEOUT = 30.0


@pytest.fixture(scope="module")
def http() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, http: str) -> Iterator[millstream.Broker]:
    data: Path = tmp_path_factory.mktemp("data")
    with millstream.Broker(data, num_partitions=3, http_listen=http) as broker:
        yield broker


def transactional(broker: millstream.Broker, name: str, **settings: object) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": name, "log_level": 0, **settings}
    )
    producer.init_transactions(TIMEOUT)
    return producer


def consumer(broker: millstream.Broker, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(message.value() for message in consumer.consume(1000, 0.2) if message.error() is None)
        return len(found) >= count

    wait_for(enough, timeout=TIMEOUT)
    return sorted(found)


def write(producer: Producer, topic: str, values: list[bytes]) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)


def test_readers_of_committed_records_see_what_was_committed(broker: millstream.Broker) -> None:
    producer = transactional(broker, "a")
    outcomes = {b"first": True, b"second": False, b"third": True}
    for word, commit in outcomes.items():
        producer.begin_transaction()
        write(producer, "seen", [word + b"-%d" % number for number in range(10)])
        if commit:
            producer.commit_transaction(TIMEOUT)
        else:
            producer.flush(TIMEOUT)
            producer.abort_transaction(TIMEOUT)
    for isolation, words in (("read_committed", 2), ("read_uncommitted", 3)):
        reader = consumer(broker, f"reads-{isolation}", isolation)
        reader.assign([TopicPartition("seen", index, 0) for index in range(3)])
        values = read(reader, words * 10)
        assert len(values) == words * 10
        assert any(value.startswith(b"second") for value in values) == (isolation == "read_uncommitted")
        reader.close()


def test_offsets_are_committed_with_the_records(broker: millstream.Broker) -> None:
    source = transactional(broker, "source")
    source.begin_transaction()
    write(source, "in", [b"%d" % number for number in range(9)])
    source.commit_transaction(TIMEOUT)

    copier = transactional(broker, "copier")
    reader = consumer(broker, "copiers")
    reader.subscribe(["in"])
    values = read(reader, 9)
    for commit in (False, True):
        copier.begin_transaction()
        write(copier, "out", values)
        copier.send_offsets_to_transaction(
            reader.position(reader.assignment()), reader.consumer_group_metadata(), TIMEOUT
        )
        if commit:
            copier.commit_transaction(TIMEOUT)
        else:
            copier.abort_transaction(TIMEOUT)
        committed = reader.committed(reader.assignment(), TIMEOUT)
        positions = {place.partition: place.offset for place in reader.position(reader.assignment())}
        assert {place.partition: place.offset for place in committed} == (
            positions if commit else dict.fromkeys(positions, -1001)
        )
    reader.close()
    check = consumer(broker, "checks")
    check.assign([TopicPartition("out", index, 0) for index in range(3)])
    assert read(check, 9) == values
    check.close()


def test_a_producer_that_was_replaced_is_told_so_and_its_records_are_not_seen(
    broker: millstream.Broker,
) -> None:
    old = transactional(broker, "one")
    old.begin_transaction()
    old.produce("replaced", b"from the old one", partition=0)
    old.flush(TIMEOUT)
    new = transactional(broker, "one")
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(TIMEOUT)
    assert caught.value.args[0].name() == "_FENCED"
    new.begin_transaction()
    new.produce("replaced", b"from the new one", partition=0)
    new.commit_transaction(TIMEOUT)
    reader = consumer(broker, "replacing")
    reader.assign([TopicPartition("replaced", 0, 0)])
    assert read(reader, 1) == [b"from the new one"]
    reader.close()


def test_a_transaction_that_holds_readers_back_is_seen_in_the_metrics(
    broker: millstream.Broker, http: str
) -> None:
    producer = transactional(broker, "hanging")
    before = _metrics(http)
    producer.begin_transaction()
    producer.produce("held", b"value", partition=1)
    producer.flush(TIMEOUT)
    during = _metrics(http)
    assert during["millstream_transactions_open"] == before["millstream_transactions_open"] + 1
    assert 'millstream_transaction_open_seconds{transactional_id="hanging"}' in during
    assert during['millstream_partition_unstable_records{partition="1",topic="held"}'] == 1
    assert 'millstream_partition_unstable_seconds{partition="1",topic="held"}' in during
    producer.commit_transaction(TIMEOUT)
    after = _metrics(http)
    assert after["millstream_transactions_open"] == before["millstream_transactions_open"]
    assert 'millstream_partition_unstable_records{partition="1",topic="held"}' not in after
    committed = "millstream_transactions_committed_total"
    assert after[committed] == before[committed] + 1
    assert after["millstream_transaction_markers_unwritten"] == 0


def _metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
