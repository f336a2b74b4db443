"""An exactly-once job on Spark while its driver, its workers and its broker are killed, again and again.

Drivers are killed with kill -9 and followed by another that was started while the former still ran, so that
for a while there are two on one checkpoint: the older has to notice. The broker is killed under a driver that
lives, and so are its Python workers, at any moment of its batches. In the end every output, read with
read_committed, is what one computation over the whole input gives: of rows as they are, of Spark's own
windows, and of the kernel's windows, patterns and late rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Theirs

from millstream.views.opening import open_reader
from tests.support.serve import MILLSTREAM, ServeProcess
from tests.support.sessions import signal_session
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

pytest.importorskip("pyspark")

OF_DRIVERS = 2  # each costs a start of Spark
KILLS_PER_DRIVER = 4  # of the broker and of workers, while one driver follows another
LATENESS_MS = 40
SPAN_MS = 500
PIPELINE = f"""\
from millstream import Topology, step
flow = Topology("kills", guarantee="exactly-once", buckets=4)
events = flow.source(
    "events",
    schema="id bigint NOT NULL, card string NOT NULL, amount bigint, at timestamp",
    time="at",
    lateness="{LATENESS_MS} milliseconds",
)
events.to_topic("all", key="card")
events.where("amount % 3 = 0").to_topic("thirds")
counts = events.window(by="card", size="1 hour").agg(n="count(*)", total="sum(amount)")
counts.to_topic("counts", key="card")
counts.to_view("totals", key="card")
moving = events.window(by="card", size="{SPAN_MS} milliseconds", every="event").agg(
    last="max_by(id, at)", n="count(*)", total="sum(amount)"
)
moving.to_topic("moving", key="card")
moving.late.to_topic("late")
rises = events.pattern(
    by="card",
    within="2 seconds",
    steps=[step("low", "amount < 30"), step("high", "amount > 70")],
    give={{"low": "first(low.id)", "high": "last(high.id)"}},
)
rises.to_topic("rises", key="card")
"""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Writer(threading.Thread):
    """Produces events, each once whatever happens to the broker, until it is told to end."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.events: list[dict[str, Any]] = []
        self.failures: list[Any] = []
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._ending.wait(0.01):
            number = len(self.events)
            at = (NOON + timedelta(milliseconds=1000 + 10 * number - number * 37 % 90)).isoformat()
            event = {"id": number, "card": f"card {number * 7 % 11}", "amount": number * 31 % 100, "at": at}
            self.events.append(event)
            self._producer.produce(
                "events", json.dumps(event).encode(), partition=number % 2, on_delivery=self._delivered
            )
            self._producer.poll(0)
        assert self._producer.flush(120) == 0

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.failures.append(error)

    def finish(self) -> None:
        self._ending.set()
        self.join(150)
        assert not self.is_alive()
        assert not self.failures


