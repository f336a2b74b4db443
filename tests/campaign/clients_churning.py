"""Create topics, fill and read them, delete them, and create them again under the same names.

A topic that was created again must be empty, and then hold what was written since, once and in order."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.campaign.clients_common import IMPATIENT, stopping
from tests.campaign.clients_looking import consumer_of
from tests.campaign.journal import Journal


def churn(address: str, journal: Journal, options: dict[str, Any]) -> None:
    chance = Random(journal.life + str(options["seed"]))
    admin = AdminClient({"bootstrap.servers": address, **IMPATIENT})
    names = options["names"]
    turn = 0
    while not stopping():
        turn += 1
        name = chance.choice(names)
        if not (_delete(admin, name) and _create(admin, name, chance)):
            time.sleep(0.1)
            continue
        _use(address, journal, name, turn, chance)
        journal.note("tally", "topics made", 1)


def _delete(admin: AdminClient, name: str) -> bool:
    """True if there is no such topic, for certain."""
    try:
        admin.delete_topics([name], request_timeout=10)[name].result(15)
    except KafkaException as error:
        return error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    except TimeoutError:
        return False
    return True


def _create(admin: AdminClient, name: str, chance: Random) -> bool:
    config = {"segment.bytes": "65536", "file.delete.delay.ms": str(chance.choice((0, 100, 2000)))}
    try:
        admin.create_topics([NewTopic(name, 2, 1, config=config)], request_timeout=10)[name].result(15)
    except (KafkaException, TimeoutError):
        return False  # the broker is away, or the disk is full; the next turn deletes what may exist
    return True


def _use(address: str, journal: Journal, name: str, turn: int, chance: Random) -> None:
    acknowledged: dict[int, list[tuple[int, bytes]]] = {0: [], 1: []}
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged[message.partition()].append((message.offset(), message.value()))
        else:
            refused.append(str(error))

    settings = {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "message.timeout.ms": 0,
        **IMPATIENT,
    }
    producer = Producer(settings)
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(chance.choice((1, 50, 1500))):
        partition = chance.randrange(2)
        sent[partition].append(b"%s:%d:%d" % (journal.life.encode(), turn, number))
        producer.produce(name, sent[partition][-1], partition=partition, on_delivery=delivered)
    deadline = time.monotonic() + 120
    while producer.flush(0.5) and time.monotonic() < deadline:
        pass
    if refused:
        journal.note("wrong", f"{name}: {len(refused)} records were refused: {refused[0]}")
    for partition, values in sent.items():
        if [value for _, value in acknowledged[partition]] != values:
            journal.note("wrong", f"{name}-{partition}: not all was acknowledged, or not in order")
        if [offset for offset, _ in acknowledged[partition]] != list(range(len(values))):
            offsets = [offset for offset, _ in acknowledged[partition]]
            journal.note(
                "wrong", f"{name}-{partition} was new, and its offsets are {offsets[:3]} to {offsets[-1:]}"
            )
    _read_back(address, journal, name, sent)


def _read_back(address: str, journal: Journal, name: str, sent: dict[int, list[bytes]]) -> None:
    reader = consumer_of(address, journal.life)
    reader.assign([TopicPartition(name, partition, 0) for partition in sent])
    found: dict[int, list[bytes]] = {partition: [] for partition in sent}
    deadline = time.monotonic() + 120
    while sum(map(len, found.values())) < sum(map(len, sent.values())) and time.monotonic() < deadline:
        for message in reader.consume(2000, timeout=0.1):
            if message.error() is None:
                found[message.partition()].append(message.value())
    for partition, values in sent.items():
        if found[partition] != values:
            got = found[partition]
            detail = f"{len(got)} records were read of {len(values)}, or others: {got[:2]}"
            journal.note("wrong", f"{name}-{partition}: {detail}")
    reader.close()
