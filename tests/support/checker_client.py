"""One client of the transaction checker, as a process that tests kill and start again.

    python -m tests.support.checker_client ADDRESS JOURNAL ROLE [ARGUMENTS]

    plain                            an idempotent producer, no transactions
    transactional LIBRARY ID TIMEOUT commits most of its transactions and aborts some
    copier LIBRARY ID TARGET         copies the input, offsets in the transaction; alone in its group
    group-copier ID TARGET           the same, as one member of a group
    reader ISOLATION                 reads everything from the beginning, forever
    watcher GROUP...                 polls ends, last stable offsets and the offsets of groups

Each role writes to its journal what it is about to do, and the outcome. On SIGTERM it finishes what is in
progress.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.history import Write
from tests.support.journal import Journal
from tests.support.transactional import (
    PRODUCERS,
    Confluent,
    Finished,
    MustAbort,
    TransactionalProducer,
)

INPUT = "in"
TARGETS = ["by-java", "by-group"]
PARTITIONS = 2
IMPATIENT = {
    # A broker that has just started may not know its topics yet. By default, librdkafka asks again after
    # 5 minutes.
    "topic.metadata.refresh.interval.ms": 500,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "log_level": 0,
}
STUCK = 75  # exit code of a client that could not go on: start it again
_stopping = False


def _stop(*_: object) -> None:
    global _stopping
    _stopping = True


def turns() -> Iterator[int]:
    """Numbers, until SIGTERM. The short pause between them leaves enough load, and time for other clients."""
    number = 0
    while not _stopping:
        yield number
        number += 1
        time.sleep(0.01)


def consumer(address: str, group: str, isolation: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **IMPATIENT,
            **settings,
        }
    )


def records(messages: list[Message], journal: Journal) -> list[Message]:
    """The messages that are records. Errors among them go to the journal."""
    for message in messages:
        if message.error() is not None:
            journal.trouble(message.error())
    return [message for message in messages if message.error() is None]


def plain(address: str, journal: Journal) -> None:
    settings = {"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 120_000}
    producer = Producer({**settings, "linger.ms": 1, **IMPATIENT})
    numbers: dict[str, int] = {}

    def delivered(error: object, message: Message) -> None:
        value = message.value().decode()
        if error is None:
            journal.ended(numbers.pop(value), "committed", {value: message.offset()})
        else:
            journal.trouble(error)

    for turn in turns():
        for index in range(10):
            number, value = turn * 10 + index, f"{journal.name}.{turn}.{index}"
            write = Write((INPUT, index % PARTITIONS), value)
            numbers[value] = number
            journal.writing(number, journal.name, [write])
            journal.committing(number)
            producer.produce(INPUT, value, partition=write.partition[1], on_delivery=delivered)
        producer.flush(60)


class Writer:
    """Writes transactions with a producer. Makes a new producer when the current one raises Finished."""

    def __init__(self, make: Callable[[], TransactionalProducer], journal: Journal, writer: str) -> None:
        self._make, self._journal, self._writer = make, journal, writer
        self._producer = make()

    def write(
        self,
        number: int,
        writes: list[Write],
        *,
        commit: bool = True,
        offsets: Callable[[TransactionalProducer], None] | None = None,
    ) -> bool:
        """Write one transaction. True if it was certainly committed."""
        producer, journal = self._producer, self._journal
        journal.writing(number, self._writer, writes)
        try:
            try:
                producer.begin()
                for write in writes:
                    producer.send(*write.partition, write.value)
                if offsets is not None:
                    offsets(producer)
                if commit:
                    journal.committing(number)
                    producer.commit()
                    journal.ended(number, "committed", producer.offsets)
                    return True
            except MustAbort as error:
                journal.trouble(error)
            producer.abort()
            journal.ended(number, "aborted", producer.offsets)
        except Finished as error:
            journal.trouble(error)
            producer.close()
            self._producer = self._make()
        return False


def transactional(address: str, journal: Journal, library: str, identity: str, timeout_ms: str) -> None:
    chance = random.Random(journal.name)
    writer = Writer(lambda: PRODUCERS[library](address, identity, int(timeout_ms)), journal, identity)
    for turn in turns():
        count = chance.randint(1, 12)
        writes = [
            Write((INPUT, chance.randrange(PARTITIONS)), f"{journal.name}.{turn}.{index}")
            for index in range(count)
        ]
        writer.write(turn, writes, commit=chance.random() > 0.25)


def copies(journal: Journal, turn: int, target: str, messages: list[Message]) -> list[Write]:
    return [
        Write(
            (target, message.partition()),
            f"{journal.name}.{turn}.{index}",
            ((INPUT, message.partition()), message.offset()),
        )
        for index, message in enumerate(messages)
    ]


def next_offsets(messages: list[Message]) -> dict[int, int]:
    return {message.partition(): message.offset() + 1 for message in messages}


def copied_up_to(
    reader: Consumer, partitions: list[TopicPartition], journal: Journal
) -> list[TopicPartition]:
    """The group's committed offsets, which say what was copied."""
    while not _stopping:
        try:
            known = reader.committed(partitions, timeout=10)
            return [TopicPartition(place.topic, place.partition, max(place.offset, 0)) for place in known]
        except KafkaException as error:
            journal.trouble(error)
            time.sleep(0.1)
    return []


