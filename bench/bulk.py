"""Produce and consume in bulk with librdkafka: what a data pipeline does all day."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.memory import make_ready
from bench.rounds import Figure, Wanted, alternate
from bench.servers import Server
from bench.topics import drop_topic, fresh_topic

CHUNK = 10_000


def producer(address: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 5,
            "acks": 1,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 512_000,
        }
    )


def produce(server: Server, topic: str, size: int, count: int, partitions: int) -> None:
    client = producer(server.address)
    value = bytes(size)
    messages = [{"value": value, "partition": number % partitions} for number in range(CHUNK)]
    sent = 0
    while sent < count:
        try:
            sent += client.produce_batch(topic, messages)
        except BufferError:
            client.poll(0.01)
        while len(client) > 1_000_000:
            client.poll(0.01)
    if client.flush(120):
        raise RuntimeError(f"{server.name}: records were not delivered")


def consume(server: Server, topic: str, count: int, partitions: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 8_388_608,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen = 0
    deadline = time.monotonic() + 120
    while seen < count:
        for message in consumer.consume(CHUNK, timeout=1.0):
            if message.error():
                raise RuntimeError(f"{server.name}: {message.error()}")
            seen += 1
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.name}: only {seen} of {count} records came")
    consumer.close()


def measure(server: Server, *, size: int, count: int, partitions: int) -> dict[str, float]:
    topic = fresh_topic(server, partitions)
    make_ready(size * count)
    cpu, start = server.cpu_seconds(), time.perf_counter()
    produce(server, topic, size, count, partitions)
    produced, produce_cpu = time.perf_counter() - start, server.cpu_seconds() - cpu
    cpu, start = server.cpu_seconds(), time.perf_counter()
    consume(server, topic, count, partitions)
    consumed, consume_cpu = time.perf_counter() - start, server.cpu_seconds() - cpu
    drop_topic(server, topic)
    return {
        "produce": count / produced,
        "produce_cpu": produce_cpu / count * 1e6,
        "consume": count / consumed,
        "consume_cpu": consume_cpu / count * 1e6,
    }


def run(servers: Sequence[Server], *, quick: bool) -> Iterator[Figure]:
    for size, full in ((100, 2_000_000), (1000, 500_000)):
        for partitions in (1, 16):
            shape = f"{size} B, {partitions} partition{'s' if partitions > 1 else ''}"
            yield from alternate(
                "bulk",
                servers,
                partial(measure, size=size, count=full // 10 if quick else full, partitions=partitions),
                [
                    Wanted("produce", f"produce {shape}", "records/s", at_least=1),
                    Wanted("produce_cpu", f"produce {shape}: server CPU", "µs/record", at_most=0.5),
                    Wanted("consume", f"consume {shape}", "records/s", at_least=1),
                    Wanted("consume_cpu", f"consume {shape}: server CPU", "µs/record", at_most=1),
                ],
                rounds=2 if quick else 5,
            )
