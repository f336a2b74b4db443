"""What a task of the source does when things go wrong on the way; no Spark needed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import BrokerUnavailable, DataLoss
from millstream.pipeline.connector.fetching import SpanReader
from millstream.pipeline.connector.offsets import Span
from millstream.records.build import Record
from millstream.records.columns import arrow
from millstream.records.columns import compiled as compiled_columns
from millstream.records.columns import with_numpy as numpy_columns
from tests.support.apache_kafka import free_port
from tests.support.proxy import Proxy
from tests.support.topics import create_topic, delete_records, delete_topic, produce, values
from tests.support.waiting import wait_for

COUNT = 5000


def fill(address: str) -> TopicPartition:
    """A topic with numbers, in batches small enough that reading takes several fetches."""
    topic = create_topic(address, partitions=1)
    produce(address, topic, values(*range(COUNT)), **{"batch.num.messages": 50})
    return TopicPartition(topic, 0)


def reader(cluster: Cluster, partition: TopicPartition, **options: Any) -> Iterator[int]:
    """The numbers in the topic, one by one."""
    given = {"names": ("value",), "read_committed": True, "fetch_bytes": 8192, "fail_on_data_loss": True}
    span = options.pop("span", Span(partition, 0, COUNT))
    for batch in SpanReader(cluster, span, **{**given, **options}).batches():
        for value in batch.column("value").to_pylist():
            yield int(value)


def test_a_lost_connection_is_opened_again_and_nothing_is_missing_or_twice() -> None:
    port = free_port()
    with Proxy() as proxy, Broker(port=port, advertised_listener=proxy.address):
        proxy.forward_to(f"127.0.0.1:{port}")
        partition = fill(proxy.address)
        found = []
        for number in reader(Cluster(Connection(proxy.address)), partition):
            if number % 1000 == 500:
                proxy.cut_after(0)
            found.append(number)
        assert proxy.cuts >= 3
        assert found == list(range(COUNT))


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    with Broker(tmp_path, port=port) as broker:
        partition = fill(broker.address)
        numbers = reader(Cluster(Connection(broker.address)), partition)
        found = [next(numbers) for _ in range(1000)]
    with Broker(tmp_path, port=port):
        found += numbers
    assert found == list(range(COUNT))


def test_a_broker_that_stays_away_is_given_up_on() -> None:
    with Broker() as broker:
        partition = fill(broker.address)
        numbers = reader(Cluster(Connection(broker.address), patience=0.2), partition)
        next(numbers)
    with pytest.raises(BrokerUnavailable, match="no broker answers"):
        list(numbers)


def test_a_read_given_up_halfway_leaves_a_cluster_that_can_be_used() -> None:
    with Broker() as broker:
        partition = fill(broker.address)
        cluster = Cluster(Connection(broker.address))
        numbers = reader(cluster, partition)
        next(numbers)
        numbers.close()  # type: ignore[attr-defined]
        assert list(reader(cluster, partition)) == list(range(COUNT))


def test_records_deleted_while_reading_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker:
        partition = fill(broker.address)
        cluster = Cluster(Connection(broker.address))
        numbers = reader(cluster, partition)
        next(numbers)
        delete_records(broker.address, partition.topic, 0, 4000)
        with pytest.raises(DataLoss, match=r"\[0\]: offsets \d+ to 3999 .*the log starts at 4000"):
            list(numbers)
        with caplog.at_level(logging.WARNING):
            rest = list(reader(cluster, partition, fail_on_data_loss=False))
        assert rest == list(range(4000, COUNT))
        assert "offsets 0 to 3999 (4000 records) are gone" in caplog.text


def test_a_topic_deleted_while_reading_is_named() -> None:
    with Broker(auto_create_topics_enable=False) as broker:
        partition = fill(broker.address)
        cluster = Cluster(Connection(broker.address), patience=0.2)
        numbers = reader(cluster, partition)
        next(numbers)
        delete_topic(broker.address, partition.topic)
        with pytest.raises(DataLoss, match="the topic was deleted"):
            list(numbers)


@pytest.mark.parametrize("columns", [compiled_columns, numpy_columns])
def test_aborted_records_are_left_out_of_every_fetch_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: ModuleType
) -> None:
    """Two producers, transactions of many batches side by side, fetched a few batches at a time."""
    monkeypatch.setattr(arrow, "columns", columns)
    with Broker(tmp_path) as broker:
        topic = create_topic(broker.address, partitions=1, config={"segment.bytes": "20000"})
        producers = [
            Producer(
                {"bootstrap.servers": broker.address, "transactional.id": str(n), "batch.num.messages": 10}
            )
            for n in range(2)
        ]
        for producer in producers:
            producer.init_transactions()
        committed = set()
        for number in range(12):
            for n, producer in enumerate(producers):
                producer.begin_transaction()
                for i in range(50):
                    producer.produce(topic, b"%d" % (1000 * number + 100 * n + i), partition=0)
                producer.flush()
            for n, producer in enumerate(producers):
                if (number + n) % 3:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    committed |= {1000 * number + 100 * n + i for i in range(50)}

    def read(broker: Broker) -> list[int]:
        cluster = Cluster(Connection(broker.address))
        partition = TopicPartition(topic, 0)
        return list(reader(cluster, partition, span=Span(partition, 0, 12 * 102)))

    for _ in range(2):
        with Broker(tmp_path) as broker:
            found = read(broker)
            assert len(found) == len(committed)
            assert set(found) == committed


def test_a_span_whose_last_offsets_were_compacted_away_is_read_to_its_end() -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "0.01"}
    with Broker(log_cleaner_backoff_ms=20) as broker:
        topic = create_topic(broker.address, partitions=1, config=settings)
        records = [Record(b"k%d" % (number % 7), b"%d" % number) for number in range(3000)]
        produce(broker.address, topic, records, **{"batch.num.messages": 20})
        partition = TopicPartition(topic, 0)
        cluster = Cluster(Connection(broker.address))

        def read(first: int, end: int) -> list[int]:
            return list(reader(cluster, partition, span=Span(partition, first, end)))

        def few(numbers: list[int]) -> list[int] | None:
            return numbers if len(numbers) < 700 and numbers[0] > 100 else None

        earlier = wait_for(lambda: few(read(0, 3000)), timeout=60, what="compaction")
        for end in (1, 100, earlier[0], earlier[0] + 1, 2999):
            found, later = read(0, end), read(0, 3000)  # compaction goes on meanwhile
            assert {number for number in later if number < end} <= set(found)
            assert set(found) <= {number for number in earlier if number < end}
            assert found == sorted(found)
            earlier = later
