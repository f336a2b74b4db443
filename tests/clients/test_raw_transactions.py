"""Transactions driven request by request: one begins and ends them, others send in them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Theirs

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster, Committed
from millstream.client.protocol.sender import BatchSender
from millstream.client.protocol.transaction_requests import (
    CommittingMember,
    ProducerSession,
    TransactionClient,
)
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ProducerFenced, RequestFailed
from millstream.records.columns.arrow import Encoder
from millstream.records.columns.arrow import ProducerSequence as Stamp
from tests.support.topics import create_topic

TIMEOUT = 60_000


@pytest.fixture
def cluster(address: str) -> Iterator[Cluster]:
    cluster = Cluster(Connection(address), patience=30)
    yield cluster
    cluster.close()


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def topic(address: str, name: str) -> str:
    return create_topic(address, name)


def encoded(*values: str) -> bytearray:
    """A batch of a transaction, for a sender to stamp."""
    rows = pa.array(range(len(values)), pa.int32()).to_numpy()
    encoder = Encoder(pa.array(values).cast(pa.binary()))
    ((batch, _),) = encoder.batches(rows, max_bytes=1 << 20, producer=Stamp(transactional=True))
    return batch


def send(address: str, producer: ProducerSession, topic: str, *values: str, partition: int = 0) -> None:
    """As a task on another machine would."""
    sender = BatchSender(Cluster(Connection(address)), producer=producer)
    try:
        sender.send([(TopicPartition(topic, partition), encoded(*values))])
        sender.flush()
    finally:
        sender.close()


def read(address: str, topic: str, isolation: str = "read_committed") -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([Theirs(topic, 0, 0), Theirs(topic, 1, 0)])
    found, ended = [], 0
    while ended < 2:
        message = consumer.poll(10)
        assert message is not None, "the end of a partition was not reached"
        if message.error() is not None:
            ended += 1
        else:
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


def test_what_several_send_is_committed_together(
    address: str, cluster: Cluster, topic: str, name: str, protocol: int
) -> None:
    coordinator = TransactionClient(cluster)
    assert coordinator.version() == 2
    producer = coordinator.init(name, TIMEOUT, version=protocol)
    send(address, producer, topic, "a", "b", partition=0)
    send(address, producer, topic, "c", partition=1)
    assert read(address, topic) == []
    assert read(address, topic, "read_uncommitted") == ["a", "b", "c"]
    following = coordinator.end(producer, commit=True)
    assert read(address, topic) == ["a", "b", "c"]
    assert (following.epoch > producer.epoch) == (protocol == 2)

    producer = coordinator.init(name, TIMEOUT, expected=following, version=protocol)
    assert producer.epoch > following.epoch or producer.id != following.id
    send(address, producer, topic, "d")
    coordinator.end(producer, commit=False)
    assert read(address, topic) == ["a", "b", "c"]


def test_a_groups_offsets_are_committed_with_it_or_not_at_all(
    address: str, cluster: Cluster, topic: str, name: str, protocol: int
) -> None:
    coordinator = TransactionClient(cluster)
    place = TopicPartition(topic, 1)
    assert coordinator.fetch_offsets(name) == {}
    producer = coordinator.init(name, TIMEOUT, version=protocol)
    coordinator.commit_offsets(producer, name, {place: Committed(7, metadata="batch 3")})
    assert coordinator.fetch_offsets(name, require_stable=False) == {}
    producer = coordinator.end(producer, commit=True)
    assert coordinator.fetch_offsets(name, [place]) == {place: Committed(7, -1, "batch 3")}

    producer = coordinator.init(name, TIMEOUT, expected=producer, version=protocol)
    coordinator.commit_offsets(producer, name, {place: Committed(9, metadata="batch 4")}, CommittingMember())
    assert coordinator.fetch_offsets(name, require_stable=False)[place].offset == 7
    coordinator.end(producer, commit=False)
    assert coordinator.fetch_offsets(name) == {place: Committed(7, -1, "batch 3")}


def test_offsets_that_may_still_change_are_waited_for(
    address: str, cluster: Cluster, topic: str, name: str, protocol: int
) -> None:
    coordinator = TransactionClient(cluster)
    producer = coordinator.init(name, TIMEOUT, version=protocol)
    coordinator.commit_offsets(producer, name, {TopicPartition(topic, 0): Committed(7)})
    impatient = TransactionClient(Cluster(Connection(address), patience=0.2))
    with pytest.raises(RequestFailed, match="UNSTABLE_OFFSET_COMMIT"):
        impatient.fetch_offsets(name, [TopicPartition(topic, 0)])
    coordinator.end(producer, commit=True)
    assert impatient.fetch_offsets(name, [TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 7


def test_whoever_takes_over_fences_all_before(
    address: str, cluster: Cluster, topic: str, name: str, protocol: int
) -> None:
    coordinator = TransactionClient(cluster)
    older = coordinator.init(name, TIMEOUT, version=protocol)
    send(address, older, topic, "lost")
    newer = coordinator.init(name, TIMEOUT, version=protocol)  # aborts what the older left open
    with pytest.raises(ProducerFenced):
        send(address, older, topic, "too late")
    with pytest.raises(ProducerFenced):
        coordinator.commit_offsets(older, name, {TopicPartition(topic, 0): Committed(1)})
    with pytest.raises(ProducerFenced):
        coordinator.end(older, commit=True)
    with pytest.raises(ProducerFenced):
        coordinator.init(name, TIMEOUT, expected=older, version=protocol)
    send(address, newer, topic, "kept")
    coordinator.end(newer, commit=True)
    assert read(address, topic) == ["kept"]
    assert coordinator.fetch_offsets(name) == {}


def test_an_end_that_is_asked_for_twice_is_answered_twice(
    address: str, cluster: Cluster, topic: str, name: str, protocol: int
) -> None:
    coordinator = TransactionClient(cluster)
    producer = coordinator.init(name, TIMEOUT, version=protocol)
    send(address, producer, topic, "a")
    first = coordinator.end(producer, commit=True)
    assert coordinator.end(producer, commit=True) == first
    assert read(address, topic) == ["a"]


def test_a_timeout_that_the_cluster_does_not_allow_is_refused(cluster: Cluster, name: str) -> None:
    with pytest.raises(RequestFailed, match="INVALID_TRANSACTION_TIMEOUT"):
        TransactionClient(cluster).init(name, 2_000_000_000)


def test_a_partition_that_is_not_there_can_not_be_added(cluster: Cluster, topic: str, name: str) -> None:
    coordinator = TransactionClient(cluster)
    producer = coordinator.init(name, TIMEOUT, version=1)
    impatient = TransactionClient(Cluster(cluster.connection, patience=0.2))
    with pytest.raises(RequestFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
        impatient.add_partitions(producer, [TopicPartition(topic, 0), TopicPartition(topic, 9)])
