"""One record per request: what services that cannot wait for a batch do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

from bench import raw
from bench.rounds import Figure, Wanted, alternate
from bench.servers import Server
from bench.topics import fresh_topic


def measure(
    server: Server, *, count: int, connections: int, in_flight: int, acks: int, synced: bool = False
) -> dict[str, float]:
    # Kafka's acks=all does not sync by itself; flush.messages=1 makes it do what ours does.
    config = {"flush_messages": "1"} if synced and server.name != "millstream" else {}
    topic = fresh_topic(server, 1, **config)
    request = raw.produce_frame(topic, acks=acks)
    raw.pump(server, request, count=count // 20, connections=connections, in_flight=in_flight)
    cpu = server.cpu_seconds()
    seconds = raw.pump(server, request, count=count, connections=connections, in_flight=in_flight)
    return {"rate": count / seconds, "cpu": (server.cpu_seconds() - cpu) / count * 1e6}


def measure_one_at_a_time(server: Server, *, count: int) -> dict[str, float]:
    topic = fresh_topic(server)
    request = raw.produce_frame(topic, acks=1)
    connection = raw.connect(server)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        connection.sendall(request)
        raw.receive_answer(connection)
        times.append(time.perf_counter() - start)
    connection.close()
    times = sorted(times[count // 10 :])
    return {"p50": statistics.median(times) * 1e6, "p99": times[int(len(times) * 0.99)] * 1e6}


def measure_fetch(server: Server, *, count: int, connections: int) -> dict[str, float]:
    topic = fresh_topic(server)
    connection = raw.connect(server)
    connection.sendall(raw.produce_frame(topic, acks=1))
    raw.receive_answer(connection)
    connection.close()
    request = raw.fetch_frame(topic, 0)
    cpu = server.cpu_seconds()
    seconds = raw.pump(server, request, count=count, connections=connections, in_flight=1)
    return {"rate": count / seconds, "cpu": (server.cpu_seconds() - cpu) / count * 1e6}


def run(servers: Sequence[Server], *, quick: bool) -> Iterator[Figure]:
    rounds = 2 if quick else 5
    scale = 10 if quick else 1
    yield from alternate(
        "requests",
        servers,
        partial(measure_one_at_a_time, count=20_000 // scale),
        [
            Wanted("p50", "one record, one connection, 1 in flight: p50", "µs", at_most=1),
            Wanted("p99", "one record, one connection, 1 in flight: p99", "µs"),
        ],
        rounds,
    )
    for connections, in_flight, target in ((1, 5, 4.0), (50, 1, 1.3), (50, 5, 1.3)):
        shape = f"one record, {connections} connection{'s' if connections > 1 else ''}, {in_flight} in flight"
        yield from alternate(
            "requests",
            servers,
            partial(measure, count=100_000 // scale, connections=connections, in_flight=in_flight, acks=1),
            [
                Wanted("rate", shape, "requests/s", at_least=target),
                Wanted("cpu", f"{shape}: server CPU", "µs/request"),
            ],
            rounds,
        )
    yield from alternate(
        "requests",
        servers,
        partial(measure_fetch, count=100_000 // scale, connections=50),
        [Wanted("rate", "small fetches, 50 connections", "requests/s", at_least=1)],
        rounds,
    )
    for connections, target in ((1, 1.0), (50, 10.0), (200, 10.0)):
        many = 4000 if connections == 1 else 20_000
        yield from alternate(
            "requests",
            servers,
            partial(measure, count=many // scale, connections=connections, in_flight=1, acks=-1, synced=True),
            [
                Wanted(
                    "rate",
                    f"acks=all, synced to disk, {connections} producer{'s' if connections > 1 else ''}",
                    "requests/s",
                    at_least=target,
                )
            ],
            rounds,
        )
