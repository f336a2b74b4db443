"""kill -9 under a share group's load: what was acknowledged is not given out again, and nothing is forgotten.

Two members acknowledge in every way, or just go on without a word. A checker accounts for each record by its
offset. An acknowledgement that was under way when the broker was killed may have counted or not.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from millstream.broker.groups.share.share_partition import ACCEPT, REJECT, RELEASE
from tests.support.serve import ServeProcess
from tests.support.share_member import SHARE_ACKNOWLEDGE, SHARE_FETCH, Range, ShareRequests, acquired
from tests.support.topics import create_topic, end_offsets, set_group_settings
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient, answer

KILLS = 6
PARTITIONS = 2
LIMIT = 10  # deliveries
TOPIC = "work"

Record = tuple[int, int]  # partition, offset


class Checker:
    """What each record's members said, and were told."""

    def __init__(self) -> None:
        self.done: dict[Record, int] = {}  # accepted or rejected, and confirmed: the type
        self.may_be_done: set[Record] = set()  # the broker was killed before it answered
        self.least: dict[Record, int] = {}  # the delivery count that the next delivery must have at least
        self.deliveries: Counter[Record] = Counter()
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def delivered(self, record: Record, count: int) -> None:
        with self._lock:
            self.deliveries[record] += 1
            if record in self.done:
                self.wrong.append(f"{record} was given out again after it was done")
            if count < self.least.get(record, 1):
                self.wrong.append(f"{record}: delivery {count}, after one that was saved as later")
            if count > min(self.deliveries[record], LIMIT):
                self.wrong.append(f"{record}: delivery {count}, of {self.deliveries[record]} that were seen")

    def confirmed(self, record: Record, kind: int, count: int) -> None:
        with self._lock:
            if kind == RELEASE:
                self.least[record] = count + 1
            else:
                self.done[record] = kind

    def unknown(self, record: Record) -> None:
        with self._lock:
            self.may_be_done.add(record)


class Member:
    """A member that goes on through every restart of the broker."""

    def __init__(self, name: str, address: str, topic_id: uuid.UUID, checker: Checker) -> None:
        self.name = name
        self._address = address
        self._topic_id = topic_id
        self._checker = checker
        self._random = random.Random(name)
        self.is_careful = False  # accepts everything, at once
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.stopped.is_set():
            with contextlib.suppress(OSError, EOFError):
                self._live()
            self.stopped.wait(0.02)  # the broker is away

    def _live(self) -> None:
        """One session, as long as the broker lives."""
        session = ShareRequests(self._topic_id, group="g", member=f"{self.name}-{uuid.uuid4()}"[:36])
        with WireClient(self._address) as connection:
            connection.send(session.join(TOPIC))
            connection.receive()
            connection.send(session.fetch(*range(PARTITIONS), wait=100))
            while not self.stopped.is_set():
                _, response = answer(SHARE_FETCH, 2, connection.receive())
                if response.error_code.value:
                    return
                given = {p: self._work(p, acquired(response, p)) for p in range(PARTITIONS)}
                self._say(connection, session, {p: found for p, found in given.items() if found})
                most = self._random.choice((1, 20, 200))
                by_record = self._random.random() < 0.5
                connection.send(session.fetch(wait=100, max_records=most, share_acquire_mode=int(by_record)))

    def _work(self, partition: int, taken: list[tuple[int, int, int]]) -> list[tuple[Range, int]]:
        """What to say about these records, and how often they were delivered."""
        given: list[tuple[Range, int]] = []
        for first, last, count in taken:
            for offset in range(first, last + 1):
                self._checker.delivered((partition, offset), count)
            if not self.is_careful and self._random.random() < 0.1 and count < LIMIT - 2:
                continue  # not a word: the lock runs out, or the broker is killed before that
            if self.is_careful or self._random.random() < 0.5:
                types = [ACCEPT]
            else:
                kinds = (ACCEPT, ACCEPT, REJECT, RELEASE if count < LIMIT - 2 else ACCEPT)
                types = [self._random.choice(kinds) for _ in range(first, last + 1)]
            given.append(((first, last, types), count))
        return given

    def _say(
        self, connection: WireClient, session: ShareRequests, given: dict[int, list[tuple[Range, int]]]
    ) -> None:
        if not given:
            return
        try:
            connection.send(
                session.acknowledge({p: [each for each, _ in found] for p, found in given.items()})
            )
            _, response = answer(SHARE_ACKNOWLEDGE, 2, connection.receive())
        except (OSError, EOFError):
            for partition, (first, last, _) in ((p, each) for p, found in given.items() for each, _ in found):
                for offset in range(first, last + 1):
                    self._checker.unknown((partition, offset))
            raise
        errors = {p.partition_index: p.error_code.value for t in response.responses for p in t.partitions}
        for partition, found in given.items():
            for (first, last, types), count in found:
                for offset in range(first, last + 1):
                    record = (partition, offset)
                    if errors.get(partition) == 0:
                        kind = types[0] if len(types) == 1 else types[offset - first]
                        self._checker.confirmed(record, kind, count)
                    elif errors.get(partition) != 121:  # the lock ran out first
                        self._checker.wrong.append(f"{record}: error {errors.get(partition)}")


class Feeder:
    """A producer that goes on through every restart."""

    def __init__(self, address: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "linger.ms": 5,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self.stopped.wait(0.01):
            for _ in range(20):
                self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                number += 1
            self._producer.poll(0)
        assert self._producer.flush(60) == 0


def catalogue(data: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(data / "catalogue.db")) as db:
        return db.execute(query).fetchall()


def start_offsets(data: Path) -> dict[int, int]:
    """The first record of each partition that is not done, as it is saved."""
    return dict(catalogue(data, "SELECT partition, start_offset FROM share_partitions"))


def test_every_record_is_accounted_for_through_kills(tmp_path: Path) -> None:
    settings = {"group.share.min.record.lock.duration.ms": "1000"}
    checker = Checker()
    with ServeProcess(tmp_path / "data", settings=settings) as broker:
        create_topic(broker.address, TOPIC, PARTITIONS)
        ((topic_id,),) = catalogue(tmp_path / "data", "SELECT id FROM topics")
        set_group_settings(
            broker.address,
            "g",
            {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": "2000",
                "share.delivery.count.limit": str(LIMIT),
            },
        )
        feeder = Feeder(broker.address)
        members = [
            Member(name, broker.address, uuid.UUID(bytes=topic_id), checker) for name in ("ada", "bob")
        ]
        for each in (feeder, *members):
            each.thread.start()
        try:
            for _ in range(KILLS):
                before = len(checker.done)
                wait_for(lambda before=before: len(checker.done) > before + 300, timeout=120)  # type: ignore[misc]
                broker.kill()
                broker.start()
            feeder.stopped.set()
            feeder.thread.join()
            for member in members:
                member.is_careful = True
            ends = end_offsets(broker.address, TOPIC, PARTITIONS)
            wait_for(lambda: start_offsets(tmp_path / "data") == ends, timeout=120)
        finally:
            for each in (feeder, *members):
                each.stopped.set()
                each.thread.join()
        broker.stop()

    assert checker.wrong == []
    assert start_offsets(tmp_path / "data") == ends
    everything = {(p, offset) for p, end in ends.items() for offset in range(end)}
    assert everything - checker.done.keys() - checker.may_be_done == set()
    assert len(checker.done) > KILLS * 300
