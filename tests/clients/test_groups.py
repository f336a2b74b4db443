"""Consumer groups as real clients form them: sharing, handing over, restarting, churning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import millstream
from tests.support.waiting import wait_for

STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


@pytest.fixture
def broker() -> Iterator[millstream.Broker]:
    # kafka-python was once seen to assign nothing, and not to notice, when it led a group before it had heard
    # of the topic: its threads race, it seems. Kafka's own delay before a group's first assignment, 3 s,
    # would hide that, and so does this one.
    with millstream.Broker(group_min_session_timeout_ms=500, group_initial_rebalance_delay_ms=100) as broker:
        yield broker


def create(broker: millstream.Broker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)


def produce(broker: millstream.Broker, topic: str, values: list[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "acks": "1"})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(60) == 0


def consumer(broker: millstream.Broker, strategy: str = "range", **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": strategy,
            **settings,
        }
    )


def settle(*consumers: Consumer, partitions: int) -> list[list[int]]:
    """Poll until all partitions are assigned, each once and evenly."""
    most, fewest = -(-partitions // len(consumers)), partitions // len(consumers)

    def assigned() -> list[list[int]] | None:
        for each in consumers:
            each.poll(0.05)
        parts = [sorted(p.partition for p in each.assignment()) for each in consumers]
        whole = sorted(p for part in parts for p in part) == list(range(partitions))
        return parts if whole and all(fewest <= len(part) <= most for part in parts) else None

    return wait_for(assigned, timeout=90, what="every partition has one reader", every=0)


def test_clients_of_three_kinds_read_in_a_group_and_go_on_where_they_were(broker: millstream.Broker) -> None:
    create(broker, "t", 3)
    produce(broker, "t", [f"first {n}" for n in range(30)], 3)

    def with_confluent(group: str, count: int) -> list[str]:
        with_group = consumer(broker, "cooperative-sticky", **{"group.id": group})
        with_group.subscribe(["t"])
        values: list[str] = []
        wait_for(
            lambda: (
                values.extend(m.value().decode() for m in with_group.consume(100, 0.2))
                or len(values) >= count
            ),
            what="all records",
        )
        with_group.commit(asynchronous=False)
        with_group.close()
        return values

    def with_kafka_python(group: str, count: int) -> list[str]:
        reader = kafka.KafkaConsumer(
            "t",
            bootstrap_servers=broker.address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        values: list[str] = []

        def read() -> bool:
            for records in reader.poll(200).values():
                values.extend(record.value.decode() for record in records)
            return len(values) >= count

        wait_for(read, what="all records")
        reader.commit()
        reader.close()
        return values

    def with_aiokafka(group: str, count: int) -> list[str]:
        async def read() -> list[str]:
            reader = aiokafka.AIOKafkaConsumer(
                "t",
                bootstrap_servers=broker.address,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await reader.start()
            try:
                values = [(await reader.getone()).value.decode() for _ in range(count)]
                await reader.commit()
                return values
            finally:
                await reader.stop()

        return asyncio.run(asyncio.wait_for(read(), 30))

    readers: dict[str, Callable[[str, int], list[str]]] = {
        "confluent": with_confluent,
        "kafka-python": with_kafka_python,
        "aiokafka": with_aiokafka,
    }
    for group, read in readers.items():
        assert sorted(read(group, 30)) == sorted(f"first {n}" for n in range(30)), group
    produce(broker, "t", [f"second {n}" for n in range(30)], 3)
    for group, read in readers.items():
        assert sorted(read(group, 30)) == sorted(f"second {n}" for n in range(30)), group


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_the_partitions_and_take_over_from_who_leaves(
    broker: millstream.Broker, strategy: str
) -> None:
    create(broker, "t", 6)
    members = [consumer(broker, strategy) for _ in range(3)]
    try:
        for member in members:
            member.subscribe(["t"])
        settle(*members, partitions=6)
        members.pop().close()
        settle(*members, partitions=6)
        members.append(consumer(broker, strategy))
        members[-1].subscribe(["t"])
        settle(*members, partitions=6)
    finally:
        for member in members:
            member.close()


def test_a_group_whose_members_never_agree_on_a_protocol_tells_the_newcomer(
    broker: millstream.Broker,
) -> None:
    create(broker, "t", 1)
    first, second = consumer(broker, "range"), consumer(broker, "cooperative-sticky")
    try:
        first.subscribe(["t"])
        settle(first, partitions=1)
        second.subscribe(["t"])

        def refused() -> bool:
            first.poll(0.05)
            message = second.poll(0.1)
            return message is not None and message.error() is not None

        wait_for(refused, what="an error for the member with another protocol")
        assert [p.partition for p in first.assignment()] == [0]
    finally:
        first.close()
        second.close()


def test_more_partitions_reach_the_members(broker: millstream.Broker) -> None:
    from confluent_kafka.admin import NewPartitions

    create(broker, "t", 2)
    members = [consumer(broker, **{"topic.metadata.refresh.interval.ms": 500}) for _ in range(2)]
    try:
        for member in members:
            member.subscribe(["t"])
        settle(*members, partitions=2)
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_partitions([NewPartitions("t", 4)])["t"].result(60)
        settle(*members, partitions=4)
    finally:
        for member in members:
            member.close()


def test_a_static_member_restarts_without_the_others_noticing(broker: millstream.Broker) -> None:
    create(broker, "t", 4)
    changes: list[str] = []
    names = ["a", "b"]
    members = {
        name: consumer(broker, **{"group.instance.id": name, "session.timeout.ms": 20_000}) for name in names
    }
    for name, member in members.items():
        member.subscribe(
            ["t"],
            on_assign=lambda _, parts, name=name: changes.append(f"{name}+{len(parts)}"),
            on_revoke=lambda _, parts, name=name: changes.append(f"{name}-{len(parts)}"),
        )
    try:
        before = settle(*members.values(), partitions=4)
        changes.clear()
        members["b"].close()
        members["b"] = consumer(broker, **{"group.instance.id": "b", "session.timeout.ms": 20_000})
        members["b"].subscribe(["t"])
        assert settle(*members.values(), partitions=4) == before
        assert [change for change in changes if change.startswith("a")] == []
    finally:
        for member in members.values():
            member.close()


def test_a_group_and_its_offsets_outlive_the_broker(tmp_path: Path) -> None:
    changes: list[str] = []
    with millstream.Broker(tmp_path, group_min_session_timeout_ms=500) as broker:
        port = int(broker.address.rpartition(":")[2])
        create(broker, "t", 2)
        produce(broker, "t", ["before"] * 10, 2)
        member = consumer(broker, **{"session.timeout.ms": 30_000, "reconnect.backoff.max.ms": 200})
        member.subscribe(
            ["t"], on_revoke=lambda *_: changes.append("revoked"), on_lost=lambda *_: changes.append("lost")
        )
        seen: list[str] = []

        def read(count: int) -> Callable[[], bool]:
            def enough() -> bool:
                seen.extend(m.value().decode() for m in member.consume(10, 0.1) if m.error() is None)
                return len(seen) >= count

            return enough

        wait_for(read(10), what="the first records")
        member.commit(asynchronous=False)
    with millstream.Broker(tmp_path, port=port, group_min_session_timeout_ms=500) as broker:
        produce(broker, "t", ["after"] * 10, 2)
        wait_for(read(20), what="the records after the restart")
        assert seen == ["before"] * 10 + ["after"] * 10
        assert changes == []  # the same generation goes on: nobody had to join again
        committed = member.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=60)
        assert [partition.offset for partition in committed] == [5, 5]
        member.commit(asynchronous=False)
        committed = member.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=60)
        assert [partition.offset for partition in committed] == [10, 10]
        member.close()
