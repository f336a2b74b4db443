"""What it costs to check every record before it is taken, by codec: a broker has to decompress to do so."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from functools import partial

from confluent_kafka import Producer

from bench import bulk
from bench.memory import make_ready
from bench.rounds import Figure, Wanted, alternate
from bench.servers import Server
from bench.topics import drop_topic, fresh_topic
from millstream.records.compression import NAMES

SIZE = 200  # bytes of a record, about


def values(count: int) -> list[bytes]:
    """Events as programs write them: JSON that a codec makes three to six times smaller."""
    chance = random.Random(1)
    return [
        (
            b'{"id":"%032x","card":"%d","amount":%d.%02d,"currency":"EUR","country":"%s",'
            b'"paid_at":"2026-01-01T%02d:%02d:%02d"}'
        )
        % (
            chance.getrandbits(128),
            chance.randrange(10**6),
            chance.randrange(500),
            chance.randrange(100),
            chance.choice([b"DE", b"FR", b"PL"]),
            chance.randrange(24),
            chance.randrange(60),
            chance.randrange(60),
        )
        for _ in range(count)
    ]


def measure(server: Server, *, codec: str, count: int) -> dict[str, float]:
    topic = fresh_topic(server, 1)
    make_ready(SIZE * count)
    client = Producer(
        {
            "bootstrap.servers": server.address,
            "linger.ms": 5,
            "acks": 1,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "compression.type": codec,
        }
    )
    messages = [{"value": value} for value in values(bulk.CHUNK)]
    cpu, start = server.cpu_seconds(), time.perf_counter()
    for _ in range(count // bulk.CHUNK):
        client.produce_batch(topic, messages)
        while len(client) > 200_000:
            client.poll(0.01)
    if client.flush(120):
        raise RuntimeError(f"{server.name}: records were not delivered")
    seconds, used = time.perf_counter() - start, server.cpu_seconds() - cpu
    drop_topic(server, topic)
    return {"rate": count / seconds, "cpu": used / count * 1e6}


def run(servers: Sequence[Server], *, quick: bool) -> Iterator[Figure]:
    for codec in NAMES:
        yield from alternate(
            "checking",
            servers,
            partial(measure, codec=codec, count=100_000 if quick else 500_000),
            [
                Wanted("rate", f"produce JSON of 150 B, {codec}", "records/s", at_least=1),
                Wanted("cpu", f"produce JSON of 150 B, {codec}: server CPU", "µs/record", at_most=1),
            ],
            rounds=2 if quick else 3,
        )
