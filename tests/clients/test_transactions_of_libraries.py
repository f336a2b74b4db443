"""Transactions of four libraries, each read by all four: what was committed, no more, no less, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.maven import JarsUnavailable
from tests.support.topics import create_topic
from tests.support.transactional import (
    LIBRARIES,
    PRODUCERS,
    Finished,
    Found,
    MustAbort,
    Reader,
    TransactionalProducer,
    read_with_confluent,
    readers,
)
from tests.support.waiting import wait_for

PARTITIONS = 2


@pytest.fixture(scope="module")
def every_reader(address: str) -> Iterator[dict[str, Reader]]:
    try:
        with readers(address) as opened:
            yield opened
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def producer(
    library: str, address: str, transactional_id: str, timeout_ms: int = 60_000
) -> Iterator[TransactionalProducer]:
    try:
        opened = PRODUCERS[library](address, transactional_id, timeout_ms)
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    try:
        yield opened
    finally:
        opened.close()


def send(to: TransactionalProducer, topic: str, what: str, count: int = 10) -> list[str]:
    """Send numbered records round the partitions, and wait until the broker has them."""
    values = [f"{what}-{number}" for number in range(count)]
    for number, value in enumerate(values):
        to.send(topic, number % PARTITIONS, value)
    to.flush()
    return values


def by_partition(found: Found) -> dict[int, list[str]]:
    return {p: [value for partition, _, value in found if partition == p] for p in range(PARTITIONS)}


def around(values: list[str]) -> dict[int, list[str]]:
    """How :func:`send` spreads them."""
    return {p: values[p::PARTITIONS] for p in range(PARTITIONS)}


def committed(address: str, topic: str) -> dict[int, list[str]]:
    return by_partition(read_with_confluent(address, topic, PARTITIONS, "read_committed"))


def group_offset(address: str, group: str, topic: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": group, "isolation.level": "read_committed"}
    )
    (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=90)
    consumer.close()
    return int(place.offset)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_reads_exactly_what_was_committed(
    address: str, every_reader: dict[str, Reader], name: str, library: str
) -> None:
    create_topic(address, name, PARTITIONS)
    with producer(library, address, name) as writer:
        writer.begin()
        first = send(writer, name, "first")
        writer.commit()
        assert set(writer.offsets) == set(first)
        writer.begin()
        aborted = send(writer, name, "aborted")
        writer.abort()
        writer.begin()
        second = send(writer, name, "second")
        writer.commit()
        writer.begin()
        open_still = send(writer, name, "open")
        for reader, read in every_reader.items():
            seen = by_partition(read(name, PARTITIONS, "read_committed"))
            assert seen == around(first + second), f"{reader} as read_committed"
            seen = by_partition(read(name, PARTITIONS, "read_uncommitted"))
            assert seen == around(first + aborted + second + open_still), f"{reader} as read_uncommitted"
        writer.commit()
    assert committed(address, name) == around(first + second + open_still)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_groups_offsets_are_committed_with_the_records_or_not_at_all(
    address: str, name: str, library: str
) -> None:
    create_topic(address, name, PARTITIONS)
    group = f"{name}-group"
    with producer(library, address, name) as writer:
        writer.begin()
        values = send(writer, name, "committed")
        writer.send_offset(group, name, 0, 3)
        writer.commit()
        assert group_offset(address, group, name) == 3
        writer.begin()
        send(writer, name, "aborted")
        writer.send_offset(group, name, 0, 7)
        writer.abort()
        assert group_offset(address, group, name) == 3
        writer.begin()  # a transaction of offsets alone
        writer.send_offset(group, name, 0, 9)
        writer.commit()
        assert group_offset(address, group, name) == 9
    assert committed(address, name) == around(values)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_second_instance_fences_the_first_and_aborts_what_it_left(
    address: str, name: str, library: str
) -> None:
    create_topic(address, name, PARTITIONS)
    with producer(library, address, name) as first:
        first.begin()
        send(first, name, "zombie")
        with producer(library, address, name) as second:
            second.begin()
            values = send(second, name, "successor")
            second.commit()
            with pytest.raises((Finished, MustAbort)):
                first.commit()
            with pytest.raises(Finished):
                first.abort()
            second.begin()
            values += send(second, name, "undisturbed")
            second.commit()
    assert committed(address, name) == around(values)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_transaction_that_takes_too_long_is_aborted_and_holds_nobody_back(
    address: str, name: str, library: str
) -> None:
    create_topic(address, name, PARTITIONS)
    with producer(library, address, name, timeout_ms=1000) as slow:
        slow.begin()
        send(slow, name, "slow")
        with producer("confluent", address, f"{name}-other") as other:
            other.begin()
            values = send(other, name, "other")
            other.commit()
        wait_for(lambda: committed(address, name) == around(values), what="the LSO moves on", every=0.2)
        with pytest.raises((Finished, MustAbort)):
            slow.commit()
    assert committed(address, name) == around(values)
