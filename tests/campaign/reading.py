"""Read a whole topic into arrays, at the end of a round."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.campaign.clients_looking import checksum, consumer_of
from tests.campaign.coverage import BLOCK
from tests.campaign.keyed import Version
from tests.campaign.ledger import Content, Place

PATIENCE = 120.0


class CantRead(Exception):
    """The topic could not be read to its end."""


class StartMoved(Exception):
    """Retention deleted what was about to be read."""


def bounds(asking: Consumer, topic: str, partition: int) -> tuple[int, int]:
    low, high = asking.get_watermark_offsets(TopicPartition(topic, partition), 60)
    return low, high


def topic_bounds(address: str, topic: str, partitions: int) -> list[tuple[int, int]]:
    asking = consumer_of(address, "bounds")
    try:
        return [bounds(asking, topic, number) for number in range(partitions)]
    finally:
        asking.close()


@dataclass
class _Growing:
    start: int
    end: int
    offsets: list[int] = field(default_factory=list)
    lives: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    digests: dict[int, int] = field(default_factory=dict)
    sum: int = 0
    seen: int = 0


def read_topic(address: str, topic: str, partitions: int) -> dict[Place, Content]:
    """All records from the logs' starts to their ends. Starts over if retention moves a start meanwhile."""
    for _ in range(10):
        try:
            return _read_topic(address, topic, partitions)
        except StartMoved:
            continue
    raise CantRead(f"{topic}: its start moved ten times while it was read")


def _read_topic(address: str, topic: str, partitions: int) -> dict[Place, Content]:
    reader = consumer_of(address, "contents", **{"enable.partition.eof": True, "fetch.wait.max.ms": 50})
    names: dict[bytes, int] = {}
    try:
        logs = {number: _Growing(*bounds(reader, topic, number)) for number in range(partitions)}
        for message in _messages(
            reader, topic, {number: (log.start, log.end) for number, log in logs.items()}
        ):
            log = logs[message.partition()]
            value, offset = message.value(), message.offset()
            life, number, _ = value.split(b":", 2)
            log.offsets.append(offset)
            log.lives.append(names.setdefault(life, len(names)))
            log.numbers.append(int(number))
            log.timestamps.append(message.timestamp()[1])
            if offset % BLOCK == 0:
                log.sum = log.seen = 0
            log.sum = checksum(log.sum, value)
            log.seen += 1
            if offset % BLOCK == BLOCK - 1 and log.seen == BLOCK:
                log.digests[offset // BLOCK] = log.sum
    finally:
        reader.close()
    listed = [life.decode() for life in names]
    return {
        (topic, number): Content(
            log.start,
            log.end,
            np.array(log.offsets, dtype=np.int64),
            np.array(log.lives, dtype=np.int32),
            np.array(log.numbers, dtype=np.int64),
            np.array(log.timestamps, dtype=np.int64),
            listed,
            log.digests,
        )
        for number, log in logs.items()
    }


def _messages(reader: Consumer, topic: str, wanted: dict[int, tuple[int, int]]) -> list[Message]:
    """Every record of the ranges. The list is as long as a round's records of one topic."""
    ends = {number: end for number, (start, end) in wanted.items() if end > start}
    reader.assign([TopicPartition(topic, number, wanted[number][0]) for number in ends])
    found: list[Message] = []
    last_came = time.monotonic()
    reading = set(ends)
    while reading:
        for message in reader.consume(10_000, timeout=0.1):
            error = message.error()
            if error is None:
                if message.offset() < ends[message.partition()]:
                    found.append(message)
                    last_came = time.monotonic()
                if message.offset() >= ends[message.partition()] - 1:
                    reading.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(message.partition())
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise StartMoved(str(error))
        if time.monotonic() - last_came > PATIENCE:
            raise CantRead(f"{topic}: partitions {sorted(reading)} were not read to their ends {ends}")
    return found


def read_keys(address: str, topic: str, partitions: int) -> list[tuple[str, Version]]:
    """A compacted topic: key, number and whether it is a tombstone, in the order of each log."""
    reader = consumer_of(address, "keys", **{"enable.partition.eof": True, "fetch.wait.max.ms": 50})
    try:
        wanted = {number: bounds(reader, topic, number) for number in range(partitions)}
        return [
            (message.key().decode(), (int(message.headers()[0][1]), message.value() is None))
            for message in _messages(reader, topic, wanted)
        ]
    finally:
        reader.close()
