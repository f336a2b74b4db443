"""Reads what the transaction checker's topics hold, with a plain client."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.support.checker_client import INPUT, PARTITIONS, TARGETS
from tests.support.history import History, Partition
from tests.support.transactional import read_with_confluent


def read_topic(address: str, topic: str, isolation: str) -> dict[Partition, dict[int, str]]:
    found: dict[Partition, dict[int, str]] = {(topic, number): {} for number in range(PARTITIONS)}
    for partition, offset, value in read_with_confluent(address, topic, PARTITIONS, isolation):
        found[topic, partition][offset] = value
    return found


def read_end(address: str, history: History) -> None:
    """Add what the log holds at the end to a history."""
    for topic in (INPUT, *TARGETS):
        history.everything |= read_topic(address, topic, "read_uncommitted")
        history.committed |= read_topic(address, topic, "read_committed")
        for number in range(PARTITIONS):
            history.ends[topic, number] = ends(address, topic, number)


def ends(address: str, topic: str, partition: int) -> tuple[int, int]:
    """The last stable offset and the end of a partition."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        asking = Consumer({"bootstrap.servers": address, "group.id": "check", "isolation.level": isolation})
        found.append(int(asking.get_watermark_offsets(TopicPartition(topic, partition), 20)[1]))
        asking.close()
    return found[0], found[1]


def committed_count(address: str, topic: str) -> int:
    return sum(len(records) for records in read_topic(address, topic, "read_committed").values())


def stable_count(address: str) -> int:
    """The number of committed records in the input; 0 while a transaction is open in it."""
    if any(stable != end for stable, end in (ends(address, INPUT, number) for number in range(PARTITIONS))):
        return 0
    return committed_count(address, INPUT)
