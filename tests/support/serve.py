"""``millstream serve`` as a process of its own, to be watched, stopped and killed from outside."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka import free_port

MILLSTREAM = str(Path(sys.executable).with_name("millstream"))


class ServeProcess:
    """A broker on a directory and a port that stay the same over restarts."""

    def __init__(
        self, data: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None
        self.log = data.parent / f"{data.name}.serve.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start, and wait for the line that says it is ready."""
        options = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        command = [MILLSTREAM, "serve", "--data", str(self.data), "--listen", self.address, *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if self.address not in line:
            self._process.wait(10)
            raise AssertionError(f"millstream serve said {line!r} and:\n{self.log.read_text()[-3000:]}")
        return self

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing is said."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> int:
        """SIGTERM, as an init system does; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        if self._process is not None and self._process.stdout is not None:
            with contextlib.suppress(OSError):
                self._process.stdout.close()
