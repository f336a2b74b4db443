"""What a partition costs that nobody uses: memory, time to start, CPU at rest; from one to ten thousand."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import own_cpu_seconds
from bench.rounds import Figure
from bench.servers import Server, settle
from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.serve import ServeProcess

OURS = (1, 100, 1000, 10_000)
THEIRS = (1, 100, 1000)  # with more, Apache Kafka wants more of everything than this machine may give it
REST = 5.0  # seconds at rest
A_TOPIC = 1000


def create(address: str, have: int, total: int) -> None:
    """Topics that bring the number of partitions to ``total``."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    while have < total:
        count = min(A_TOPIC, total - have)
        name = f"p{have}"
        made = admin.create_topics([NewTopic(name, count, 1)], operation_timeout=300, request_timeout=300)
        made[name].result(320)
        have += count


class _Seen:
    """What was measured of one broker, by its number of partitions."""

    def __init__(self) -> None:
        self.memory: dict[int, float] = {}
        self.cpu: dict[int, float] = {}
        self.start: dict[int, float] = {}


def measure(name: str, broker: ServeProcess | ApacheKafka, counts: tuple[int, ...], rest: float) -> _Seen:
    seen = _Seen()
    have = 0
    for total in counts:
        create(broker.address, have, total)
        have = total
        server = Server(name, broker.address, broker.pid)
        settle(server)
        seen.memory[total] = server.resident_mb()
        before = own_cpu_seconds(broker.pid)
        time.sleep(rest)
        seen.cpu[total] = (own_cpu_seconds(broker.pid) - before) / rest * 100
        broker.stop()
        started = time.perf_counter()
        broker.start()
        seen.start[total] = time.perf_counter() - started
    return seen


@contextmanager
def _ours() -> Iterator[ServeProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch,
        ServeProcess(Path(scratch) / "data") as broker,
    ):
        yield broker


def run(*, quick: bool) -> Iterator[Figure]:
    ours_counts, their_counts = (OURS[:2], THEIRS[:2]) if quick else (OURS, THEIRS)
    rest = 1.0 if quick else REST
    with _ours() as broker:
        ours = measure("millstream", broker, ours_counts, rest)
    with apache_kafka() as kafka:
        theirs = measure("Apache Kafka", kafka, their_counts, rest)
    for count in ours_counts:
        shape = f"{count:,} partition{'s' if count > 1 else ''}"
        for what, unit, mine, other in (
            ("resident", "MB", ours.memory[count], theirs.memory.get(count)),
            ("CPU at rest", "%", ours.cpu[count], theirs.cpu.get(count)),
            ("ready after a clean shutdown", "s", ours.start[count], theirs.start.get(count)),
        ):
            met = None if other is None else mine <= other
            target = "" if other is None else "≤ 1x"
            yield Figure("partitions", f"{shape}: {what}", unit, mine, other, False, target, met)