def copier(address: str, journal: Journal, library: str, identity: str, target: str) -> None:
    writer = Writer(lambda: PRODUCERS[library](address, identity, 60_000), journal, identity)
    reader = consumer(address, target, "read_committed")
    assigned = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
    reader.assign(copied_up_to(reader, assigned, journal))
    for turn in turns():
        messages = records(reader.consume(50, 0.2), journal)
        if not messages:
            continue

        def offsets(producer: TransactionalProducer, messages: list[Message] = messages) -> None:
            for partition, offset in next_offsets(messages).items():
                producer.send_offset(target, INPUT, partition, offset)

        if not writer.write(turn, copies(journal, turn, target, messages), offsets=offsets):
            reader.assign(copied_up_to(reader, assigned, journal))


@contextmanager
def not_stuck() -> Iterator[None]:
    """End this process if librdkafka gets stuck. If any broker (not only millstream's) goes away during
    send_offsets_to_transaction, the call may wait forever in spite of its time-out
    (confluentinc/librdkafka#5456).
    """
    watch = threading.Timer(10, os._exit, (STUCK,))
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def group_copier(address: str, journal: Journal, identity: str, target: str) -> None:
    writer = Writer(lambda: Confluent(address, identity), journal, identity)
    session = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    reader = consumer(address, target, "read_committed", **session)
    reader.subscribe([INPUT])
    for turn in turns():
        messages = records(reader.consume(50, 0.2), journal)
        if not messages:
            continue

        def offsets(producer: TransactionalProducer, messages: list[Message] = messages) -> None:
            assert isinstance(producer, Confluent)
            places = [TopicPartition(INPUT, p, offset) for p, offset in next_offsets(messages).items()]
            with not_stuck():
                producer.send_offsets(places, reader)

        if not writer.write(turn, copies(journal, turn, target, messages), offsets=offsets):
            for place in copied_up_to(reader, reader.assignment(), journal):
                with suppress(KafkaException):  # a rebalance took it away: its new owner starts at the offset
                    reader.seek(place)
    reader.close()


def reader(address: str, journal: Journal, isolation: str) -> None:
    following = consumer(address, journal.name, isolation)
    topics = [INPUT, *TARGETS]
    following.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)])
    while not _stopping:
        messages = records(following.consume(1000, 0.1), journal)
        if messages:
            read = [((m.topic(), m.partition()), m.offset(), m.value().decode()) for m in messages]
            journal.polled(isolation == "read_committed", read)


def watcher(address: str, journal: Journal, *groups: str) -> None:
    asking = {
        "last stable offset": consumer(address, "watcher", "read_committed"),
        "end": consumer(address, "watcher", "read_uncommitted"),
    }
    members = {group: consumer(address, group, "read_committed") for group in groups}
    inputs = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
    for _ in turns():
        try:
            for topic in (INPUT, *TARGETS):
                for number in range(PARTITIONS):
                    for name, asked in asking.items():
                        _, high = asked.get_watermark_offsets(TopicPartition(topic, number), 5)
                        journal.mark(name, topic, number, high)
            for group, member in members.items():
                for place in member.committed(inputs, timeout=5):
                    journal.mark(f"offset of {group}", INPUT, place.partition, max(place.offset, 0))
        except KafkaException as error:
            journal.trouble(error)
            time.sleep(0.1)


ROLES: dict[str, Callable[..., None]] = {
    "plain": plain,
    "transactional": transactional,
    "copier": copier,
    "group-copier": group_copier,
    "reader": reader,
    "watcher": watcher,
}


def main(address: str, journal: str, role: str, *arguments: str) -> None:
    signal.signal(signal.SIGTERM, _stop)
    faulthandler.register(signal.SIGUSR1)  # prints where it is waiting
    ROLES[role](address, Journal(Path(journal)), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
