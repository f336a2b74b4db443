"""Reading topics through an inbox, on both brokers: the database says where to go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from millstream import client
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError, DataLoss
from tests.support.topics import create_topic, delete_records, delete_topic, produce, values
from tests.support.waiting import wait_for

Database = sqlite3.Connection | psycopg.Connection


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    db: Database
    if request.param == "SQLite":
        db = sqlite3.connect(tmp_path / "effects.db")
    else:
        db = psycopg.connect(request.getfixturevalue("database"))
    db.execute("CREATE TABLE effects (message TEXT)")
    db.commit()
    yield db
    db.close()


def run(db: Database, inbox: client.Inbox, address: str, topic: str, until: int) -> None:
    """Process messages up to and including one, and stop."""
    with inbox.read(address, [topic], most=10) as reading:
        for messages in reading:
            for message in messages:
                db.execute(f"INSERT INTO effects VALUES ('{message.value().decode()}')")
                if message.value() == str(until).encode():
                    reading.stop()


def effects(db: Database) -> list[int]:
    found = sorted(int(text) for (text,) in db.execute("SELECT message FROM effects").fetchall())
    db.rollback()
    return found


def test_batches_are_processed_once_and_the_group_shows_it(address: str, name: str, db: Database) -> None:
    topic = create_topic(address, name)
    produce(address, topic, values(*range(5)), partition=1)
    produce(address, topic, values(*range(5, 30)))
    inbox = client.Inbox(db, name)
    run(db, inbox, address, topic, until=29)
    with Admin(Connection.of(address)) as admin:
        group = wait_for(lambda: admin.committed(name), what="the group's offsets are there, for its lag")
        assert group[TopicPartition(topic, 0)] == inbox.positions()[TopicPartition(topic, 0)] == 25
        admin.commit(name, dict.fromkeys(group, 0))
    produce(address, topic, values(30))
    run(db, inbox, address, topic, until=30)
    assert [number for number in effects(db) if number >= 5] == list(range(5, 31)), (
        "the database counts, whatever the group says"
    )


def test_a_batch_that_fails_is_rolled_back_and_read_again(address: str, name: str, db: Database) -> None:
    topic = create_topic(address, name)
    produce(address, topic, values(*range(6)))
    inbox = client.Inbox(db, name)

    def process(reading: client.Reading, fail: bool) -> None:
        for messages in reading:
            for message in messages:
                db.execute(f"INSERT INTO effects VALUES ('{message.value().decode()}')")
            if fail:
                raise ValueError("no")
            if messages[-1].value() == b"5":
                reading.stop()

    with inbox.read(address, [topic], most=4) as reading:
        with pytest.raises(ValueError, match="no"):
            process(reading, fail=True)
        process(reading, fail=False)
    assert effects(db) == list(range(6))


def test_messages_that_are_gone_stop_it_until_the_inbox_is_moved(
    address: str, name: str, db: Database
) -> None:
    topic = create_topic(address, name)
    inbox = client.Inbox(db, name)
    produce(address, topic, values(*range(3)))
    run(db, inbox, address, topic, until=2)
    produce(address, topic, values(*range(3, 9)))
    delete_records(address, topic, 0, before=7)
    with pytest.raises(DataLoss, match=r"next record to be read is 3, but the log holds 7 to 9.*inbox.move"):
        run(db, inbox, address, topic, until=8)
    inbox.move({TopicPartition(topic, 0): 7})
    run(db, inbox, address, topic, until=8)
    assert effects(db) == [0, 1, 2, 7, 8]


def test_a_topic_that_was_created_again_stops_it_until_the_inbox_is_moved(
    address: str, name: str, db: Database
) -> None:
    topic = create_topic(address, name, partitions=1)
    inbox = client.Inbox(db, name)
    produce(address, topic, values(*range(3)))
    run(db, inbox, address, topic, until=2)
    delete_topic(address, topic)
    wait_for(lambda: create_again(address, topic), what="the name is free again")
    produce(address, topic, values(*range(10, 15)))
    with pytest.raises(DataLoss, match=r"was deleted and created again since inbox .* inbox\.move"):
        run(db, inbox, address, topic, until=14)
    assert effects(db) == [0, 1, 2]
    inbox.move({TopicPartition(topic, 0): 0})
    run(db, inbox, address, topic, until=14)
    assert effects(db) == [0, 1, 2, 10, 11, 12, 13, 14]


def create_again(address: str, topic: str) -> bool:
    with Admin(Connection.of(address)) as admin:
        return admin.create_topic(topic, partitions=1, if_not_exists=True)


def test_stop_ends_the_loop_after_the_batch_under_way(address: str, name: str, db: Database) -> None:
    topic = create_topic(address, name)
    produce(address, topic, values(1, 2, 3))
    inbox = client.Inbox(db, name)
    with inbox.read(address, [topic], most=1) as reading:
        for _ in reading:
            db.execute("INSERT INTO effects VALUES ('1')")
            reading.stop()
    assert effects(db) == [1]
    assert inbox.positions() == {TopicPartition(topic, 0): 1}
    with pytest.raises(ConfigError, match="with statement"):
        iter(reading)
