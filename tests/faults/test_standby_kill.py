"""kill -9 of a leader and of its standby, over and over, under producers and transactions; then the standby
leads, and everything that it had said it has is there."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.campaign import promotions
from tests.support.command import CommandLine
from tests.support.maven import JarsUnavailable
from tests.support.pair import (
    SMALL_SEGMENTS,
    files_of,
    leader_and_standby,
    wait_until_caught_up,
    wait_until_whole,
)
from tests.support.serve import MILLSTREAM, ServeProcess
from tests.support.topics import consume, create_topic
from tests.support.waiting import wait_for

ROUNDS = 4
PATIENCE = 10
QUIET = {"log_level": 0, "socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 200}


class PlainLoad(threading.Thread):
    """An idempotent producer of numbers, which goes on through every break."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.stopping = False
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})

    def run(self) -> None:
        number = 0
        # Records that were acknowledged and that the standby did not have are lost when it leads; an
        # idempotent producer finds a gap in its numbers then, and takes no more. (The library has a fatal
        # error and a delivery to report at once, and then raises a SystemError.)
        with contextlib.suppress(KafkaException, SystemError):
            while not self.stopping:
                self._producer.poll(0.001)
                # The library takes 100,000 records while the broker is away, and then no more.
                with contextlib.suppress(BufferError):
                    self._producer.produce(
                        "plain", b"%d" % number, partition=number % 2, on_delivery=self._done
                    )
                    number += 1
            self._producer.flush(60)

    def _done(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))  # type: ignore[attr-defined]


