"""Runs a server beside a broker, in a process of its own, so that its work can't hold up the broker.

``core.serving.run_beside`` is the other side: it ends with its parent.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

_LONGEST = 20.0  # seconds that a server beside the broker may take to stop; it normally needs less


class ChildServer:
    """A server in a child process: ``python -m module``, with the broker's address and the arguments."""

    def __init__(self, what: str, module: str, arguments: list[str], *, say: Callable[[str], None]) -> None:
        """``say`` gets a line if the server ends by itself, or has to be killed."""
        self._what = what
        self._say = say
        self._module = module
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def start(self, broker: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, broker, *self._arguments],
            stdin=subprocess.PIPE,  # the child ends when this closes, even if this process is killed
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only the broker, which then stops the child in order
        )
        threading.Thread(target=self._watch, name=self._module, daemon=True).start()

    def _watch(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        if not self._stopping:
            self._say(f"the {self._what} ended with exit code {code}; the broker continues without it")

    def stop(self) -> None:
        self._stopping = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(_LONGEST)
            except subprocess.TimeoutExpired:
                self._say(f"the {self._what} did not end in {_LONGEST:.0f} s and is killed")
                self._process.kill()
                self._process.wait()
