"""Runs the programs of Kafka's own system tests, which decide whether a broker behaves correctly.

``ClientCompatibilityTest`` goes through what a client does. ``LogCompactionTester`` writes the same keys many
times and compares what compaction left with what it should leave. ``TransactionalMessageCopier`` copies a
topic in transactions and aborts some. The Verifiable programs print line by line what they sent, received and
committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.conformance.suite import FAILED, PASSED, Outcome, Suite, SuiteUnavailable, Target, run_quietly
from tests.support.apache_kafka import jars, java
from tests.support.maven import JarsUnavailable
from tests.support.topics import create_topic, produce, values
from tests.support.transactional import read_with_confluent

COUNT = 2000


class Failed(Exception):
    """The program did not do what it should have."""


def _run(tool: str, *arguments: object, timeout: float = 180) -> str:
    command = java(f"org.apache.kafka.tools.{tool}", *map(str, arguments))
    code, said = run_quietly(command, timeout=timeout)
    if code != 0:
        raise Failed(f"{tool} ended with {code}:\n{said[-2000:]}")
    return said


def _events(said: str) -> list[dict[str, Any]]:
    """The events in the output of a Verifiable program, which prints each as a line of JSON."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def _expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Failed(f"{what}: {found}, not {expected}")


def client_compatibility(address: str) -> None:
    create_topic(address, "compatibility", 1)
    supported = [
        "offsets-for-times", "cluster-id", "create-topics", "describe-acls", "describe-configs",
        "idempotent-producer",
    ]  # fmt: skip
    said = _run(
        "ClientCompatibilityTest",
        *("--bootstrap-server", address, "--topic", "compatibility", "--num-cluster-nodes", 1),
        *("--expect-record-too-large-exception", "false"),
        *(word for name in supported for word in (f"--{name}-supported", "true")),
    )
    _expect("SUCCESS." in said, True, "it says that it succeeded")


def log_compaction(address: str) -> None:
    said = _run(
        "LogCompactionTester",
        *("--bootstrap-server", address, "--messages", 20_000, "--sleep", 20),
        *("--percent-deletes", 10, "--duplicates", 5),
    )
    _expect(
        "Data verification is completed" in said, True, f"it says that the data is as it should be ({said})"
    )


def verifiable_producer(acks: int) -> Callable[[str], None]:
    def run(address: str) -> None:
        topic = f"produced-{acks}"
        create_topic(address, topic, 3)
        said = _run(
            "VerifiableProducer",
            *("--bootstrap-server", address, "--topic", topic, "--max-messages", COUNT, "--acks", acks),
        )
        (summary,) = (event for event in _events(said) if event["name"] == "tool_data")
        _expect((summary["sent"], summary["acked"]), (COUNT, COUNT), "sent and acknowledged")
        read = read_with_confluent(address, topic, 3, "read_committed")
        _expect(sorted(int(value) for _, _, value in read), list(range(COUNT)), "records in the topic")

    return run


def verifiable_consumer(name: str, *more: str) -> Callable[[str], None]:
    def run(address: str) -> None:
        topic = f"consumed-{name}"
        create_topic(address, topic, 2)
        for partition in range(2):
            produce(address, topic, values(*range(COUNT // 2)), partition)
        said = _run(
            "VerifiableConsumer",
            *("--bootstrap-server", address, "--topic", topic, "--group-id", topic, "--verbose"),
            *("--reset-policy", "earliest", "--max-messages", COUNT, *more),
        )
        events = _events(said)
        records = [(e["partition"], e["offset"]) for e in events if e["name"] == "record_data"]
        _expect(sorted(records), [(p, o) for p in range(2) for o in range(COUNT // 2)], "records read")
        commits = [event["success"] for event in events if event["name"] == "offsets_committed"]
        _expect(bool(commits) and all(commits), True, "every commit succeeded")

    return run


def verifiable_share_consumer(address: str) -> None:
    create_topic(address, "shared", 2)
    produce(address, "shared", values(*range(COUNT)))
    said = _run(
        "VerifiableShareConsumer",
        *("--bootstrap-server", address, "--topic", "shared", "--group-id", "shared"),
        *("--offset-reset-strategy", "earliest", "--max-messages", COUNT),
        timeout=60,
    )
    got = sum(event["count"] for event in _events(said) if event["name"] == "records_consumed")
    _expect(got, COUNT, "records read")


def message_copier(name: str, *more: str) -> Callable[[str], None]:
    def run(address: str) -> None:
        topic, copy = f"copied-{name}", f"copied-{name}-copy"
        for each in (topic, copy):
            create_topic(address, each, 1)
        produce(address, topic, values(*range(COUNT)))
        _run(
            "TransactionalMessageCopier",
            *(
                "--broker-list",
                address,
                "--input-topic",
                topic,
                "--input-partition",
                0,
                "--output-topic",
                copy,
            ),
            *("--consumer-group", topic, "--transactional-id", topic, "--transaction-size", 100),
            *("--max-messages", COUNT, *more),
        )
        read = [int(value) for _, _, value in read_with_confluent(address, copy, 1, "read_committed")]
        _expect(read, list(range(COUNT)), "the copy")

    return run


TESTS: dict[str, Callable[[str], None]] = {
    "ClientCompatibilityTest": client_compatibility,
    "LogCompactionTester": log_compaction,
    "VerifiableProducer acks=1": verifiable_producer(1),
    "VerifiableProducer acks=all": verifiable_producer(-1),
    "VerifiableConsumer classic": verifiable_consumer("classic", "--group-protocol", "classic"),
    "VerifiableConsumer classic, cooperative": verifiable_consumer(
        "cooperative", "--group-protocol", "classic",
        "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    ),
    "VerifiableConsumer consumer": verifiable_consumer("consumer", "--group-protocol", "consumer"),
    "VerifiableConsumer consumer, range": verifiable_consumer(
        "range", "--group-protocol", "consumer", "--group-remote-assignor", "range"
    ),
    "VerifiableShareConsumer": verifiable_share_consumer,
    "TransactionalMessageCopier": message_copier("plain"),
    "TransactionalMessageCopier with aborts": message_copier("aborts", "--enable-random-aborts"),
    "TransactionalMessageCopier in a group": message_copier("group", "--group-mode", "--use-group-metadata"),
}  # fmt: skip


def run(target: Target) -> Mapping[str, Outcome]:
    try:
        jars()
    except JarsUnavailable as reason:
        raise SuiteUnavailable(str(reason)) from None
    outcomes = {}
    for name, test in TESTS.items():
        try:
            test(target.address)
        except Exception as error:  # whatever went wrong, the next test runs
            outcomes[name] = Outcome(FAILED, f"{type(error).__name__}: {error}"[-2000:])
        else:
            outcomes[name] = Outcome(PASSED)
    return outcomes


# The setting makes compaction start soon after the tester has written.
SUITE = Suite(
    "kafka-tools",
    "the programs of Apache Kafka's own system tests, in its kafka-tools",
    run,
    {"log.cleaner.backoff.ms": "1000"},
)
