"""Looking at records where they lie, and at topics' settings with their meaning; over the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.insight.peek import Peek, PeekedRange
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import send_one
from millstream.client.protocol.topic_settings import topic_settings
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import Bounds, TopicPartition
from millstream.core.errors import RequestFailed

PLACE = TopicPartition("t", 0)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    with Broker(tmp_path) as broker:
        found = Connection.of(broker.address)
        with Admin(found) as admin:
            admin.create_topic("t", partitions=1, config={"retention.ms": "1000000"})
        yield found


def told(stretch: PeekedRange) -> list[tuple[str, int, bytes | None]]:
    return [
        (batch.state, record.offset, None if "marker" in batch.state else record.value)
        for batch in stretch.batches
        for record in batch.records
    ]


def test_transactions_are_told_with_what_they_came_to(connection: Connection) -> None:
    assert send_one(connection, "t", Outgoing(b"plain")) == (0, 0)
    producers = []
    for name, end in (("a", "commit"), ("b", "abort"), ("c", "leave open")):
        producer = Producer({"bootstrap.servers": connection.address, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", name)
        assert producer.flush(30) == 0
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)
        producers.append(producer)
    with Peek(connection) as peek:
        assert peek.bounds([PLACE]) == {PLACE: Bounds(0, 5)}, "up to the first that is open"
        stretch = peek.stretch(PLACE, 0, 5)
        assert told(stretch) == [("plain", 0, b"plain"), ("committed", 1, b"a")]
        assert stretch.next_offset == 5
    with Peek(connection, committed=False) as peek:
        assert peek.bounds([PLACE]) == {PLACE: Bounds(0, 6)}
        found, at = [], 0
        while at < 6:
            stretch = peek.stretch(PLACE, at, 6)
            found += told(stretch)
            at = stretch.next_offset
        assert found == [
            ("plain", 0, b"plain"),
            ("committed", 1, b"a"),
            ("commit marker", 2, None),
            ("aborted", 3, b"b"),
            ("abort marker", 4, None),
            ("open", 5, b"c"),
        ]
        assert told(peek.stretch(PLACE, 3, 4)) == [("aborted", 3, b"b")], "also from the middle"
    producers[-1].abort_transaction(30)


def test_what_is_gone_is_passed_over(connection: Connection) -> None:
    for _ in range(5):
        send_one(connection, "t", Outgoing(b"x", b"k"))
    with Admin(connection) as admin, Peek(connection) as peek:
        admin.trim({PLACE: 3})
        assert peek.stretch(PLACE, 0, 5).next_offset == 3
        assert [offset for _, offset, _ in told(peek.stretch(PLACE, 3, 5))] == [3, 4]
        assert peek.stretch(PLACE, 0, 2) == PeekedRange([], 2, 0)
        assert peek.since({PLACE: 0}) == {PLACE: 3}


def test_settings_come_with_source_inheritance_and_meaning(connection: Connection) -> None:
    found = {setting.name: setting for setting in topic_settings(connection, "t")}
    own, other = found["retention.ms"], found["preallocate"]
    assert (own.value, own.inherited, own.source, own.kind) == ("1000000", "604800000", "topic", "number")
    assert "deleted" in own.meaning
    assert (other.source, other.kind, other.value) == ("default", "boolean", other.inherited)


def test_a_record_that_is_refused_says_why(connection: Connection) -> None:
    with pytest.raises(RequestFailed, match="has no partition 7"):
        send_one(connection, "t", Outgoing(b"x", partition=7))
