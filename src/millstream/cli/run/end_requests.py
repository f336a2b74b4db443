"""What is asked of a running pipeline: by Ctrl-C and SIGTERM here, and by commands from elsewhere.

A stop ends the job after its current batch, as Ctrl-C does. A restart ends it in the same way and starts it
again in this process, from the file as it is then. So it needs nobody at the job's machine, and a supervisor
sees one process that goes on. The file is checked first, in another process: a file with a mistake must not
end a job that works.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.cli.terminal.output import note
from millstream.core.interrupts import Interrupts
from millstream.jobs.command import ACTIONS, Command
from millstream.jobs.report import Action

_CHECK_S = 120.0


class EndRequests:
    """True once somebody wants the job to end. ``check`` returns why the job could not be started again."""

    def __init__(self, check: Callable[[], str | None] | None = None) -> None:
        self.interrupts = Interrupts()
        self.takes: Sequence[Action] = ACTIONS if check is not None else ("stop",)
        self._check = check
        self._command: Command | None = None

    def __enter__(self) -> Self:
        self.interrupts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.interrupts.__exit__(kind, error, trace)

    def __bool__(self) -> bool:
        return bool(self.interrupts) or self._command is not None

    @property
    def commanded(self) -> bool:
        """True if a command from elsewhere has ended the run."""
        return self._command is not None

    def obey(self, command: Command) -> str | None:
        """Follow a command. A stop also ends a job that is about to restart."""
        if command.action == "restart":
            if self:
                return "the job is ending already"
            if self._check is None:
                return "this job can't restart"
            if (why := self._check()) is not None:
                note(f"{command.by} asked for a restart, which is refused: {why}")
                return why
        note(f"{command.by} asks the job to {command.action}")
        self._command = command
        return None

    def restart(self) -> Command | None:
        """The command to restart, once a run has ended; None if the job is to end. Further commands are for
        the next run."""
        command = self._command
        if command is None or command.action != "restart" or self.interrupts:
            return None
        self._command = None
        return command


def check_file(file: Path, wanted: str | None, name: str) -> str | None:
    """Why a file can't be started as the job ``name``; None if it can. ``wanted`` is --name."""
    # Without -P, the current directory would come first in the path, which it does not for the job itself.
    command = [
        sys.executable,
        "-P",
        "-m",
        "millstream.cli.run.check",
        str(file),
        *([wanted] if wanted else []),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{file} did not load within {_CHECK_S:.0f} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    said = lines[-1] if lines else f"exit code {done.returncode}"
    if done.returncode:
        return said
    return None if said == name else f"{file} defines {said!r} now, which is another job than {name!r}"
