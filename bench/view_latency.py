"""From an event's append to its result in a view, at a low rate, and what the time goes into.

A job with a window on the keyed kernel writes a view in SQLite. Events come twenty a second; a reader looks
at the view every few milliseconds, as one who waits for an answer would, and notes when each event's result
is there. The parts are those of the batches that brought them: Spark's own report of its steps, the kernel's
and the delivery's.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.rounds import Figure
from bench.servers import Server
from bench.topics import fresh_topic

RATE = 20
KEYS = 50
TARGET_MS = 1000.0
_LOOK_S = 0.005
_WARM_UP_S = 10.0
# Spark's steps of a batch in their order, and what they are called here.
_STEPS = {
    "latestOffset": "asking the broker for the end",
    "getBatch": "giving the batch its bounds",
    "walCommit": "noting it in the checkpoint",
    "queryPlanning": "planning",
    "addBatch": "running",
    "commitOffsets": "noting that it is done",
}


def topology(topic: str) -> Any:
    from millstream import Topology

    flow = Topology(topic)
    events = flow.source(topic, schema="who string NOT NULL, number bigint, at timestamp", time="at")
    minutes = events.window(by="who", size="1 minute", engine="kernel")
    minutes.agg(n="count(*)", number="max(number)").to_view("latest", key="who")
    return flow


def send(address: str, topic: str, appended: dict[int, float], stop: threading.Event) -> None:
    """Events one after another; when the broker has taken each, on our clock."""
    client = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": 1})
    start = time.time()
    for number in itertools.count():
        if stop.wait(max(0.0, start + number / RATE - time.time())):
            break

        def taken(error: Any, _: Any, number: int = number) -> None:
            assert error is None, error
            appended[number] = time.time()

        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{int(time.time() * 1000) % 1000:03}Z"
        value = json.dumps({"who": f"key-{number % KEYS}", "number": number, "at": at})
        client.produce(topic, value, key=f"key-{number % KEYS}", on_delivery=taken)
        client.flush(10)


def watch(path: Path, seen: dict[int, float], stop: threading.Event) -> None:
    """When each event's number is first in the view."""
    from millstream.views.opening import open_reader

    reader = open_reader(path)
    try:
        while not stop.wait(_LOOK_S):
            for (number,) in reader.query("SELECT number FROM latest")[1]:
                seen.setdefault(number, time.time())
    finally:
        reader.close()


def run(server: Server, *, quick: bool) -> Iterator[Figure]:
    from millstream.client.connect import Connection
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.reporting.progress import BatchProgress
    from millstream.pipeline.run.settings import JobSettings
    from millstream.pipeline.spark.session import spark_session
    from tests.support.waiting import wait_for

    seconds = 10.0 if quick else 60.0
    topic = fresh_topic(server, 2)
    appended: dict[int, float] = {}
    seen: dict[int, float] = {}
    progress: list[BatchProgress] = []
    reports: list[dict[str, Any]] = []
    stop = threading.Event()
    spark = spark_session("bench")
    try:
        with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
            settings = JobSettings(
                Connection(server.address), str(Path(scratch) / "checkpoint"), on_progress=progress.append
            )
            job = Job(topology(topic), settings)
            job.prepare()
            job.start(spark)
            threads = [threading.Thread(target=send, args=(server.address, topic, appended, stop))]
            threads[0].start()
            try:
                path = Path(scratch) / "checkpoint" / "views.db"
                threads.append(threading.Thread(target=watch, args=(path, seen, stop)))
                threads[1].start()
                wait_for(lambda: len(seen) > 0, timeout=120, what="a result is in the view")
                begin = time.time() + _WARM_UP_S
                while time.time() < begin + seconds:
                    time.sleep(1)
                    if (problem := job.failed()) is not None:
                        raise problem
                    query = spark.streams.active[0]
                    known = {report["batchId"] for report in reports}
                    reports += [report for report in query.recentProgress if report["batchId"] not in known]
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            job.stop()
    finally:
        spark.stop()
    counted = [number for number, at in appended.items() if begin <= at < begin + seconds - 5]
    waits = [1000 * (seen[number] - appended[number]) for number in counted if number in seen]
    # An event whose result was overtaken by a later one of its key within a batch is not seen by itself.
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    note = parts(reports, {one.batch: one.steps for one in progress}, begin, cuts[49])
    for name, value in (("p50", cuts[49]), ("p99", cuts[98])):
        target, met = ("< 1 s", value < TARGET_MS) if name == "p50" else ("", None)
        what = f"append to view at {RATE} events/s, {name}"
        yield Figure("view_latency", what, "ms", value, None, False, target, met, {"millstream": waits}, note)
        note = ""


def parts(reports: list[dict[str, Any]], steps: dict[int, dict[str, float]], begin: float, p50: float) -> str:
    """The median of every step of a batch, and how long events wait for a batch to begin."""
    counted = [
        report
        for report in reports
        if report["numInputRows"] and datetime.fromisoformat(report["timestamp"]).timestamp() >= begin
    ]
    found: dict[str, float] = {}
    for key, name in _STEPS.items():
        found[name] = statistics.median(float(report["durationMs"].get(key, 0)) for report in counted)
    own: dict[str, list[float]] = {}
    for report in counted:
        for name, ms in steps.get(report["batchId"], {}).items():
            own.setdefault(name, []).append(ms)
        for state in report["stateOperators"]:
            own.setdefault("kernel, all tasks", []).append(float(state["allUpdatesTimeMs"]))
            own.setdefault("keeping its state, all tasks", []).append(float(state["commitTimeMs"]))
    whole = statistics.median(float(report["durationMs"]["triggerExecution"]) for report in counted)
    inside = {f"of it {name}": statistics.median(values) for name, values in own.items()}
    told = ", ".join(f"{name} {ms:.0f} ms" for name, ms in {**found, **inside}.items())
    waited = max(p50 - whole + found["noting that it is done"], 0.0)
    return f"A batch takes {whole:.0f} ms: {told}; before it begins an event waits {waited:.0f} ms, about"
