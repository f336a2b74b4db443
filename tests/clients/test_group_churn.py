"""Groups under churn, with real clients of several libraries: members join, leave, are killed and restarted;
every record is processed at least once, the group ends balanced, and nobody is stuck."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import millstream
from tests.support.apache_kafka import jars
from tests.support.group_members import Members, members
from tests.support.maven import JarsUnavailable
from tests.support.waiting import wait_for

PARTITIONS = 12


@pytest.fixture
def broker() -> Iterator[millstream.Broker]:
    with millstream.Broker(
        group_min_session_timeout_ms=500,
        group_initial_rebalance_delay_ms=100,
        group_consumer_session_timeout_ms=3000,
        group_consumer_heartbeat_interval_ms=300,
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(60)
        yield broker


@pytest.fixture(scope="module")
def with_java() -> None:
    try:
        jars()
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


class Feed:
    """Records, each with a value of its own."""

    def __init__(self, broker: millstream.Broker) -> None:
        self._producer = Producer({"bootstrap.servers": broker.address, "acks": "1"})
        self.sent: set[str] = set()

    def send(self, count: int) -> None:
        for _ in range(count):
            value = str(len(self.sent))
            self._producer.produce("t", value, partition=len(self.sent) % PARTITIONS)
            self.sent.add(value)
        assert self._producer.flush(60) == 0


def churn(feed: Feed, group: Members, clients: list[str], rounds: int) -> None:
    """Kill some, stop some, start others; each round with new records."""
    chance = random.Random(int(os.environ.get("CHURN_SEED", "7")))
    for client in clients:
        group.start(client)
    kinds = list(clients)  # of those that run, in their order
    for _ in range(rounds):
        feed.send(400)
        for _ in range(chance.randint(1, 2)):
            number = chance.randrange(len(group.running))
            group.end(number, chance.choice([signal.SIGKILL, signal.SIGTERM]))
            kinds.append(kinds.pop(number))
        time.sleep(chance.uniform(0, 1.0))  # the churn has a pace: this is the scenario, not a wait
        for client in kinds[len(group.running) :]:
            group.start(client)
    feed.send(PARTITIONS)


def finish(feed: Feed, group: Members) -> None:
    group.wait_balanced(PARTITIONS)
    group.wait_processed(feed.sent, PARTITIONS, len(feed.sent))
    assert all(process.poll() is None for process in group.running)
    for number in reversed(range(len(group.running))):
        group.end(number, signal.SIGTERM)
    # Static members have only gone for now: they are out when their sessions end.
    wait_for(lambda: group.described().state.name == "EMPTY", timeout=60, what="the group is empty")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_classic_group(broker: millstream.Broker, tmp_path: Path, strategy: str) -> None:
    feed = Feed(broker)
    with members(broker.address, "t", tmp_path) as group:
        churn(feed, group, [strategy] * 6, rounds=6)
        finish(feed, group)


@pytest.mark.usefixtures("with_java")
def test_a_classic_group_of_four_libraries(broker: millstream.Broker, tmp_path: Path) -> None:
    feed = Feed(broker)
    with members(broker.address, "t", tmp_path) as group:
        churn(feed, group, ["range", "kafka-python", "aiokafka", "java"], rounds=4)
        finish(feed, group)


@pytest.mark.usefixtures("with_java")
def test_a_group_of_the_consumer_protocol(broker: millstream.Broker, tmp_path: Path) -> None:
    feed = Feed(broker)
    with members(broker.address, "t", tmp_path) as group:
        churn(feed, group, ["consumer"] * 4 + ["java-consumer"] * 2, rounds=6)
        finish(feed, group)
        assert group.described().type.name == "CONSUMER"


def test_static_members_of_the_consumer_protocol_restart(broker: millstream.Broker, tmp_path: Path) -> None:
    feed = Feed(broker)
    with members(broker.address, "t", tmp_path) as group:
        for instance in ("a", "b", "c"):
            group.start("consumer", instance)
        group.wait_balanced(PARTITIONS)
        before = {m.group_instance_id: _reads(m) for m in group.described().members}
        for how in (signal.SIGTERM, signal.SIGKILL):
            feed.send(400)
            group.end(0, how)
            group.start("consumer", "a" if how is signal.SIGTERM else "b")
            group.wait_balanced(PARTITIONS)
        assert {m.group_instance_id for m in group.described().members} == {"a", "b", "c"}
        # Who went and came back in time has what it had.
        assert {m.group_instance_id: _reads(m) for m in group.described().members}["c"] == before["c"]
        finish(feed, group)


def _reads(member: object) -> set[int]:
    return {place.partition for place in member.assignment.topic_partitions}  # type: ignore[attr-defined]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_changes_over_and_back_while_it_reads(
    broker: millstream.Broker, tmp_path: Path, strategy: str
) -> None:
    feed = Feed(broker)
    with members(broker.address, "t", tmp_path) as group:
        for _ in range(3):
            group.start(strategy)
        group.wait_balanced(PARTITIONS)
        for new, kind in (("consumer", "CONSUMER"), (strategy, "CLASSIC")):
            for _ in range(3):
                feed.send(200)
                group.start(new)
                group.wait_balanced(PARTITIONS)
                group.end(0, signal.SIGTERM)
            group.wait_balanced(PARTITIONS)
            assert group.described().type.name == kind
        finish(feed, group)
