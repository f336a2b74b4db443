"""Groups under churn: many members join at once, half of them leave, the same half comes back; the time until
everybody has its share again, with the same clients (librdkafka) on each server.

Members are told of a change at their next heartbeat, which both brokers leave at Kafka's default interval
(3 s in the classic protocol, 5 s in the consumer protocol): where members that are there already have to act,
no figure can be much below it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial

from confluent_kafka import Consumer

from bench.rounds import Figure, Wanted, alternate
from bench.servers import Server
from bench.topics import drop_topic, fresh_topic

EACH = 2  # partitions a member
PATIENCE = 180.0  # seconds

PROTOCOLS: dict[str, dict[str, str]] = {
    "consumer": {"group.protocol": "consumer"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
}


def measure(server: Server, *, protocol: str, members: int) -> dict[str, float]:
    """Seconds until the group is balanced after each change, and what the server worked for it."""
    topic, group = fresh_topic(server, EACH * members), f"churn-{uuid.uuid4()}"
    before = server.cpu_seconds()
    consumers: list[Consumer] = []

    def add(count: int) -> None:
        for _ in range(count):
            settings = {"bootstrap.servers": server.address, "group.id": group, **PROTOCOLS[protocol]}
            consumer = Consumer(settings)
            consumer.subscribe([topic])
            consumers.append(consumer)

    try:
        started = time.perf_counter()
        add(members)
        joined = _balanced(consumers, EACH * members, started)
        leaving = [consumers.pop() for _ in range(members // 2)]
        started = time.perf_counter()
        for consumer in leaving:
            consumer.close()
        left = _balanced(consumers, EACH * members, started)
        started = time.perf_counter()
        add(members - len(consumers))
        back = _balanced(consumers, EACH * members, started)
    finally:
        for consumer in consumers:
            consumer.close()
        drop_topic(server, topic)
    return {"joined": joined, "left": left, "back": back, "cpu": server.cpu_seconds() - before}


def _balanced(consumers: Sequence[Consumer], partitions: int, started: float) -> float:
    """Seconds until every consumer has its share."""
    share, more = divmod(partitions, len(consumers))
    expected = [share] * (len(consumers) - more) + [share + 1] * more
    while time.perf_counter() - started < PATIENCE:
        for consumer in consumers:
            consumer.poll(0)
        owned = [{place.partition for place in consumer.assignment()} for consumer in consumers]
        if sorted(map(len, owned)) == expected and len(set[int]().union(*owned)) == partitions:
            return time.perf_counter() - started
        time.sleep(0.01)
    raise RuntimeError(f"the group is not balanced after {PATIENCE:g} s")


def run(servers: Sequence[Server], *, quick: bool) -> Iterator[Figure]:
    members, rounds = (8, 1) if quick else (100, 3)
    for protocol in PROTOCOLS:
        name = f"{protocol}, {members} members"
        yield from alternate(
            "churn",
            servers,
            partial(measure, protocol=protocol, members=members),
            [
                Wanted("joined", f"{name}: all join, until balanced", "s", at_most=1.0),
                Wanted("left", f"{name}: half leave, until balanced", "s", at_most=1.1),
                Wanted("back", f"{name}: as many join again, until balanced", "s", at_most=1.1),
                Wanted("cpu", f"{name}: server CPU for it all", "s", at_most=1.0),
            ],
            rounds,
        )
