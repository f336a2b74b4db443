"""How long the console's server takes for a page of a thousand topics, all on one page, and for a view's.

The console runs in a process of its own, as ``millstream console`` does. A page is timed from the request to
the last byte of its HTML, over a connection that stays: what a browser then does with it is not in it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

from bench.rounds import Figure
from bench.servers import Server
from millstream.views.opening import open_store
from millstream.views.views import Changes, View
from tests.support.waiting import wait_for

TOPICS = 1000
ROWS = 100_000
TARGET_MS = 500.0
_PAGES = {
    "/topics?per_page=1000": "a thousand topics, all of them on one page",
    "/topics": "a thousand topics, the first fifty",
    "/": "the overview, of a thousand topics",
    "/views/cards?sort=spent&order=desc": "a view of 100,000 rows, sorted by a column without an index",
}


def run(ours: Server, *, quick: bool) -> Iterator[Figure]:
    rounds = 5 if quick else 30
    admin = AdminClient({"bootstrap.servers": ours.address, "log_level": 0})
    made = admin.create_topics([NewTopic(f"topic-{n:04}", 2, 1) for n in range(TOPICS)])
    for done in made.values():
        done.result(60)
    with tempfile.TemporaryDirectory() as home:
        views = Path(home) / "views.db"
        _fill(views)
        with _console(ours.address, views) as url, httpx.Client(base_url=url, timeout=60) as http:
            wait_for(
                lambda: http.get("/api/overview").json().get("detailed"), timeout=60, what="sizes are known"
            )
            for path, what in _PAGES.items():
                took = []
                for _ in range(rounds):
                    began = time.perf_counter()
                    answer = http.get(path)
                    took.append(1000 * (time.perf_counter() - began))
                    assert answer.status_code == 200, answer.text
                middle = statistics.median(took)
                slowest = max(took)
                yield Figure(
                    "console", what, "ms", middle, None, False, f"≤ {TARGET_MS:g}", slowest <= TARGET_MS,
                    {"millstream": took},
                    "Medians; the target is for the slowest. From the request to the last byte of the HTML,"
                    " beside a sampler that looks at all topics every second",
                )  # fmt: skip


@contextmanager
def _console(broker: str, views: Path) -> Iterator[str]:
    """``millstream console`` on a free port, ended at exit; its address."""
    options = ["--broker", broker, "--listen", "127.0.0.1:0", "--views", str(views)]
    command = [str(Path(sys.executable).with_name("millstream")), "console", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def _fill(where: Path) -> None:
    cards = View("cards", (("card", "string"), ("rule", "string"), ("spent", "double")), ("card",))
    store = open_store(where)
    store.prepare(cards)
    rows = [(f"{n:016}", ("burst", "testing", "travel")[n % 3], n * 7919 % 100_000 / 4) for n in range(ROWS)]
    store.apply("bench", 0, [Changes(cards, rows, [False] * ROWS)])
    store.close()
