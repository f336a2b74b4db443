"""A member of a group, of the classic or the consumer protocol: it notes what it processed, then commits."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.campaign.clients_common import IMPATIENT, stopping
from tests.campaign.journal import Journal


def member(address: str, journal: Journal, options: dict[str, Any]) -> None:
    chance = Random(journal.life + str(options["seed"]))
    group, kind = options["group"], options["kind"]
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **IMPATIENT,
    }
    if kind == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {
            "partition.assignment.strategy": kind,
            "session.timeout.ms": 4000,
            "heartbeat.interval.ms": 500,
        }
    if options.get("instance"):
        settings["group.instance.id"] = options["instance"]
    consumer = Consumer(settings)
    consumer.subscribe([options["topic"]])
    uncommitted = False
    try:
        while not stopping():
            runs: list[list[Any]] = []
            for message in consumer.consume(chance.choice((10, 200, 2000)), timeout=0.1):
                if message.error() is not None:
                    continue
                place = message.topic(), message.partition()
                if runs and runs[-1][:2] == [*place] and runs[-1][3] == message.offset():
                    runs[-1][3] += 1
                else:
                    runs.append([*place, message.offset(), message.offset() + 1])
            for topic, partition, first, last in runs:
                journal.note("processed", topic, partition, group, first, last)
                journal.note("tally", "processed", last - first)
                uncommitted = True
            if uncommitted and chance.random() < 0.3:
                try:
                    committed = consumer.commit(asynchronous=False)
                    errors = [one.error for one in committed if one.error is not None]
                except KafkaException as error:
                    errors = [error.args[0]]
                for error in errors:
                    journal.note("tally", f"commits refused with {error.name()}", 1)
                # After a rebalance the partition's next owner reads these again.
                uncommitted = any(error.code() != KafkaError._NO_OFFSET for error in errors)
        if uncommitted:
            with suppress(KafkaException):
                consumer.commit(asynchronous=False)
    finally:
        consumer.close()
