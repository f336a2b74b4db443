"""The same work over one, ten, a hundred and a thousand connections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from bench import requests
from bench.rounds import Figure, Wanted, alternate
from bench.servers import Server

CONNECTIONS = (1, 10, 100, 1000)


def run(servers: Sequence[Server], *, quick: bool) -> Iterator[Figure]:
    rounds = 1 if quick else 5
    for connections in CONNECTIONS:
        shape = f"one record a request, {connections:,} connection{'s' if connections > 1 else ''}"
        count = max(connections * 5, 5_000) if quick else 100_000
        yield from alternate(
            "connections",
            servers,
            partial(requests.measure, count=count, connections=connections, in_flight=1, acks=1),
            [
                Wanted("rate", shape, "requests/s", at_least=1),
                Wanted("cpu", f"{shape}: server CPU", "µs/request", at_most=1),
            ],
            rounds,
        )
