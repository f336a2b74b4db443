"""A process with the command line loaded, which forks for every command: that is a process of its own, with
pipes, signals and an exit code, and does not spend a third of a second on imports.

    python -m tests.support.command_server FD

FD is a socket. A message on it is a JSON object with ``arguments``, ``environment`` and ``directory``, and
comes with four descriptors: the command's standard input, output and error, and a pipe. Into that go its
process id and, once it has ended, its exit code, each on a line; who closes it ends the command. The server
ends when the socket is closed.

It has one thread, as whoever forks must.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

LARGEST = 256 * 1024


def preload() -> None:
    """What nearly all commands import sooner or later."""
    import confluent_kafka.admin  # noqa: F401

    import millstream.cli
    import millstream.client
    from millstream.wire.codec import load_request_schema

    for module in (
        *millstream.cli.COMMANDS.values(),
        *(f"millstream.client.{found.name}" for found in pkgutil.iter_modules(millstream.client.__path__)),
    ):
        importlib.import_module(module)
    load_request_schema(3, 0)
    with contextlib.redirect_stdout(io.StringIO()):
        millstream.cli.execute(["version"])  # parsing imports more
    gc.collect()
    gc.freeze()  # what is loaded need not be looked at again when a command ends


def serve(channel: socket.socket, execute: Callable[[dict[str, Any]], None]) -> None:
    del sys.path[0]  # where this was started, which is nothing to a command
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, LARGEST, 4)
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise(execute, json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def supervise(
    execute: Callable[[dict[str, Any]], None],
    request: dict[str, Any],
    stdin: int,
    stdout: int,
    stderr: int,
    status: int,
) -> None:
    """Start the command, wait for it, and say how it ended."""
    command = os.fork()
    if command == 0:
        os.close(status)
        for standard, given in enumerate((stdin, stdout, stderr)):
            os.dup2(given, standard)
            os.close(given)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        execute(request)
    for given in (stdin, stdout, stderr):
        os.close(given)
    os.write(status, f"{command}\n".encode())
    ending = select.poll()
    ending.register(os.pidfd_open(command), select.POLLIN)
    ending.register(status, 0)  # in error once nobody is there to read it
    if all(descriptor == status for descriptor, _ in ending.poll()):
        os.kill(command, signal.SIGTERM)
    ended = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"{ended}\n".encode())
    os._exit(0)


def execute(request: dict[str, Any]) -> None:
    from millstream.cli import main

    sys.argv = ["millstream", *request["arguments"]]
    main()


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])), execute)
