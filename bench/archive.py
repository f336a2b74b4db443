"""Catching up from the archive beside catching up from the local disk; what copying there does to others."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench import raw
from bench.memory import make_ready
from bench.rounds import Figure
from bench.servers import Server, millstream
from bench.topics import fresh_topic
from tests.support.archives import local_start
from tests.support.waiting import wait_for

SEGMENT = 16 * 1024 * 1024
SIZE = 100_000  # of a batch, about what bulk producers send
MEGABYTE = 1 << 20


def fill(server: Server, topic: str, megabytes: int) -> int:
    """The number of records."""
    count = megabytes * MEGABYTE // SIZE
    raw.pump(server, raw.produce_frame(topic, acks=1, size=SIZE), count=count, connections=1, in_flight=5)
    return count


def catch_up(server: Server, topic: str, upto: int) -> float:
    """Megabytes a second of one reader that asks for a megabyte at a time, from the start."""
    connection = raw.connect(server)
    offset = size = 0
    start = time.perf_counter()
    while offset < upto:
        connection.sendall(raw.fetch_frame(topic, offset, max_bytes=MEGABYTE))
        got = len(raw.receive_answer(connection))
        assert got > SIZE, "an answer without records"
        offset += got // SIZE
        size += got
    seconds = time.perf_counter() - start
    connection.close()
    return size / MEGABYTE / seconds


def latency(server: Server, topic: str, until: threading.Event) -> list[float]:
    """Microseconds of one-record appends, a millisecond apart."""
    connection = raw.connect(server)
    request = raw.produce_frame(topic, acks=1)
    times = []
    while not until.is_set():
        start = time.perf_counter()
        connection.sendall(request)
        raw.receive_answer(connection)
        times.append((time.perf_counter() - start) * 1e6)
        time.sleep(0.001)
    connection.close()
    return times


def _beside_cp(server: Server, topic: str, files: Path, copy: Path) -> list[float]:
    """The same while another process copies files: what the machine alone does to an append."""
    done = threading.Event()
    times: list[float] = []
    watch = threading.Thread(target=lambda: times.extend(latency(server, topic, done)))
    watch.start()
    for _ in range(5):
        subprocess.run(["cp", "-r", str(files), str(copy)], check=True)
        shutil.rmtree(copy)
    done.set()
    watch.join()
    return times


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def run(*, quick: bool) -> Iterator[Figure]:
    megabytes = 64 if quick else 1024
    rounds = 2 if quick else 5
    make_ready(2 * megabytes * MEGABYTE)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        settings = {
            "millstream.archive.url": str(Path(scratch) / "archive"),
            "remote.log.manager.task.interval.ms": "100",
            "log.retention.check.interval.ms": "100",
        }
        data = Path(scratch) / "data"
        with millstream(data=data, settings=settings) as server:
            small = fresh_topic(server)
            here = fresh_topic(server, segment_bytes=str(SEGMENT))
            fill(server, here, megabytes)
            beside_cp = _beside_cp(server, small, data / f"{here}-0", Path(scratch) / "copy")
            there = fresh_topic(
                server,
                segment_bytes=str(SEGMENT),
                remote_storage_enable="true",
                remote_log_copy_disable="true",
            )
            records = fill(server, there, megabytes)
            done = threading.Event()
            busy: list[float] = []
            watch = threading.Thread(target=lambda: busy.extend(latency(server, small, done)))
            watch.start()
            started = time.perf_counter()
            _archive(server, there)
            # All but the segment that is written to, and half of one for the batch that did not fit.
            upto = records - 3 * SEGMENT // SIZE // 2
            wait_for(lambda: local_start(server.address, there) >= upto, timeout=600, what="all is archived")
            copying = time.perf_counter() - started
            done.set()
            watch.join()
        local, archived = [], []
        for _ in range(rounds):
            with millstream(data=data, settings=settings) as server:  # nothing is in its memory yet
                local.append(catch_up(server, here, upto))
                archived.append(catch_up(server, there, upto))
    ours, theirs = statistics.median(archived), statistics.median(local)
    yield Figure(
        "archive", "catching up, one reader", "MB/s", ours, theirs, True, "≥ 0.3x", ours / theirs >= 0.3,
        rounds={"archive": archived, "local disk": local},
        note="the archive is a directory on the same disk: compared is the way there, not the storage",
    )  # fmt: skip
    yield Figure(
        "archive", "copying to the archive, read back and compared", "MB/s", megabytes / copying, None, True
    )
    ratio = p99(busy) / p99(beside_cp)
    yield Figure(
        "archive", "one-record append beside copying, p99", "µs", p99(busy), p99(beside_cp), False,
        "≤ 3x", ratio <= 3, note="second column for latency: beside `cp` of the same files",
    )  # fmt: skip


def _archive(server: Server, topic: str) -> None:
    """Let the topic's segments go to the archive, and leave the disk."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    changes = {"remote.log.copy.disable": "false", "local.retention.bytes": "1"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in changes.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)
