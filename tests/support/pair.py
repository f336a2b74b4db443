"""Runs a leader and its standby, each as a process of its own."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from millstream.client.connect import Connection
from millstream.client.protocol.standby import BrokerPair
from millstream.core.clock import SystemClock
from millstream.core.errors import MillstreamError
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for

SMALL_SEGMENTS = {"topic.segment.bytes": "100000"}


@contextmanager
def leader_and_standby(scratch: Path) -> Iterator[tuple[ServeProcess, ServeProcess]]:
    """Start both brokers. Those that still run at the end are stopped."""
    leader = ServeProcess(scratch / "leader", settings=SMALL_SEGMENTS)
    standby = ServeProcess(scratch / "standby", settings={**SMALL_SEGMENTS, "follow": leader.address})
    with leader, standby:
        yield leader, standby


def status(broker: ServeProcess) -> dict[str, Any]:
    return BrokerPair(Connection(broker.address)).status()


def files_of(broker: ServeProcess) -> dict[str, str]:
    """The hash of every segment's content, by its path."""
    assert broker.data is not None
    return {
        str(path.relative_to(broker.data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(broker.data.glob("*-[0-9]*/*.log"))
        if not path.parent.name.endswith("-cut")
    }


def wait_until_whole(leader: ServeProcess, standby: ServeProcess) -> None:
    """Wait until the standby has everything that the leader will ever have, including the catalogue.

    Nothing may be writing. Up to a second after a transaction the leader changes its catalogue once more: it
    forgets the markers. Under transactions that go on it always has some that it has yet to forget.
    """
    wait_for(lambda: not _owes_markers(leader), timeout=90, what="the leader has forgotten its markers")
    wait_until_caught_up(leader, standby)


def wait_until_caught_up(leader: ServeProcess, standby: ServeProcess) -> None:
    """Wait until the standby has everything that the leader has now. Others may go on writing."""

    def is_whole() -> bool:
        try:
            told = status(standby).get("standby")
        except MillstreamError:
            return False
        whole = told and told["whole"]
        return bool(whole and whole[0] > asked_ms)

    asked_ms = SystemClock().now_ms()
    # A standby that has everything gets no news from its leader, so make a change for it to hear of.
    wait_for(lambda: _poke(leader), timeout=90, what="the leader takes a change")
    wait_for(is_whole, timeout=90, what=f"the standby has everything:\n{standby.logged()[-2000:]}")


def _owes_markers(leader: ServeProcess) -> bool:
    assert leader.data is not None
    with closing(sqlite3.connect(f"file:{leader.data}/catalogue.db?mode=ro", uri=True)) as catalogue:
        return bool(catalogue.execute("SELECT count(*) FROM owed_markers").fetchone()[0])


def _poke(leader: ServeProcess) -> bool:
    from confluent_kafka import Consumer, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": leader.address, "log_level": 0})
    try:
        admin.create_topics([NewTopic("poked", 1, 1)])["poked"].result(60)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            return False
    consumer = Consumer({"bootstrap.servers": leader.address, "group.id": "poke", "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition("poked", 0, 0)], asynchronous=False)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True
