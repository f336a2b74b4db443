"""How fast a standby copies, beside a plain copy of the same files; how far it is behind under load; and what
``acks=all`` costs that waits for it."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import raw
from bench.rounds import Figure
from bench.servers import Server
from bench.topics import fresh_topic
from tests.support.pair import status
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for


def fill(server: Server, megabytes: int, partitions: int) -> None:
    topic = fresh_topic(server, partitions)
    for partition in range(partitions):
        request = raw.produce_frame(topic, acks=1, size=50_000, partition=partition)
        raw.pump(server, request, count=megabytes * 20 // partitions, connections=1, in_flight=5)


def plain_copy(source: Path, target: Path) -> float:
    """Seconds to copy the files and sync them."""
    started = time.perf_counter()
    shutil.copytree(source, target)
    for path in target.rglob("*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - started


def copied(leader: ServeProcess, data: Path) -> float:
    """Seconds from when a standby serves, and begins to follow, until it has everything."""
    with ServeProcess(data, settings={"follow": leader.address}) as standby:
        started = time.perf_counter()
        wait_for(lambda: status(standby)["standby"]["whole"], timeout=600, what="a whole copy", every=0.01)
        return time.perf_counter() - started


def run(*, quick: bool) -> Iterator[Figure]:
    megabytes = 100 if quick else 2000
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        root = Path(scratch)
        with ServeProcess(root / "leader") as leader:
            server = Server("millstream", leader.address, leader.pid)
            fill(server, megabytes, 8)
            plain = plain_copy(root / "leader", root / "plain")
            taken = copied(leader, root / "copy")
            yield Figure(
                "standby",
                f"first copy of {megabytes:,} MB in 8 partitions, synced",
                "MB/s",
                megabytes / taken,
                megabytes / plain,
                True,
                "≥ 0.5x",
                plain / taken >= 0.5,
                note="The first copy stands beside the same files copied and synced by the operating system",
            )
            yield from _delays(leader, root / "copy", 100 if quick else 1000)
            yield from _in_sync(leader, root / "copy", 1000 if quick else 5000)


def _behind(leader: ServeProcess, standby: ServeProcess) -> int:
    """Records that the leader does not know the standby to have."""
    followers = {found["name"]: found["behind_records"] for found in status(leader)["followers"]}
    return int(followers.get(standby.address, 1))


def _delays(leader: ServeProcess, data: Path, count: int) -> Iterator[Figure]:
    """From an acknowledgement until the standby has the record, synced and with its catalogue."""
    server = Server("millstream", leader.address, leader.pid)
    request = raw.produce_frame(fresh_topic(server), acks=1)
    with ServeProcess(data, settings={"follow": leader.address}) as standby:
        wait_for(lambda: status(standby)["standby"]["connected"], timeout=60, what="it follows")
        wait_for(lambda: not _behind(leader, standby), timeout=60, what="all copied")
        connection = raw.connect(server)
        delays = []
        for _ in range(count):
            connection.sendall(request)
            raw.receive_answer(connection)
            started = time.perf_counter()
            while _behind(leader, standby):
                pass
            delays.append((time.perf_counter() - started) * 1000)
        connection.close()
    what = "from the acknowledgement to the standby's, one record at a time: p50"
    yield Figure("standby", what, "ms", statistics.median(delays), None, False)


def _in_sync(leader: ServeProcess, data: Path, count: int) -> Iterator[Figure]:
    """``acks=all`` that waits for the standby, beside one that waits for the leader's disk only. The standby
    follows in both."""
    server = Server("millstream", leader.address, leader.pid)
    with ServeProcess(data, settings={"follow": leader.address}) as standby:
        wait_for(lambda: status(standby)["standby"]["connected"], timeout=60, what="it follows")
        wait_for(lambda: not _behind(leader, standby), timeout=60, what="all copied")
        for producers in (1, 50):
            rates: dict[str, list[float]] = {"2": [], "1": []}
            for number in range(4):
                for copies in rates if number % 2 else reversed(rates):
                    topic = fresh_topic(server, min_insync_replicas=copies)
                    request = raw.produce_frame(topic, acks=-1)
                    many = count // (5 if producers == 1 else 1)
                    seconds = raw.pump(server, request, count=many, connections=producers, in_flight=1)
                    if number:  # the first round warms both up
                        rates[copies].append(many / seconds)
            yield Figure(
                "standby",
                f"acks=all with min.insync.replicas=2, {producers} producer{'s' if producers > 1 else ''}, a "
                "record a request",
                "requests/s",
                statistics.median(rates["2"]),
                statistics.median(rates["1"]),
                True,
                rounds={f"min.insync.replicas={copies}": values for copies, values in rates.items()},
                note="acks=all with min.insync.replicas=2 stands beside 1, while the standby follows",
            )
