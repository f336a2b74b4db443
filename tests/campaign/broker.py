"""The broker under test: one data directory and port for all its starts; its log, memory and readiness."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.campaign.findings import Finding
from tests.campaign.log_lines import surprising
from tests.support.apache_kafka import free_port
from tests.support.serve import ServeProcess

START = 120.0  # seconds that a start may take, including the recovery from a kill
STOP = 60.0  # ... and an orderly end

# These make everything happen often.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "remote.log.manager.task.interval.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "topic.segment.bytes": "262144",
    "topic.file.delete.delay.ms": "1000",
}


class BrokerUnderTest:
    def __init__(self, data: Path, archive: Path) -> None:
        self._http = f"127.0.0.1:{free_port()}"
        settings = {**SETTINGS, "http.listen": self._http, "millstream.archive.url": str(archive)}
        self._serve = ServeProcess(data, settings=settings, own_session=True)
        self.address = self._serve.address
        self.struck: set[str] = set()
        self.is_up = self.is_paused = False
        self.started_at_ms = 0
        self.most_kb = 0
        self.slowest_start = self.slowest_stop = 0.0
        self._log_read = 0
        self._half_line = ""

    def start(self) -> None:
        """Start, within ``START`` seconds. An AssertionError says why it did not start."""
        began = time.monotonic()
        watchdog = threading.Timer(START, lambda: self._serve.process.kill())
        watchdog.start()
        try:
            self._serve.start()
        except BaseException:  # including Ctrl-C: nothing is left half started
            self._serve.process.kill()
            self._serve.process.wait()
            raise
        finally:
            watchdog.cancel()
        self.started_at_ms = int(time.time() * 1000)
        self.slowest_start = max(self.slowest_start, time.monotonic() - began)
        self.is_up, self.is_paused = True, False

    def kill(self) -> None:
        self._serve.kill()
        self.is_up = False

    def stop(self) -> list[Finding]:
        """Stop in order. It must take at most ``STOP`` seconds and end with exit code 0."""
        self.resume()
        began = time.monotonic()
        watchdog = threading.Timer(STOP, self._too_slow)
        watchdog.start()
        try:
            code = self._serve.stop()
        finally:
            watchdog.cancel()
        self.is_up = False
        took = time.monotonic() - began
        self.slowest_stop = max(self.slowest_stop, took)
        return (
            [] if code == 0 else [Finding("broker", "end", f"exit code {code} after {took:.1f} s of SIGTERM")]
        )

    def _too_slow(self) -> None:
        with contextlib.suppress(OSError):
            self._serve.process.kill()

    def end(self) -> None:
        if self.is_up:
            self._serve.kill()
            self.is_up = False

    def pause(self) -> None:
        self._serve.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_up and self.is_paused:
            self._serve.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def died(self) -> bool:
        return self.is_up and self._serve.process.poll() is not None

    def sample_memory(self) -> None:
        if self.is_up and not self.is_paused:
            with contextlib.suppress(OSError, StopIteration):
                self.most_kb = max(self.most_kb, self._serve.resident_kb())

    def readiness(self) -> str:
        """``ready``, or what the broker answers instead."""
        return self._get("/readyz")

    def stopped_partitions(self) -> list[str]:
        lines = self._get("/metrics").splitlines()
        return [
            line
            for line in lines
            if line.startswith("millstream_partition_failed") and not line.endswith(" 0.0")
        ]

    def _get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://{self._http}{path}", timeout=30) as answer:
                return str(answer.read().decode()).strip()
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}".strip()
        except OSError as error:
            return str(error)

    def new_lines(self) -> Iterator[Finding]:
        """The surprising lines since the last call."""
        with self._serve.log_path.open("rb") as log:
            log.seek(self._log_read)
            text = log.read()
        self._log_read += len(text)
        *lines, self._half_line = (self._half_line + text.decode(errors="replace")).split("\n")
        yield from surprising(lines, self.struck)

    def save_log(self, path: Path) -> None:
        path.write_bytes(self._serve.log_path.read_bytes())

    def forget_log(self) -> None:
        self._serve.log_path.unlink()
