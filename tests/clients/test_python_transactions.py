"""``client.transaction`` and ``client.Transactions``: what is read, what is written, all or none of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Message

from millstream import Broker, client
from millstream.client.connect import Connection
from millstream.client.insight.open_transactions import OpenTransactions
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.clock import SystemClock
from millstream.core.errors import (
    BrokerUnavailable,
    ConfigError,
    DataLoss,
    ProducerFenced,
    TransactionAborted,
)
from tests.support.topics import create_topic, delete_records, produce, values
from tests.support.waiting import wait_for


def visible(address: str, topic: str) -> list[Message]:
    """What a reader of committed records sees, partition by partition; all transactions must have ended."""
    connection = Connection.of(address)
    with Admin(connection) as admin:
        places = admin.partitions([topic])
        wait_for(
            lambda: admin.bounds(places) == admin.bounds(places, committed_only=True),
            what="markers are written",
        )
        bounds = admin.bounds(places)
    starts = {place: bounds[place].start for place in places}
    found: list[Message] = []
    with PartitionReader(connection, starts, {place: bounds[place].end for place in places}) as reader:
        while not reader.finished:
            found += reader.read(1000, 0.2)
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def texts(address: str, topic: str) -> list[str]:
    return [message.value().decode() for message in visible(address, topic)]


@pytest.fixture
def places(address: str, name: str) -> tuple[str, str]:
    """A topic to read and one to write, of two partitions each."""
    return create_topic(address, f"{name}-in"), create_topic(address, f"{name}-out")


def committed(address: str, group: str) -> dict[TopicPartition, int]:
    with Admin(Connection.of(address)) as admin:
        return admin.committed(group)


def test_records_of_one_transaction_appear_together(address: str, places: tuple[str, str]) -> None:
    first, second = places
    yesterday = SystemClock().now_ms() - 86_400_000
    with client.transaction(address, first) as txn:
        txn.send(first, b"one", key=b"k", headers=[("h", b"x")], partition=1, timestamp_ms=yesterday)
        txn.send(second, "two", partition=0)
    [record] = visible(address, first)
    assert (record.partition(), record.key(), record.value(), record.headers()) == (
        1,
        b"k",
        b"one",
        [("h", b"x")],
    )
    assert record.timestamp()[1] == yesterday
    assert texts(address, second) == ["two"]
    assert txn.state == "committed"


def test_an_exception_takes_all_of_it_back(address: str, places: tuple[str, str]) -> None:
    topic = places[0]
    with client.Transactions(address, topic) as transactions:
        for value in (b"3", b"0", b"2"):
            with contextlib.suppress(ZeroDivisionError), transactions.begin() as txn:
                txn.send(topic, value)
                txn.send(topic, str(6 / int(value)))
            assert txn.state == ("aborted" if value == b"0" else "committed")
    assert sorted(texts(address, topic)) == ["2", "2.0", "3", "3.0"]


def test_a_loop_of_batches_copies_each_record_once_and_its_offsets_with_it(
    address: str, places: tuple[str, str], name: str
) -> None:
    source, target = places
    produce(address, source, values(*range(25)))
    produce(address, source, values(*range(25, 40)), partition=1)
    with client.Transactions(address, name, topics=[source], group=name, most=10, wait=3) as batches:
        for txn in batches:
            assert 0 < len(txn.records) <= 10
            for record in txn.records:
                txn.send(target, record.value(), partition=record.partition())
    assert sorted(map(int, texts(address, target))) == list(range(40))
    assert committed(address, name) == {TopicPartition(source, 0): 25, TopicPartition(source, 1): 15}


def test_a_batch_whose_block_fails_is_read_again(address: str, places: tuple[str, str], name: str) -> None:
    source, target = places
    produce(address, source, values(*range(10)))
    attempts: list[list[str]] = []
    with client.Transactions(address, name, topics=[source], group=name, most=4, wait=3) as batches:
        for txn in batches:
            attempts.append([record.value().decode() for record in txn.records])
            try:
                with txn:
                    for record in txn.records:
                        txn.send(target, record.value())
                    if len(attempts) in (1, 3):
                        raise ValueError("no")
            except ValueError:
                assert txn.state == "aborted"
    assert attempts[0] == attempts[1]
    assert attempts[2] == attempts[3]
    assert sorted(map(int, texts(address, target))) == list(range(10))


def test_after_a_failure_the_next_run_reads_the_batch_again(
    address: str, places: tuple[str, str], name: str
) -> None:
    source, target = places
    produce(address, source, values(*range(6)))

    def run(fail: bool) -> None:
        with client.transaction(address, name, topics=[source], group=name, wait=20) as txn:
            for record in txn.records:
                txn.send(target, record.value())
            if fail:
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run(fail=True)
    assert committed(address, name) == {}
    run(fail=False)
    assert sorted(texts(address, target)) == [str(number) for number in range(6)]
    with client.transaction(address, name, topics=[source], group=name, wait=3) as txn:
        assert txn.records == [], "there is nothing more"


def test_another_with_the_same_id_fences_the_older(address: str, places: tuple[str, str], name: str) -> None:
    topic = places[0]
    with client.Transactions(address, name) as older:
        hanging = older.begin()
        hanging.send(topic, b"from the older")
        with client.Transactions(address, name) as newer, newer.begin() as txn:
            txn.send(topic, b"from the newer")
        with pytest.raises(ProducerFenced, match=f"taken over the transactional id '{name}'"):
            hanging.commit()
    assert texts(address, topic) == ["from the newer"]


def test_one_that_is_open_for_too_long_is_aborted_and_its_producer_told(
    millstream_broker: Broker, name: str
) -> None:
    topic = create_topic(millstream_broker.address, name)
    with client.Transactions(millstream_broker.address, name, timeout=1.0) as transactions:
        txn = transactions.begin()
        txn.send(topic, b"late")
        transactions._producer.flush()
        cluster = Cluster(Connection.of(millstream_broker.address))
        wait_for(lambda: OpenTransactions(cluster).transactions() == [], what="the broker has aborted it")
        cluster.close()
        with pytest.raises(ProducerFenced, match=r"open for longer than its timeout \(1 s\)"):
            txn.commit()
    assert texts(millstream_broker.address, topic) == []


def test_partitions_that_go_to_another_member_are_processed_once(
    address: str, places: tuple[str, str], name: str
) -> None:
    source, target = places
    produce(address, source, values(*range(50)))
    produce(address, source, values(*range(50, 100)), partition=1)
    worked: set[int] = set()
    eager = {"heartbeat.interval.ms": 300}

    def work(number: int) -> None:
        with client.Transactions(
            address, f"{name}-{number}", topics=[source], group=name, most=5, wait=6, consumer=eager
        ) as member:
            for txn in member:
                for record in txn.records:
                    txn.send(target, record.value())
                worked.add(number)

    with Admin(Connection.of(address)) as admin, ThreadPoolExecutor(2) as threads:
        running = [threads.submit(work, 0)]
        wait_for(lambda: worked, what="the first is at work")
        running.append(threads.submit(work, 1))
        wait_for(
            lambda: [len(member.assigned) for member in admin.group(name).members] == [1, 1],
            what="the second has a partition of the first's",
        )
        produce(address, source, values(*range(100, 120)))
        produce(address, source, values(*range(120, 140)), partition=1)
        for one in running:
            one.result()
    assert worked == {0, 1}
    assert sorted(map(int, texts(address, target))) == list(range(140))


def test_a_member_that_was_put_out_takes_its_batch_back(
    address: str, places: tuple[str, str], name: str
) -> None:
    """It held its batch for so long that the group went on without it: its commit must not count."""
    source, target = places
    produce(address, source, values(*range(10)))
    slow = {"session.timeout.ms": 6000, "max.poll.interval.ms": 6000, "heartbeat.interval.ms": 500}
    with client.Transactions(address, f"{name}-0", topics=[source], group=name, consumer=slow) as sleepy:
        txn = next(iter(sleepy))
        for record in txn.records:
            txn.send(target, b"sleepy " + record.value())

        with client.transaction(address, f"{name}-1", topics=[source], group=name, wait=30) as other:
            for record in other.records:
                other.send(target, record.value())
        with pytest.raises(TransactionAborted, match="was rolled back") as aborted:
            txn.commit()
        assert aborted.value.rebalanced
    assert sorted(texts(address, target)) == [str(number) for number in range(10)]


def test_a_record_that_is_refused_fails_the_commit_and_says_which(
    address: str, name: str, places: tuple[str, str]
) -> None:
    small = create_topic(address, f"{name}-small", 1, {"max.message.bytes": "200"})
    with client.Transactions(address, name) as transactions:
        txn = transactions.begin()
        txn.send(places[1], b"fine")
        txn.send(small, bytes(range(256)) * 8)
        with pytest.raises(TransactionAborted, match=rf"{small}\[0\].*(too large|size)"):
            txn.commit()
        with transactions.begin() as txn:
            txn.send(places[1], b"after")
    assert texts(address, places[1]) == ["after"]


def test_leaving_the_loop_early_takes_its_batch_back(
    address: str, places: tuple[str, str], name: str
) -> None:
    source, target = places
    produce(address, source, values(1, 2, 3))
    with client.Transactions(address, name, topics=[source], group=name, most=1) as batches:
        for txn in batches:
            txn.send(target, txn.records[0].value())
            if txn.records[0].offset() == 1:
                break
        assert [record.value() for record in next(iter(batches)).records] == [b"2"], "it is read again"
    assert texts(address, target) == ["1"]
    assert committed(address, name) == {TopicPartition(source, 0): 1}


def test_records_that_are_gone_stop_the_loop_and_are_not_skipped(
    address: str, places: tuple[str, str], name: str
) -> None:
    source = places[0]
    produce(address, source, values(*range(10)))
    with client.transaction(address, name, topics=[source], group=name, most=3) as txn:
        assert len(txn.records) == 3
    delete_records(address, source, 0, before=7)
    with (
        pytest.raises(
            DataLoss, match=r"the next record to be read is 3, but the log holds 7 to 10.*group seek"
        ),
        client.transaction(address, name, topics=[source], group=name),
    ):
        pass


def test_stop_ends_the_loop_after_the_transaction_under_way(
    address: str, places: tuple[str, str], name: str
) -> None:
    source, target = places
    produce(address, source, values(1, 2, 3))
    with client.Transactions(address, name, topics=[source], group=name, most=1) as batches:
        for txn in batches:
            txn.send(target, txn.records[0].value())
            batches.stop()
    assert texts(address, target) == ["1"]
    assert committed(address, name) == {TopicPartition(source, 0): 1}


def test_ctrl_c_aborts_and_leaves_at_once(
    address: str, places: tuple[str, str], name: str, tmp_path: Path
) -> None:
    source, target = places
    produce(address, source, values(1, 2, 3))
    program = tmp_path / "copier.py"
    program.write_text(
        textwrap.dedent(f"""
        import time
        from millstream import Broker, client

        with client.Transactions({address!r}, {name!r}, topics=[{source!r}], group={name!r}) as batches:
            for txn in batches:
                for record in txn.records:
                    txn.send({target!r}, record.value())
                print("sent", flush=True)
                time.sleep(60)
        """)
    )
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=400)
    finally:
        process.kill()
        process.wait()
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert texts(address, target) == []
    wait_for(lambda: committed(address, name) == {}, what="nothing was committed")


def test_what_is_asked_wrongly_is_said_at_once(address: str, name: str) -> None:
    with pytest.raises(ConfigError, match="both topics and group"):
        client.Transactions(address, name, topics=["x"])
    with pytest.raises(ConfigError, match="transactional id"):
        client.Transactions(address, "")
    with pytest.raises(ConfigError, match="in a with statement"):
        client.Transactions(address, name).begin()
    with client.Transactions(address, name) as transactions:
        with pytest.raises(ConfigError, match="nothing to read"):
            next(iter(transactions))
        txn = transactions.begin()
        with pytest.raises(ConfigError, match="still open"):
            transactions.begin()
        txn.abort()
        with pytest.raises(ConfigError, match="ended already: aborted"):
            txn.send("x", b"")
        with pytest.raises(ConfigError, match="ended already: aborted"):
            txn.commit()


def test_where_nobody_listens_it_says_so_at_once(name: str) -> None:
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"), client.transaction("127.0.0.1:1", name):
        pass
