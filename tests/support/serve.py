"""Runs ``millstream serve`` as a process that tests watch, stop, kill and start again."""

from __future__ import annotations

import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka import free_port

MILLSTREAM = str(Path(sys.executable).with_name("millstream"))
START_TIMEOUT_S = 120


class ServeProcess:
    """A broker whose directory and port stay the same over restarts. Without a directory, it is in memory.

    As a context manager, it runs until the end of the context, and must end with exit code 0 unless it was
    killed or stopped before.
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        own_session: bool = False,
        program: str = MILLSTREAM,
        more: tuple[str, ...] = (),
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self.address = f"{host}:{self.port}"
        self.log_path = Path(tempfile.mkstemp(prefix="millstream-serve-", suffix=".log")[1])
        self._logged = ""
        self._settings = dict(settings or {})
        self._program = program
        self._more = more
        self._own_session = own_session  # out of reach of a Ctrl-C in the terminal
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> Self:
        """Start the broker, and wait for the line that says it is ready."""
        command = [self._program, "serve", "--listen", self.address, *self._more]
        command += ["--data", str(self.data)] if self.data is not None else []
        command += [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=self._own_session,
            )
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            said = ready.select(START_TIMEOUT_S)
        line = self._process.stdout.readline() if said else f"nothing within {START_TIMEOUT_S} s"
        if self.address not in line:
            self._process.kill()
            self._process.wait(10)
            raise AssertionError(f"millstream serve said {line!r} and:\n{self.logged()[-3000:]}")
        return self

    def logged(self) -> str:
        """Everything it has logged, over all its starts."""
        return self._logged or self.log_path.read_text()

    def resident_kb(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def kill(self) -> None:
        """kill -9: nothing is flushed or logged."""
        self.process.kill()
        self._ended()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask the broker to stop, as an init system does, and return the exit code."""
        self.process.send_signal(number)
        return self._ended()

    def wait(self, timeout: float = 60) -> int:
        """Wait until the broker ends by itself, and return the exit code."""
        return self._ended(timeout)

    def _ended(self, timeout: float = 60) -> int:
        code = self.process.wait(timeout)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.process.poll() is None:
                code = self.stop()
                assert code == 0 or kind is not None, f"exit code {code}:\n{self.logged()[-3000:]}"
        finally:
            if self.process.poll() is None:
                self.kill()
            self._logged = self.log_path.read_text()
            self.log_path.unlink()
