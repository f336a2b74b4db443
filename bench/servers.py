"""The two brokers under test, each its own process, watched from outside."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import own_cpu_seconds
from tests.support.apache_kafka import apache_kafka
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for


@dataclass(frozen=True)
class Server:
    """A running broker: where it is, and what it has used so far."""

    name: str
    address: str
    pid: int

    def cpu_seconds(self) -> float:
        return own_cpu_seconds(self.pid)

    def resident_mb(self) -> float:
        """Memory the process holds for itself: resident less what is only mapped from files, because mapped
        logs are the page cache's."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        return kilobytes / 1024


@contextmanager
def millstream(*, data: Path | None = None, settings: dict[str, str] | None = None) -> Iterator[Server]:
    """``millstream serve`` on a free port, ended at exit."""
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch,
        ServeProcess(data or Path(scratch) / "data", settings=settings) as process,
    ):
        yield Server("millstream", process.address, process.pid)


@contextmanager
def kafka(*, heap: str = "1g", settings: dict[str, str] | None = None) -> Iterator[Server]:
    """Apache Kafka on a free port, ended at exit."""
    with apache_kafka(heap=heap, settings=settings) as running:
        yield Server("Apache Kafka", running.address, running.pid)


def settle(server: Server) -> None:
    """Wait until a server is idle, so that one round's leftovers are not counted in the next."""
    last = server.cpu_seconds()

    def idle() -> bool:
        nonlocal last
        now = server.cpu_seconds()
        quiet, last = now - last < 0.03, now
        return quiet

    wait_for(idle, timeout=20, what=f"{server.name} is idle", every=0.25)
