"""Brokers for tests: our own as ``millstream serve`` runs it, and Apache Kafka where it can be had."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_for

MILLSTREAM = str(Path(sys.executable).with_name("millstream"))


@dataclass
class OurBroker:
    address: str
    process: subprocess.Popen[bytes]
    data: Path
    log: Path
    killed: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End it as a crash does: kill -9, without a word."""
        self.killed = True
        self.process.kill()
        self.process.wait()


@contextmanager
def our_broker(
    data: Path, *, listen: str = "127.0.0.1:0", settings: Mapping[str, str] | None = None
) -> Iterator[OurBroker]:
    """Run ``millstream serve`` on a directory until the end of the block, where it has to exit with 0."""
    command = [MILLSTREAM, "serve", "--data", str(data), "--listen", listen]
    for name, value in (settings or {}).items():
        command += ["--set", f"{name}={value}"]
    data.mkdir(parents=True, exist_ok=True)
    log, said = data.with_name(data.name + ".log"), data.with_name(data.name + ".out")
    with log.open("wb") as errors, said.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=errors)

    def address() -> str:
        if process.poll() is not None:
            raise AssertionError(
                f"millstream serve ended with {process.returncode}: {log.read_text()[-2000:]}"
            )
        line, ended, _ = said.read_text().partition("\n")
        return line if ended else ""

    try:
        broker = OurBroker(wait_for(address, what="millstream serve prints its address"), process, data, log)
        yield broker
        if not broker.killed:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, log.read_text()[-2000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
