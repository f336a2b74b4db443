"""What one client feels while another sends the largest legal requests of every kind, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from bench.rounds import Figure
from bench.servers import Server
from millstream.wire.api_keys import name_of
from tests.support.largest import kinds, largest
from tests.support.wire_client import WireClient, produce

TARGET_MS = 100


def run(server: Server, *, quick: bool) -> Iterator[Figure]:
    elements = 20_000 if quick else 99_000
    with WireClient(server.address) as client:
        client.create_topic("t", 100)
    delays: list[float] = []
    slowest = ("", 0.0)
    done = threading.Event()

    def produce_on() -> None:
        with WireClient(server.address, 120) as other:
            while not done.is_set():
                started = time.perf_counter()
                other.send(produce(1, "t"))
                other.receive()
                delays.append(time.perf_counter() - started)
                time.sleep(0.001)

    other = threading.Thread(target=produce_on)
    other.start()
    try:
        for api_key, path in kinds():
            data = largest(api_key, path, elements)
            first = len(delays)
            with WireClient(server.address, 120) as busy:
                busy.send(data)
                busy.is_closed()  # or answered
            slowest = max(
                slowest, (name_of(api_key), max(delays[first:], default=0)), key=lambda each: each[1]
            )
    finally:
        done.set()
        other.join()
    p99 = sorted(delays)[int(len(delays) * 0.99)] * 1000
    yield Figure(
        "hostile",
        f"one record a request beside requests of {elements:,} elements: p99",
        "ms",
        p99,
        None,
        higher_is_better=False,
        target=f"below {TARGET_MS} ms",
        met=p99 < TARGET_MS,
        note=f"The longest wait was {slowest[1] * 1000:.0f} ms, beside {slowest[0]}",
    )
