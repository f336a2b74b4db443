"""From a record's send to its receipt, at a steady rate; and waking many waiting readers at once.

Producer and consumer are processes of their own, librdkafka with linger 0; both read one machine-wide
monotonic clock, and the time of sending travels in the record.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.synchronize import Event

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import bulk, raw
from bench.memory import make_ready
from bench.rounds import Figure, Wanted, alternate
from bench.servers import Server
from bench.topics import fresh_topic

BULK_RATE = 40_000  # records of 1 KB a second
_spawn = multiprocessing.get_context("spawn")


def send_steadily(address: str, topic: str, rate: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": 1})
    filler = bytes(92)
    start = time.monotonic_ns()
    for number in range(count):
        due = start + number * 1_000_000_000 // rate
        while (now := time.monotonic_ns()) < due:
            if due - now > 200_000:
                time.sleep((due - now) / 1e9 - 0.0001)
        producer.produce(topic, time.monotonic_ns().to_bytes(8, "big") + filler)
        producer.poll(0)
    producer.flush(60)


def send_in_bulk(address: str, topic: str, stop: Event) -> None:
    """A load that is the same for both servers: one that took whatever a server gives would burden the
    quicker one more."""
    producer = bulk.producer(address)
    messages = [{"value": bytes(1000)}] * (BULK_RATE // 20)
    due = time.monotonic()
    while not stop.is_set():
        producer.produce_batch(topic, messages)
        producer.poll(0)
        due += 0.05
        time.sleep(max(0.0, due - time.monotonic()))
    producer.flush(60)


def end_to_end(server: Server, *, rate: int, seconds: float, beside_bulk: bool) -> dict[str, float]:
    topic, count = fresh_topic(server), int(rate * seconds)
    stop = _spawn.Event()
    noise = None
    if beside_bulk:
        make_ready(int(BULK_RATE * (seconds + 5)) * 1000)
        noise = _spawn.Process(target=send_in_bulk, args=(server.address, fresh_topic(server), stop))
        noise.start()
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench",
            "fetch.wait.max.ms": 500,
            "fetch.min.bytes": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    sender = _spawn.Process(target=send_steadily, args=(server.address, topic, rate, count))
    sender.start()
    taken: list[float] = []
    deadline = time.monotonic() + seconds + 90
    while len(taken) < count:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            taken.append((time.monotonic_ns() - int.from_bytes(message.value()[:8], "big")) / 1e6)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.name}: only {len(taken)} of {count} records came")
    stop.set()
    sender.join()
    if noise is not None:
        noise.join()
    consumer.close()
    taken = sorted(taken[count // 10 :])
    return {"p50": statistics.median(taken), "p99": taken[int(len(taken) * 0.99)]}


def wake_readers(server: Server, *, readers: int, times: int) -> dict[str, float]:
    """One append while ``readers`` long polls wait at the end: until the last of them has its answer."""
    topic = fresh_topic(server)
    sender = raw.connect(server)
    sockets = [raw.connect(server) for _ in range(readers)]
    request = raw.produce_frame(topic, acks=1)
    taken = []
    for number in range(times):
        waiting = raw.fetch_frame(topic, number, max_wait_ms=30_000)
        for reader in sockets:
            reader.sendall(waiting)
        time.sleep(0.3)  # so that every poll is parked: nothing outside the server can tell when it is
        start = time.perf_counter()
        sender.sendall(request)
        for reader in sockets:
            raw.receive_answer(reader)
        taken.append(time.perf_counter() - start)
        raw.receive_answer(sender)
    for connection in (*sockets, sender):
        connection.close()
    return {"all": statistics.median(taken) * 1000}


def run(servers: Sequence[Server], *, quick: bool) -> Iterator[Figure]:
    rounds = 1 if quick else 3
    seconds = 2 if quick else 10
    for rate, beside_bulk in ((1000, False), (10_000, False), (1000, True)):
        shape = f"end to end at {rate:,}/s, linger 0" + (
            ", beside 40 MB/s from a bulk producer" if beside_bulk else ""
        )
        yield from alternate(
            "latency",
            servers,
            partial(end_to_end, rate=rate, seconds=seconds, beside_bulk=beside_bulk),
            [
                Wanted("p50", f"{shape}: p50", "ms", at_most=1),
                Wanted("p99", f"{shape}: p99", "ms", at_most=1),
            ],
            rounds,
        )
    yield from alternate(
        "latency",
        servers,
        partial(wake_readers, readers=200, times=5 if quick else 20),
        [Wanted("all", "one append wakes 200 long polls: all answered", "ms", at_most=0.5)],
        rounds,
    )
