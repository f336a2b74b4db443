"""The inbox: a message has its effect in the database once, however often it comes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream import client
from millstream.client.text.position import TopicPartition
from millstream.core.clock import ManualClock
from millstream.core.errors import ConfigError


@dataclass(frozen=True)
class Sent:
    """A message as confluent-kafka's are asked."""

    at: int
    in_partition: int = 0
    in_topic: str = "payments"

    def topic(self) -> str:
        return self.in_topic

    def partition(self) -> int:
        return self.in_partition

    def offset(self) -> int:
        return self.at


@pytest.fixture(
    params=["SQLite", "SQLite without implicit transactions", "PostgreSQL", "PostgreSQL autocommit"]
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Opens connections to one database, closed at the end."""
    opened: list[Any] = []

    def connect() -> Any:
        if kind.startswith("SQLite"):
            level = {"isolation_level": None} if "without" in kind else {}
            connection: Any = sqlite3.connect(tmp_path / "orders.db", timeout=0.2, **level)
        else:
            url = request.getfixturevalue("database")
            connection = psycopg.connect(url, autocommit="autocommit" in kind)
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def db(connect: Any) -> Any:
    db = connect()
    db.execute("CREATE TABLE effects (message TEXT)")
    db.commit()
    return db


def effect(db: Any, messages: list[Sent]) -> None:
    for message in messages:
        db.execute(f"INSERT INTO effects VALUES ('{message.in_partition}/{message.at}')")


def effects(db: Any) -> list[str]:
    found = [text for (text,) in db.execute("SELECT message FROM effects").fetchall()]
    db.rollback()
    return sorted(found)


def test_a_message_that_comes_again_has_no_second_effect(db: Any) -> None:
    inbox = client.Inbox(db, "billing")
    for _ in range(3):
        with inbox.once([Sent(0), Sent(1), Sent(0, in_partition=1)]) as new:
            effect(db, new)
    with inbox.once(Sent(2)) as new:
        effect(db, new)
    assert effects(db) == ["0/0", "0/1", "0/2", "1/0"]
    assert inbox.positions() == {TopicPartition("payments", 0): 3, TopicPartition("payments", 1): 1}


def test_what_fails_leaves_neither_effect_nor_note(db: Any) -> None:
    inbox = client.Inbox(db, "billing")

    def process(fail: bool) -> None:
        with inbox.once([Sent(5)]) as new:
            effect(db, new)
            if fail:
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        process(fail=True)
    assert (effects(db), inbox.positions()) == ([], {})
    process(fail=False)
    assert effects(db) == ["0/5"]


def test_services_that_share_a_database_each_process_every_message(db: Any, connect: Any) -> None:
    for name in ("billing", "shipping", "billing"):
        with client.Inbox(db, name).once([Sent(0)]) as new:
            effect(db, new)
    assert effects(db) == ["0/0", "0/0"]


def test_two_processes_that_both_believe_a_partition_is_theirs_take_turns(db: Any, connect: Any) -> None:
    mine, other_db = client.Inbox(db, "billing"), connect()
    theirs = client.Inbox(other_db, "billing")
    if isinstance(db, psycopg.Connection):
        other_db.execute("SET lock_timeout = '200ms'")
        other_db.commit()
    with mine.once([Sent(0), Sent(1)]) as new:
        effect(db, new)
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.LockNotAvailable)):
            theirs.once([Sent(0)]).__enter__()
    with theirs.once([Sent(0), Sent(1), Sent(2)]) as new:
        assert new == [Sent(2)]
        effect(other_db, new)
    assert effects(db) == ["0/0", "0/1", "0/2"]


def test_messages_with_ids_may_come_in_any_order(db: Any) -> None:
    inbox = client.Inbox(db, "billing")

    def process(*messages: Sent) -> list[Sent]:
        with inbox.once(messages, id=lambda message: f"it's {message.at}") as new:
            effect(db, new)
            return new

    assert process(Sent(4), Sent(3), Sent(4)) == [Sent(4), Sent(3)]
    assert process(Sent(5), Sent(3), Sent(1)) == [Sent(5), Sent(1)]
    assert process(Sent(3)) == []
    assert effects(db) == ["0/1", "0/3", "0/4", "0/5"]


def test_ids_are_forgotten_when_a_message_can_t_come_again_any_more(db: Any) -> None:
    clock = ManualClock()
    inbox = client.Inbox(db, "billing", keep=timedelta(hours=1), clock=clock)

    def is_new(name: str) -> bool:
        with inbox.once([name], id=str) as new:
            return new == [name]

    assert is_new("a")
    clock.advance(50 * 60)
    assert is_new("b")
    assert not is_new("a")
    clock.advance(20 * 60)
    assert not is_new("b")
    assert is_new("a")


def test_a_block_that_commits_by_itself_is_told_so(db: Any, kind: str) -> None:
    inbox = client.Inbox(db, "billing")
    refused = (ConfigError,) if kind.startswith("SQLite") else (psycopg.ProgrammingError,)
    with pytest.raises(refused, match=r"by itself|forbidden"), inbox.once([Sent(0)]):
        db.commit()


def test_a_transaction_that_is_open_already_is_refused(db: Any, kind: str) -> None:
    inbox = client.Inbox(db, "billing")
    db.execute("BEGIN")
    with pytest.raises(ConfigError, match="has a transaction open"):
        inbox.positions()
    db.rollback() if "autocommit" not in kind and "without" not in kind else db.execute("ROLLBACK")
    assert inbox.positions() == {}


def test_an_inbox_can_be_moved(db: Any) -> None:
    inbox = client.Inbox(db, "billing")
    inbox.move({TopicPartition("payments", 0): 10})
    with inbox.once([Sent(9), Sent(10)]) as new:
        assert new == [Sent(10)]
    inbox.move({TopicPartition("payments", 0): 0})
    with inbox.once([Sent(9)]) as new:
        assert new == [Sent(9)]


def test_other_connections_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"builtins.str is not a connection of sqlite3's or psycopg's"):
        client.Inbox("orders.db", "billing")
    with pytest.raises(ConfigError, match="needs a name"):
        client.Inbox(sqlite3.connect(":memory:"), "")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 1), st.booleans()), max_size=20)
)
def test_however_batches_are_read_again_every_message_has_one_effect(
    attempts: list[tuple[int, int, int, bool]],
) -> None:
    """Each attempt is a batch of a partition that starts anywhere up to where it stands, and may fail."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE effects (message TEXT)")
    inbox = client.Inbox(db, "billing")
    stands = {0: 0, 1: 0}
    for start, size, partition, fails in attempts:
        first = min(start, stands[partition])
        batch = [Sent(at, partition) for at in range(first, first + size)]
        try:
            with inbox.once(batch) as new:
                effect(db, new)
                if fails:
                    raise ValueError
            stands[partition] = max(stands[partition], first + size)
        except ValueError:
            pass
    assert effects(db) == sorted(
        f"{partition}/{at}" for partition in stands for at in range(stands[partition])
    )
    db.close()
