"""Kafka's own tools that use transactions: its tests' copier, its load generator, TransactionsCommand."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.apache_kafka import jars, java, run_tool
from tests.support.maven import JarsUnavailable
from tests.support.topics import create_topic, produce, values
from tests.support.transactional import Confluent, read_with_confluent
from tests.support.waiting import wait_for


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    try:
        jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))


def copier(address: str, name: str, number: int, *more: str) -> list[str]:
    return java(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", address, "--input-topic", name, "--output-topic", f"{name}-copy"),
        *("--consumer-group", name, "--transactional-id", f"{name}-{number}", "--transaction-size", "50"),
        *(
            "--input-partition",
            "0",
            "--enable-random-aborts",
            *more,
        ),  # asked for in a group as well, for nothing
        heap="128m",
    )


def fill(address: str, name: str, partitions: int, count: int) -> dict[int, list[str]]:
    """An input topic and an empty one for its copy; what each partition holds."""
    sent = {p: [f"{p}.{number}" for number in range(count)] for p in range(partitions)}
    create_topic(address, name, partitions)
    create_topic(address, f"{name}-copy", partitions)
    for partition, texts in sent.items():
        produce(address, name, values(*texts), partition)
    return sent


def read(address: str, topic: str, partitions: int, isolation: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {p: [] for p in range(partitions)}
    for partition, _, value in read_with_confluent(address, topic, partitions, isolation):
        found[partition].append(value)
    return found


def group_offsets(address: str, group: str, topic: str, partitions: int) -> list[int]:
    settings = {"bootstrap.servers": address, "group.id": group, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    places = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=90)
    consumer.close()
    return [place.offset for place in places]


def test_the_copier_copies_once_however_often_it_aborts(address: str, name: str) -> None:
    sent = fill(address, name, 1, 1000)
    command = copier(address, name, 1, "--max-messages", "1000")
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["totalProcessed"] == 1000
    assert read(address, f"{name}-copy", 1, "read_committed") == sent
    assert len(read(address, f"{name}-copy", 1, "read_uncommitted")[0]) > 1000  # 1 in 3 of 20 was aborted
    assert group_offsets(address, name, name, 1) == [1000]


def test_copiers_in_a_group_share_the_work_and_copy_once(address: str, name: str) -> None:
    sent = fill(address, name, 4, 500)
    running = [
        subprocess.Popen(
            copier(address, name, number, "--group-mode", "--use-group-metadata"), stdout=subprocess.DEVNULL
        )
        for number in range(2)
    ]

    def copied() -> bool:
        assert not any(process.poll() for process in running), "a copier failed"
        return read(address, f"{name}-copy", 4, "read_committed") == sent

    try:
        wait_for(copied, timeout=90, what="everything is copied once", every=0.5)
        for process in running:
            process.terminate()
            process.wait(400)
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert read(address, f"{name}-copy", 4, "read_committed") == sent
    assert group_offsets(address, name, name, 4) == [500] * 4


def test_the_load_generator_commits_its_last_transaction(address: str, name: str) -> None:
    create_topic(address, name, 1)
    done = run_tool(
        "ProducerPerformance",
        *("--topic", name, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", name, "--transaction-duration-ms", "20", "--bootstrap-server", address),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5000 records sent" in done.stdout
    assert len(read(address, name, 1, "read_committed")[0]) == 5000


# TransactionsCommand


def transactions(address: str, *arguments: str) -> list[dict[str, str]]:
    """The rows of the table it prints, by the names in its head."""
    done = run_tool("TransactionsCommand", "--bootstrap-server", address, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    head, *rows = [line.split("\t") for line in done.stdout.splitlines() if line.strip()] or [[""]]
    names = [cell.strip() for cell in head]
    return [dict(zip(names, (cell.strip() for cell in row), strict=False)) for row in rows]


@pytest.fixture
def hanging(address: str, name: str) -> Iterator[Confluent]:
    """A transaction that is left open on partition 0 of a topic of its own name, from offset 1."""
    create_topic(address, name, 1)
    produce(address, name, values("before"))
    producer = Confluent(address, name, timeout_ms=600_000)
    producer.begin()
    producer.send(name, 0, "hanging")
    producer.flush()
    yield producer
    producer.close()


def test_an_open_transaction_is_listed_described_and_traced_to_its_producer(
    address: str, name: str, hanging: Confluent
) -> None:
    (listed,) = [row for row in transactions(address, "list") if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    (described,) = transactions(address, "describe", "--transactional-id", name)
    assert described["ProducerId"] == listed["ProducerId"]
    assert described["TransactionTimeoutMs"] == "600000"
    assert described["TopicPartitions"] == f"{name}-0"
    (producer,) = [
        row
        for row in transactions(address, "describe-producers", "--topic", name, "--partition", "0")
        if row["ProducerId"] == listed["ProducerId"]
    ]
    assert producer["CurrentTransactionStartOffset"] == "1"
    assert producer["LastSequence"] == "0"
    # Its coordinator knows it, so it is long, perhaps, but does not hang.
    assert transactions(address, "find-hanging", "--broker-id", "0", "--max-transaction-timeout", "0") == []


def test_an_open_transaction_is_aborted_by_its_partition_and_offset(
    address: str, name: str, hanging: Confluent
) -> None:
    produce(address, name, values("after"))
    assert read(address, name, 1, "read_committed") == {0: ["before"]}
    transactions(address, "abort", "--topic", name, "--partition", "0", "--start-offset", "1")
    assert read(address, name, 1, "read_committed") == {0: ["before", "after"]}
