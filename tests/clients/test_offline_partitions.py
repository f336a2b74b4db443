"""A partition whose records are gone is offline for every client, until a person accepts the loss."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.apache_kafka import free_port
from tests.support.command import CommandLine
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for

RECORDS = 1000


def produce(address: str, partition: int, count: int, *, timeout_ms: int = 30_000) -> list[int]:
    """Produce, and tell the error codes; none is 0."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": timeout_ms, "linger.ms": 20})
    for number in range(count):
        producer.produce(
            "t",
            b"%d" % number,
            partition=partition,
            on_delivery=lambda error, _: codes.append(error.code() if error else 0),
        )
    producer.flush(60)
    return codes


def a_consumer(address: str, **settings: object) -> Consumer:
    return Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False, **settings})


def _json(shell: CommandLine, *command: str) -> Any:
    return json.loads(shell.ok(*command, "--output", "json"))


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []

    def more() -> bool:
        messages = consumer.consume(count - len(values), 0.2)
        values.extend(message.value() for message in messages if not message.error())
        return len(values) >= count

    wait_for(more, what=f"{count} records", timeout=60)
    return values


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that lost a partition of 1,000 records, of which group g had read 500."""
    data = tmp_path / "data"
    with ServeProcess(data) as broker:
        CommandLine(broker.address).ok("topic", "create", "t", "--partitions", "2")
        assert produce(broker.address, 0, RECORDS) == [0] * RECORDS
        assert produce(broker.address, 1, 10) == [0] * 10
        consumer = a_consumer(broker.address)
        consumer.assign([TopicPartition("t", 0, 0)])
        read(consumer, 500)
        consumer.commit(offsets=[TopicPartition("t", 0, 500)], asynchronous=False)
        consumer.close()
    shutil.rmtree(data / "t-0")
    return data


def test_a_lost_partition_is_offline_until_the_loss_is_accepted(data: Path) -> None:
    known = "it was synced up to offset 1000, and group g committed offset 500"
    shell = CommandLine("127.0.0.1:1")
    checked = shell.run("log", "check", str(data))
    assert checked.returncode == 1
    assert f"t-0 is offline: the directory {data}/t-0 is missing, but {known}" in checked.stdout.decode()

    http = f"127.0.0.1:{free_port()}"
    with ServeProcess(data, settings={"http.listen": http}) as broker:
        assert known in broker.logged()
        # Nobody writes to it, nobody reads other records in place of the lost ones; the other one works.
        (code,) = produce(broker.address, 0, 1, timeout_ms=2000)
        assert code == KafkaError._MSG_TIMED_OUT
        assert produce(broker.address, 1, 5) == [0] * 5
        consumer = a_consumer(broker.address)
        consumer.assign([TopicPartition("t", 0, 500), TopicPartition("t", 1, 0)])
        assert len(read(consumer, 15)) == 15
        consumer.close()
        with urllib.request.urlopen(f"http://{http}/metrics") as answer:
            assert b'millstream_partition_offline{partition="0",topic="t"} 1.0' in answer.read()
        assert not (data / "t-0").exists()
        # Our own commands tell of it, and show the rest.
        shell = CommandLine(broker.address)
        ((lost, kept),) = [each["partitions"] for each in _json(shell, "topic", "describe", "t")]
        assert (lost["leader"], lost["end"], kept["end"]) == (None, None, 15)
        assert "it has no leader" in lost["problem"]
        assert [row["records"] for row in _json(shell, "topic", "list")] == [15]
        lag, _ = _json(shell, "group", "lag", "g")
        assert (lag["committed"], lag["records"]) == (500, None)
        assert "it has no leader" in lag["problem"]

    shell = CommandLine("127.0.0.1:1")
    assert "nothing is missing of t-1" in shell.refused("log", "accept-loss", str(data), "t-1")
    assert "is not a partition" in shell.refused("log", "accept-loss", str(data), "t")
    assert not (data / "accepted-losses").exists()
    assert "the next start continues" in shell.ok("log", "accept-loss", str(data), "t-0")
    with ServeProcess(data) as broker:
        assert produce(broker.address, 0, 1) == [0]
        shown = CommandLine(broker.address).ok("topic", "describe", "t", "--output", "json")
        partition = json.loads(shown)[0]["partitions"][0]
        assert (partition["start"], partition["end"]) == (RECORDS, RECORDS + 1)
        consumer = a_consumer(broker.address, **{"auto.offset.reset": "error"})
        consumer.assign([TopicPartition("t", 0, 500)])

        def told() -> bool:
            message = consumer.poll(0.2)
            assert message is None or message.error(), "a lost record was replaced by another one"
            return message is not None and message.error().code() == KafkaError._AUTO_OFFSET_RESET

        wait_for(told, what="the group is told that its offset is gone", timeout=30)
        consumer.close()
    assert "everything is in order" in shell.ok("log", "check", str(data))
