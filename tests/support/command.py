"""Runs the ``millstream`` command.

A test that watches, stops or kills the command starts the real executable. A test that only needs its output
runs it on ``command_server``, which saves the start-up time.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.command_server import LARGEST
from tests.support.serve import MILLSTREAM
from tests.support.waiting import patient

# Settings of the user who runs the tests: other brokers, and the one that makes every process compile modules
# again.
_NOT_OURS = ("MILLSTREAM_", "PYTHONDONTWRITEBYTECODE")
_ROOT = Path(__file__).parents[2]
_sending = threading.Lock()


def users_environment() -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)},
        "COLUMNS": "80",
    }


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.command_server", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=_ROOT,
        env=users_environment(),
        stdin=subprocess.DEVNULL,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def run_command(
    *arguments: str,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    directory: Path | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[bytes]:
    """``millstream ARGUMENTS``, run to its end by ``tests.support.command_server``."""
    pipes = [os.pipe() for _ in range(4)]  # standard input, output, error, and the status
    given = [pipes[0][0], *(pipe[1] for pipe in pipes[1:])]
    kept = [pipes[0][1], *(pipe[0] for pipe in pipes[1:])]
    request = {
        "arguments": arguments,
        "environment": dict(environment),
        "directory": str(directory or Path.cwd()),
    }
    message = json.dumps(request).encode()
    assert len(message) < LARGEST
    with _sending:
        socket.send_fds(_server(), [message], given)
    for descriptor in given:
        os.close(descriptor)
    try:
        out, err, status = _talk(kept[0], kept[1:], stdin, time.monotonic() + patient(timeout))
    except TimeoutError:
        raise subprocess.TimeoutExpired([MILLSTREAM, *arguments], timeout) from None
    code = int(status.split()[1])
    return subprocess.CompletedProcess([MILLSTREAM, *arguments], code, out, err)


def _talk(write: int, reads: list[int], stdin: bytes, deadline: float) -> list[bytes]:
    """Write all of the input and read all of the outputs. At the deadline, the command is killed."""
    found = {descriptor: bytearray() for descriptor in reads}
    waiting = memoryview(stdin)
    os.set_blocking(write, False)
    with selectors.DefaultSelector() as ready:
        ready.register(write, selectors.EVENT_WRITE)
        for descriptor in reads:
            ready.register(descriptor, selectors.EVENT_READ)
        while len(ready.get_map()) > (write in ready.get_map()):
            events = ready.select(max(0.0, deadline - time.monotonic()))
            if not events and time.monotonic() > deadline:
                if found[reads[-1]]:
                    os.kill(int(found[reads[-1]].split()[0]), signal.SIGKILL)
                for descriptor in list(ready.get_map()):
                    os.close(descriptor)
                raise TimeoutError
            for key, _ in events:
                descriptor = key.fd
                if descriptor == write:
                    try:
                        waiting = waiting[os.write(write, waiting[: 1 << 16]) :] if waiting else waiting
                    except BrokenPipeError:  # the command has read enough
                        waiting = waiting[:0]
                    if waiting:
                        continue
                elif more := os.read(descriptor, 1 << 16):
                    found[descriptor] += more
                    continue
                ready.unregister(descriptor)
                os.close(descriptor)
        if write in ready.get_map():
            os.close(write)
    return [bytes(found[descriptor]) for descriptor in reads]


class CommandLine:
    """``millstream`` with a broker's address in its environment, as a user's shell would have it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.environment = {**users_environment(), "MILLSTREAM_BROKER": address}

    def run(
        self, *arguments: str, stdin: str | bytes = b"", timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end, whether it succeeds or fails. It must never print a traceback."""
        done = run_command(
            *arguments,
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            environment=self.environment,
            timeout=timeout,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stderr.decode()}"
        return done.stdout.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))

    def refused(self, *arguments: str, stdin: str | bytes = b"", code: int = 1) -> str:
        """Run a command that must fail with one line on standard error, and return that line."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("millstream: ")
        return lines[0]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([MILLSTREAM, *arguments], env=self.environment, **options)