class TransactionLoad(threading.Thread):
    """Transactions that write their number to two topics."""

    def __init__(self, server: str) -> None:
        super().__init__(daemon=True)
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.stopping = False
        self._settings = {"bootstrap.servers": server, **QUIET}

    def run(self) -> None:
        number = 0
        while not self.stopping:
            try:
                producer = Producer({**self._settings, "transactional.id": "both"})
                producer.init_transactions(30)
                while not self.stopping:
                    number += 1
                    self._one(producer, number)
            except KafkaException:
                continue  # whether it was committed is not known; the next producer goes on

    def _one(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for topic in ("left", "right"):
            producer.produce(topic, b"%d" % number, partition=0)
        if number % 5 == 0:
            producer.abort_transaction(PATIENCE)
            self.aborted.append(number)
            return
        producer.commit_transaction(PATIENCE)
        self.committed.append(number)


def committed_values(address: str, topic: str) -> list[int]:
    settings = {"bootstrap.servers": address, "group.id": "look", "isolation.level": "read_committed"}
    reader = Consumer({**settings, "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = reader.poll(90)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            reader.close()
            return found
        found.append(int(message.value()))


def test_what_the_standby_had_is_there_after_any_number_of_kills(tmp_path: Path) -> None:
    with leader_and_standby(tmp_path) as (leader, standby):
        create_topic(leader.address, "plain", 2)
        create_topic(leader.address, "left", 1)
        create_topic(leader.address, "right", 1)
        servers = f"{leader.address},{standby.address}"
        plain, transactions = PlainLoad(servers), TransactionLoad(leader.address)
        plain.start()
        transactions.start()

        def progress() -> None:
            acknowledged, committed = len(plain.acknowledged) + 50, len(transactions.committed) + 2
            wait_for(lambda: len(plain.acknowledged) >= acknowledged, timeout=60, what="records")
            wait_for(lambda: len(transactions.committed) >= committed, timeout=60, what="transactions")

        for number in range(ROUNDS):
            progress()
            victim = leader if number % 2 else standby
            victim.kill()
            if victim is standby:
                progress()
            victim.start()
        progress()
        had, had_committed = set(plain.acknowledged), set(transactions.committed)
        wait_until_caught_up(leader, standby)
        leader.kill()  # with requests under way
        plain.stopping = transactions.stopping = True
        CommandLine(standby.address).ok("promote", "--force")
        plain.join(90)
        transactions.join(90)

        # The id's next producer ends what was open when the leader died.
        Producer({"bootstrap.servers": standby.address, "transactional.id": "both"}).init_transactions(30)
        found = Counter(int(record.value) for _, record in consume(standby.address, "plain"))
        assert had <= found.keys(), "a record that the standby had is lost"
        left, right = committed_values(standby.address, "left"), committed_values(standby.address, "right")
        assert left == right, "a transaction is torn"
        assert had_committed <= set(left), "a transaction that the standby had is lost"
        assert not set(left) & set(transactions.aborted), "an aborted transaction is seen"
        assert len(left) == len(set(left))


def test_a_standby_that_is_killed_during_its_first_copy_goes_on_with_it(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "leader", settings=SMALL_SEGMENTS) as leader:
        create_topic(leader.address, "plain", 2)
        refused = []
        producer = Producer({"bootstrap.servers": leader.address, "batch.size": 50_000})
        for number in range(60_000):  # 60 MB: what takes a while to copy
            producer.produce(
                "plain",
                bytes(1000),
                partition=number % 2,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert refused == []
        standby = ServeProcess(tmp_path / "standby", settings={**SMALL_SEGMENTS, "follow": leader.address})
        with standby:
            assert standby.data is not None
            copied = standby.data.glob
            for count in (0, 50, 200):
                wait_for(lambda: len(list(copied("plain-*/*.log"))) > count, what="part of a copy")  # noqa: B023
                standby.kill()
                led = MILLSTREAM, "serve", "--data", str(standby.data), "--listen", "127.0.0.1:0"
                alone = subprocess.run(led, capture_output=True, text=True, timeout=400)
                assert alone.returncode == 1
                assert "is a standby's copy of the broker at" in alone.stderr, "half a copy does not lead"
                standby.start()
            wait_until_whole(leader, standby)
            assert files_of(leader) == files_of(standby)


def test_a_leader_that_lost_its_tail_is_followed_and_what_it_lost_is_kept_aside(tmp_path: Path) -> None:
    """As after a power cut: the leader comes back with less than the standby has had from it."""
    with leader_and_standby(tmp_path) as (leader, standby):
        create_topic(leader.address, "t", 1)
        producer = Producer({"bootstrap.servers": leader.address, **QUIET})
        for number in range(20):
            producer.produce("t", b"old %d" % number, partition=0)
            producer.flush(60)
        wait_until_whole(leader, standby)
        leader.kill()
        segment = (leader.data or Path()) / "t-0" / "00000000000000000000.log"
        data = segment.read_bytes()
        segment.write_bytes(data[: data.index(b"old 15") - 40])
        for checkpoint in (leader.data or Path()).glob("recovery-point*"):
            checkpoint.unlink()
        leader.start()
        producer = Producer({"bootstrap.servers": leader.address, **QUIET})
        producer.produce("t", b"new", partition=0)
        assert producer.flush(60) == 0
        wait_until_whole(leader, standby)
        copy = (standby.data or Path()) / "t-0" / "00000000000000000000.log"
        assert copy.read_bytes() == segment.read_bytes()
        (aside,) = (standby.data or Path()).glob("t-0.*-cut/*.log")
        assert b"old 19" in aside.read_bytes()
        assert b"old 14" not in aside.read_bytes()


def test_with_two_in_sync_no_acknowledged_record_is_lost_by_kills_and_promotions(tmp_path: Path) -> None:
    """kill -9 of the leader under an idempotent producer at full speed, promotion, the old leader back as the
    standby, and again."""
    outcome = promotions.run(
        tmp_path, count=3, clients=["librdkafka"], rate=20_000, pause=0.5, min_insync=2, seed=1, say=False
    )
    found = outcome.accounts["librdkafka"]
    assert found["acknowledged"] > 100
    assert (found["lost"], found["duplicates"], found["disordered"]) == (0, 0, 0), found
    assert outcome.fatal["librdkafka"] == []


def test_producers_of_both_clients_go_on_after_promotions(tmp_path: Path) -> None:
    """A switch loses nothing and the old leader stays for a while, as one that is about to be taken down."""
    try:
        outcome = promotions.run(
            tmp_path, count=2, clients=["java", "librdkafka"], switch=True, pause=0.5, rate=2000, say=False
        )
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    for client, found in outcome.accounts.items():
        assert found["acknowledged"] > 100
        assert (found["lost"], found["duplicates"], found["disordered"]) == (0, 0, 0), (client, found)
        assert outcome.fatal[client] == []
        assert outcome.errors[client] == []