class Driver:
    """One ``millstream run``, with all that it starts in a process group of its own."""

    def __init__(self, home: Path, address: str, number: int, *arguments: str) -> None:
        self.output = home / f"driver-{number}.log"
        settings = [part for name, value in SPARK.items() for part in ("--spark", f"{name}={value}")]
        command = [MILLSTREAM, "run", "pipeline.py", "-b", address, "--master", "local[2]"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--checkpoint", "checkpoint", *settings, *arguments],
                cwd=home,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.output.read_text()

    @property
    def is_running(self) -> bool:
        return "kills is running" in self.said()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_until_it_runs(self) -> None:
        """Or until it has ended."""
        wait_for(
            lambda: self.is_running or self.has_ended, timeout=180, what="the next driver runs", every=0.05
        )

    @property
    def batches(self) -> int:
        return len(re.findall(r"^events #\d+  ", self.said(), re.MULTILINE))

    def kill(self, everything: bool) -> None:
        """kill -9 of all its processes, or of the driver alone: its JVM is then at work a little longer."""
        if everything:
            signal_session(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def kill_worker(self) -> bool:
        """kill -9 of one of its Python workers, if there is one just now."""
        found = subprocess.run(
            ["pgrep", "-s", str(self.process.pid), "-f", "daemon pyspark.worker"],
            capture_output=True,
            text=True,
        )
        pids = [int(pid) for pid in found.stdout.split()]
        workers = [pid for pid in pids if parent(pid) in pids]  # the others start them
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[-1], signal.SIGKILL)
        return bool(workers)

    def clean(self) -> None:
        signal_session(self.process.pid, signal.SIGKILL)
        self.process.wait()


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return None


def read(address: str, topic: str) -> list[list[dict[str, Any]]]:
    """The committed records of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([Theirs(topic, number, 0) for number in range(3)])
    found: list[list[dict[str, Any]]] = [[], [], []]
    ended = 0
    while ended < 3:
        message = consumer.poll(30)
        assert message is not None, f"the end of {topic} was not reached: is a transaction still open?"
        if message.error() is not None:
            ended += 1
        else:
            found[message.partition()].append(json.loads(message.value()))
    consumer.close()
    return found


def wait_until_it_delivers(current: Driver, coming: Driver | None) -> None:
    before = current.batches
    wait_for(
        lambda: current.batches > before or current.has_ended or (coming is not None and coming.is_running),
        timeout=120,
        what="the job delivers again",
        every=0.05,
    )


def assert_taken_over(ended: Driver) -> None:
    """A driver ends by itself for no reason but that another has come."""
    said = ended.said()
    assert "has taken over" in said or "Multiple streaming jobs detected" in said, said


@pytest.mark.timeout(900)
def test_every_output_is_there_once_after_many_kills(tmp_path: Path) -> None:
    chance = random.Random(4)
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    broker = ServeProcess(tmp_path / "broker").start()
    drivers: list[Driver] = []
    kills: Counter[str] = Counter()
    try:
        create_topic(broker.address, "events", partitions=2)
        for topic in ("all", "thirds", "counts", "moving", "late", "rises"):
            create_topic(broker.address, topic, partitions=3)
        writer = Writer(broker.address)
        writer.start()

        def start_driver() -> Driver:
            drivers.append(driver := Driver(tmp_path, broker.address, len(drivers)))
            # Until there, a broker that is away is the user's business.
            wait_for(lambda: "starting Spark" in driver.said(), timeout=60, what=driver.said(), every=0.05)
            return driver

        current = start_driver()
        wait_for(lambda: current.batches > 0, timeout=180, what="the first driver delivers", every=0.1)
        while kills["driver"] < OF_DRIVERS:
            coming = start_driver()
            for _ in range(KILLS_PER_DRIVER):  # some of them while the next driver starts
                time.sleep(chance.uniform(0.1, 1.0))  # any moment will do, but not always the same
                if current.has_ended:
                    break
                if chance.random() < 0.3:
                    kills["worker"] += current.kill_worker()
                    continue
                broker.kill()
                kills["broker"] += 1
                broker.start()
                if chance.random() < 0.5:  # the other half while it still recovers from the last
                    wait_until_it_delivers(current, coming)
            coming.wait_until_it_runs()
            if coming.has_ended:
                assert_taken_over(coming)
                continue
            if current.has_ended:
                assert_taken_over(current)
            else:
                current.kill(everything=chance.random() < 0.5)
                kills["driver"] += 1
            current = coming
        for driver in drivers:
            if not driver.has_ended:
                driver.kill(everything=True)
                kills["driver"] += 1
        writer.finish()
        last = Driver(tmp_path, broker.address, len(drivers), "--available-now")
        drivers.append(last)
        assert last.process.wait(400) == 0, last.said()

        # The kills met a job at work. How many batches come between them is the machine's business.
        assert sum(driver.batches for driver in drivers) >= 2 * OF_DRIVERS
        assert all(kills[what] for what in ("driver", "worker", "broker")), kills
        check(broker.address, writer.events, tmp_path / "checkpoint" / "views.db")
    finally:
        for driver in drivers:
            driver.clean()
        if broker.process.poll() is None:
            broker.kill()


def check(address: str, events: list[dict[str, Any]], views: Path) -> None:
    """Every output against one computation over all events."""
    expected_n: Counter[str] = Counter()
    expected_total: Counter[str] = Counter()
    for event in events:
        expected_n[event["card"]] += 1
        expected_total[event["card"]] += event["amount"]
    everything = [record for part in read(address, "all") for record in part]
    assert sorted(record["id"] for record in everything) == [event["id"] for event in events]
    thirds = sorted(record["id"] for part in read(address, "thirds") for record in part)
    assert thirds == [event["id"] for event in events if event["amount"] % 3 == 0]
    latest: dict[str, tuple[int, int]] = {}
    for part in read(address, "counts"):
        for record in part:
            before = latest.get(record["card"], (0, 0))
            assert record["n"] > before[0], f"{record} after {before}"
            latest[record["card"]] = (record["n"], record["total"])
    expected = {card: (n, expected_total[card]) for card, n in expected_n.items()}
    assert latest == expected
    reader = open_reader(views)
    try:
        rows = reader.query("SELECT card, n, total FROM totals")[1]
    finally:
        reader.close()
    assert {card: (n, total) for card, n, total in rows} == expected
    check_kernel(address, events)


def check_kernel(address: str, events: list[dict[str, Any]]) -> None:
    """The kernel's outputs against a plain computation, event by event in the order of time."""
    lateness, span = timedelta(milliseconds=LATENESS_MS), timedelta(milliseconds=SPAN_MS)
    latest: dict[int, datetime] = {}
    on_time, late = [], []
    for event in events:
        at, where = datetime.fromisoformat(event["at"]), event["id"] % 2
        before = latest.get(where)
        if before is not None and at < before - lateness:
            late.append(event["id"])
        else:
            on_time.append((at, where, event["id"], event))
        latest[where] = max(at, before or at)
    assert late
    found = [record["id"] for part in read(address, "late") for record in part]
    assert sorted(found) == late
    by_card: dict[str, list[tuple[datetime, int, int]]] = {}
    for at, _, number, event in sorted(on_time):  # all of them: the last run carries time to its end
        by_card.setdefault(event["card"], []).append((at, number, event["amount"]))
    moving: dict[str, list[tuple[int, int]]] = {card: [] for card in by_card}
    rises: dict[str, list[tuple[int, int]]] = {card: [] for card in by_card}
    for card, own in by_card.items():
        low: list[tuple[datetime, int]] = []
        begin = 0
        for place, (at, number, amount) in enumerate(own):
            while own[begin][0] <= at - span:
                begin += 1
            within = own[begin : place + 1]
            moving[card].append((len(within), sum(other[2] for other in within)))
            low = [(when, first) for when, first in low if at - when <= timedelta(seconds=2)]
            if amount > 70 and low:
                rises[card].append((low[0][1], number))
                low = []
            elif amount < 30:
                low.append((at, number))
    for topic, expected, columns in (
        ("moving", moving, ("n", "total")),
        ("rises", rises, ("low", "high")),
    ):
        given: dict[str, list[tuple[int, int]]] = {card: [] for card in by_card}
        for part in read(address, topic):
            for record in part:
                given[record["card"]].append(tuple(record[column] for column in columns))
        assert given == expected, topic
