"""How fast a log is compacted, beside a plain copy of its bytes and beside Kafka's cleaner; and what other
clients feel of it.

A topic is filled while nothing is due (a dirty ratio of 1 is never passed), then the ratio is lowered; it is
done when the partition has shrunk to what its keys need. Both brokers look for work every 100 ms.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from crc32c import crc32c

from bench import bulk, latency, servers
from bench.rounds import Figure
from bench.servers import Server
from bench.topics import drop_topic, fresh_topic
from millstream.client.connect import Connection
from millstream.client.protocol.sizes import log_dirs, partition_sizes
from millstream.client.text.position import TopicPartition
from tests.support.waiting import wait_for

KEYS = 20_000
VALUE = 200
SETTINGS = {"log.cleaner.backoff.ms": "100"}
PIECE = 1 << 20


def fill(server: Server, topic: str, megabytes: int) -> int:
    """Produce until the partition has about so many; its size."""
    producer = bulk.producer(server.address)
    chance = random.Random(1)
    records = [
        {"key": b"key-%d" % chance.randrange(KEYS), "value": chance.randbytes(VALUE)}
        for _ in range(bulk.CHUNK)
    ]
    for _ in range(megabytes * 1_000_000 // (bulk.CHUNK * (VALUE + 20))):
        for record in records:
            record["key"] = b"key-%d" % chance.randrange(KEYS)
        producer.produce_batch(topic, records)
        producer.flush(120)
    return size_of(server, topic)


def size_of(server: Server, topic: str) -> int:
    return partition_sizes(log_dirs(Connection(server.address))).get(TopicPartition(topic, 0), 0)


def begin(server: Server, topic: str) -> None:
    """Have it compacted from now on."""
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([wanted]).values():
        done.result(30)


def dirty_topic(server: Server, megabytes: int) -> tuple[str, int]:
    topic = fresh_topic(
        server, cleanup_policy="compact", segment_bytes="16777216", min_cleanable_dirty_ratio="1.0"
    )
    return topic, fill(server, topic, megabytes)


def rate(server: Server, megabytes: int) -> float:
    """MB/s of log that are compacted."""
    topic, size = dirty_topic(server, megabytes)
    servers.settle(server)
    started = time.perf_counter()
    begin(server, topic)
    # What is left: the keys once, and the active segment.
    left = KEYS * (VALUE + 100) + 20_000_000
    wait_for(lambda: size_of(server, topic) < max(left, size // 3), timeout=300, what="it is compacted")
    seconds = time.perf_counter() - started
    drop_topic(server, topic)
    return size / 1e6 / seconds


def copy_rate(megabytes: int) -> float:
    """MB/s of a copy from file to file, checked as a log's bytes are: no compaction can be faster."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        source, copy = Path(scratch, "source"), Path(scratch, "copy")
        with source.open("wb") as file:
            for _ in range(megabytes):
                file.write(random.randbytes(PIECE))
        started = time.perf_counter()
        with source.open("rb") as reading, copy.open("wb") as writing:
            while piece := reading.read(PIECE):
                crc32c(piece)
                writing.write(piece)
        return megabytes * PIECE / 1e6 / (time.perf_counter() - started)


def felt(server: Server, megabytes: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """End-to-end latencies of a client of another topic: alone, and while four logs are compacted."""
    dirty = [dirty_topic(server, megabytes)[0] for _ in range(4)]
    servers.settle(server)
    alone = latency.end_to_end(server, rate=1000, seconds=seconds, beside_bulk=False)
    for topic in dirty:
        begin(server, topic)
    beside = latency.end_to_end(server, rate=1000, seconds=seconds, beside_bulk=False)
    for topic in dirty:
        drop_topic(server, topic)
    return alone, beside


def run(*, quick: bool) -> Iterator[Figure]:
    megabytes, rounds, seconds = (60, 1, 2) if quick else (400, 3, 10)
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        both = [
            stack.enter_context(servers.millstream(settings=SETTINGS)),
            stack.enter_context(servers.kafka(settings=SETTINGS)),
        ]
        copies = []
        for _ in range(rounds):
            copies.append(copy_rate(megabytes))
            for server in both:
                rates.setdefault(server.name, []).append(rate(server, megabytes))
        ours, theirs = (sorted(values)[rounds // 2] for values in rates.values())
        copied = sorted(copies)[rounds // 2]
        yield Figure(
            "compaction", f"compacting {megabytes} MB", "MB/s", ours, theirs, True, "≥ 1x", ours >= theirs,
            rates,
        )  # fmt: skip
        yield Figure(
            "compaction", "the same against a copy of as many bytes, checked", "MB/s", ours, copied, True,
            rounds={"copy": copies}, note="the copy is the machine's limit, not a broker",
        )  # fmt: skip
        for server in both:
            alone, beside = felt(server, megabytes, seconds)
            for key in ("p50", "p99"):
                what = f"{server.name}, end to end at 1,000/s while four logs are compacted: {key}"
                yield Figure(
                    "compaction", what, "ms", beside[key], alone[key], False,
                    note="latencies: second column without compaction",
                )  # fmt: skip
