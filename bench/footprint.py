"""Memory at rest, and the time until a broker is ready."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench import raw
from bench.rounds import Figure
from bench.servers import Server, kafka, millstream, settle

# Kafka 4.3 does not get through its start with less heap than this.
SMALLEST_HEAPS = ("64m", "96m", "128m", "192m", "256m")


def idle_memory(server: Server, connections: int) -> tuple[float, float]:
    """Resident MB at rest, and with idle connections that have each asked for the API versions."""
    settle(server)
    alone = server.resident_mb()
    sockets = [raw.connect(server) for _ in range(connections)]
    question = raw.frame(18, 3, {"client_software_name": "bench", "client_software_version": "1"})
    for connection in sockets:
        connection.sendall(question)
    for connection in sockets:
        raw.receive_answer(connection)
    settle(server)
    crowded = server.resident_mb()
    for connection in sockets:
        connection.close()
    return alone, crowded


def kafka_at_its_smallest(connections: int) -> tuple[str, float, float]:
    for heap in SMALLEST_HEAPS:
        try:
            with kafka(heap=heap) as server:
                return heap, *idle_memory(server, connections)
        except (AssertionError, OSError, RuntimeError):
            continue  # it ended or never answered: not a working heap
    raise RuntimeError(f"Apache Kafka starts with none of {SMALLEST_HEAPS}")


def ready_with_partitions(partitions: int) -> float:
    """Seconds from the command to the line that says ready, with so many partitions on disk."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        data = Path(scratch) / "data"
        with millstream(data=data) as server:
            admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
            names = [f"t{number}" for number in range(partitions // 10)]
            for future in admin.create_topics([NewTopic(name, 10, 1) for name in names]).values():
                future.result(60)
            connection = raw.connect(server)
            for name in names:
                for partition in range(10):
                    connection.sendall(raw.produce_frame(name, acks=1, partition=partition))
                    raw.receive_answer(connection)
            connection.close()
        start = time.perf_counter()
        with millstream(data=data):
            return time.perf_counter() - start


def run(*, quick: bool) -> Iterator[Figure]:
    connections = 100 if quick else 1000
    with millstream() as server:
        alone, crowded = idle_memory(server, connections)
    heap, kafka_alone, kafka_crowded = kafka_at_its_smallest(connections)
    note = f"Kafka with {heap} of heap, the smallest it starts with"
    for what, ours, theirs in (
        ("resident when idle", alone, kafka_alone),
        (f"resident with {connections:,} idle connections", crowded, kafka_crowded),
    ):
        met = ours < 60 and ours < theirs / 5
        yield Figure("footprint", what, "MB", ours, theirs, False, "< 60 MB, ≤ 0.2x", met, note=note)
    partitions = 100 if quick else 1000
    seconds = ready_with_partitions(partitions)
    what = f"ready with {partitions:,} partitions on disk after a clean shutdown"
    yield Figure("footprint", what, "s", seconds, None, False, "< 1 s", seconds < 1)
