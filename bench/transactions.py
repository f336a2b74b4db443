"""Transactions: what they cost a producer, and what leaving out aborted records costs a reader."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.rounds import Figure, Wanted, alternate
from bench.servers import Server
from bench.topics import fresh_topic
from tests.support.apache_kafka import run_tool

PER_TRANSACTION = 1000
SIZE = 100
ABORTED = 10  # one in so many


def write(server: Server, topic: str, transactions: int, *, aborted: int = 0) -> float:
    """Write so many transactions with librdkafka, one after the other; seconds from first to last."""
    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "transactional.id": topic,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    messages = [{"value": bytes(SIZE)} for _ in range(PER_TRANSACTION)]
    start = time.perf_counter()
    for number in range(transactions):
        producer.begin_transaction()
        if producer.produce_batch(topic, messages) != PER_TRANSACTION:
            raise RuntimeError(f"{server.name}: the producer's queue was full")
        if aborted and number % aborted == 0:
            producer.flush(60)  # or librdkafka drops what it has not sent yet
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    return time.perf_counter() - start


def measure_produce(server: Server, *, transactions: int, synced: bool = False) -> dict[str, float]:
    # Kafka's acks=all does not sync by itself; flush.messages=1 makes it do what ours does.
    config = {"flush_messages": "1"} if synced and server.name != "millstream" else {}
    topic = fresh_topic(server, 1, **config)
    cpu = server.cpu_seconds()
    seconds = write(server, topic, transactions)
    records = transactions * PER_TRANSACTION
    return {
        "rate": records / seconds,
        "time": seconds / transactions * 1000,
        "cpu": (server.cpu_seconds() - cpu) / records * 1e6,
    }


def measure_java(server: Server, *, records: int) -> dict[str, float]:
    """Kafka's own load generator: the newer transaction protocol, a transaction every 50 ms."""
    topic = fresh_topic(server)
    done = run_tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(SIZE), "--throughput", "-1"),
        *("--transactional-id", topic, "--transaction-duration-ms", "50"),
        *("--bootstrap-server", server.address),
    )
    rates = re.findall(rf"^{records} records sent, ([\d.]+) records/sec", done.stdout, re.MULTILINE)
    if not rates:
        raise RuntimeError(f"{server.name}: {done.stdout}{done.stderr}")
    return {"rate": float(rates[0])}


def read(server: Server, topic: str, isolation: str, count: int) -> float:
    """Read a topic until so many records came; seconds from the first to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 8_388_608,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen, start = 0, time.perf_counter()
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=10.0)  # it waits for all of them
        if not messages or messages[-1].error():
            raise RuntimeError(f"{server.name}: only {seen} of {count} records came")
        seen += len(messages)
    seconds = time.perf_counter() - start
    consumer.close()
    return seconds


def measure_consume(server: Server, *, topics: dict[str, str], transactions: int) -> dict[str, float]:
    """Records given to the reader a second; that of read_committed gets the aborted ones too, for nothing."""
    records = transactions * PER_TRANSACTION
    committed = records - -(-transactions // ABORTED) * PER_TRANSACTION
    topic = topics[server.name]
    return {
        "uncommitted": records / read(server, topic, "read_uncommitted", records),
        "committed": committed / read(server, topic, "read_committed", committed),
    }


def run(servers: Sequence[Server], *, quick: bool) -> Iterator[Figure]:
    rounds = 2 if quick else 5
    transactions = 40 if quick else 400
    for server in servers:  # neither has seen a transaction yet
        measure_produce(server, transactions=transactions // 4)
    shape = f"transactions of {PER_TRANSACTION:,} x {SIZE} B"
    yield from alternate(
        "transactions",
        servers,
        partial(measure_produce, transactions=transactions),
        [
            Wanted("rate", f"produce {shape}", "records/s", at_least=1),
            Wanted("time", f"produce {shape}: one transaction", "ms"),
            Wanted("cpu", f"produce {shape}: server CPU", "µs/record"),
        ],
        rounds,
    )
    yield from alternate(
        "transactions",
        servers,
        partial(measure_produce, transactions=transactions, synced=True),
        [Wanted("rate", f"produce {shape}, both synced to disk", "records/s")],
        rounds,
    )
    yield from alternate(
        "transactions",
        servers,
        partial(measure_java, records=100_000 if quick else 1_000_000),
        [Wanted("rate", f"Java's producer, {SIZE} B, a transaction every 50 ms", "records/s", at_least=1)],
        rounds,
    )
    topics = {server.name: fresh_topic(server) for server in servers}
    longer = transactions * 2
    for server in servers:
        write(server, topics[server.name], longer, aborted=ABORTED)
    aborted = f"1 in {ABORTED} transactions aborted"
    uncommitted, committed = alternate(
        "transactions",
        servers,
        partial(measure_consume, topics=topics, transactions=longer),
        [
            Wanted("uncommitted", f"consume {aborted}, read_uncommitted", "records/s"),
            Wanted("committed", f"consume {aborted}, read_committed", "records/s", at_least=1),
        ],
        rounds,
    )
    yield from (uncommitted, committed)
    ours = servers[0].name
    fast, slow = (statistics.median(figure.rounds[ours]) for figure in (uncommitted, committed))
    yield Figure(
        "transactions", "read_committed (ours) against read_uncommitted", "records/s", slow, fast, True,
        "≥ 0.9x", slow >= 0.9 * fast,
        note="second column of the last row: the same broker, read_uncommitted",
    )  # fmt: skip
