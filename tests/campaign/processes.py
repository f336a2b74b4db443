"""The clients as processes: started, stopped, killed and started again. Each life has a journal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.maven import REPOSITORY

GRACE = 180.0  # seconds that a client may take to finish what is in progress


class Client:
    """A client in all its lives. ``command`` gets the path of a life's journal."""

    def __init__(
        self,
        name: str,
        journals: Path,
        command: Callable[[Path], list[str]],
        *,
        mortal: bool = True,
        may_end_with: tuple[int, ...] = (),
        ends_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name, self.mortal = name, mortal
        self.life = 0
        self.is_stopped = False
        self.wrong: list[str] = []
        self._journals, self._command = journals, command
        self._may_end_with, self._ends_by = may_end_with, ends_by
        self._process: subprocess.Popen[bytes] | None = None
        self._said = journals / f"{name}.err"

    def start(self) -> None:
        self._journal = journal = self._journals / f"{self.name}-{self.life:03}.jsonl"
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command(journal),
                cwd=REPOSITORY,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the conductor, which ends its clients in order
            )
        self.life += 1
        self.is_stopped = False

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    def kill(self) -> None:
        """kill -9, then a new life."""
        self.end_now()
        self.start()

    def pause(self) -> None:
        self._running().send_signal(signal.SIGSTOP)
        self.is_stopped = True

    def resume(self) -> None:
        if self.is_stopped:
            self._running().send_signal(signal.SIGCONT)
            self.is_stopped = False

    def revive(self) -> None:
        """Start it again if it has ended, and note it if it should not have ended like that."""
        code = self._running().poll()
        if code is not None:
            self._judge(code)
            self.start()

    def ask_to_finish(self) -> None:
        self.resume()
        self._running().send_signal(self._ends_by)

    def finish(self, grace: float = GRACE) -> None:
        """Wait for it to finish, after ``ask_to_finish``."""
        try:
            code = self._running().wait(grace)
        except subprocess.TimeoutExpired:
            self._running().send_signal(signal.SIGUSR1)  # prints its threads to its error output
            time.sleep(1)
            self.end_now()
            self.wrong.append(
                f"{self.name} did not end within {grace:g} s of being asked to:\n{self._last_words()}"
            )
            return
        if code == -self._ends_by and not self._journal.exists():
            return  # it was asked before it had started
        self._judge(code)

    def _judge(self, code: int) -> None:
        if code not in (0, *self._may_end_with) or "Traceback" in self._last_words():
            self.wrong.append(f"{self.name} ended with {code}:\n{self._last_words()}")

    def _last_words(self) -> str:
        return self._said.read_text(errors="replace")[-3000:]

    def end_now(self) -> None:
        """kill -9 for good."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def client(
    name: str, journals: Path, address: str, role: str, *, mortal: bool = True, **options: Any
) -> Client:
    """A client with one of the roles in ``clients.py``."""

    def command(journal: Path) -> list[str]:
        program = [sys.executable, "-m", "tests.campaign.clients"]
        return [*program, address, str(journal), role, json.dumps(options)]

    return Client(name, journals, command, mortal=mortal)
