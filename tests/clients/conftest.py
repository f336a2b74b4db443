"""Every client is tried on two brokers: ours, and Apache Kafka where it can be had."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import TopicPartition
from millstream.core.clock import SystemClock
from tests.support.apache_kafka import apache_kafka
from tests.support.command import CommandLine
from tests.support.maven import JarsUnavailable
from tests.support.serve import ServeProcess

MINUTE = 60_000


@pytest.fixture(scope="session", params=["ours", "Apache Kafka"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker, shared by the tests: each uses topics and groups of its own."""
    if request.param == "ours":
        with ServeProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
            yield broker.address
        return
    try:
        # How often it looks for transactions that timed out: tests need not wait 10 s for that.
        settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
        with apache_kafka(settings=settings, quick=True) as kafka:
            yield kafka.address
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def millstream(address: str) -> CommandLine:
    """The ``millstream`` command, pointed at the broker."""
    return CommandLine(address)


@pytest.fixture
def name() -> str:
    """A name that no other test has: for a topic, a group."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def admin(address: str) -> Iterator[Admin]:
    with Admin(Connection.of(address)) as admin:
        yield admin


@pytest.fixture
def group(admin: Admin, name: str) -> str:
    """A group that has read 4 of 10 records of partition 0, and nothing of the 3 in partition 1."""
    now = SystemClock().now_ms()
    admin.create_topic(name, partitions=2)
    sender = RecordSender(admin.connection, name)
    sender.send([Outgoing(b"x", partition=0, timestamp=now - 60 * MINUTE)] * 4)
    sender.send([Outgoing(b"x", partition=0, timestamp=now - 30 * MINUTE)] * 6)
    sender.send([Outgoing(b"y", partition=1, timestamp=now - 10 * MINUTE)] * 3)
    assert sender.finish(30)
    assert sender.delivered == 13
    admin.commit(name, {TopicPartition(name, 0): 4, TopicPartition(name, 1): 0})
    return name
