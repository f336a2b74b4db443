"""Runs commands in forks of a process that has the command line loaded.

Each command is a separate process, with pipes, signals and an exit code, but does not spend a third of a
second on imports.

    python -m tests.support.command_server FD

FD is a socket. A message on it is a JSON object with ``arguments``, ``environment`` and ``directory``, and
comes with four descriptors: the command's standard input, output and error, and a pipe. The server writes the
command's process id into the pipe and, once the command has ended, its exit code, each on a line. Closing the
other end of the pipe ends the command. The server ends when the socket is closed.

The server has one thread, because a fork copies only one.
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
    """Import what nearly all commands need."""
    import confluent_kafka.admin  # noqa: F401

    import millstream.cli
    import millstream.client
    from millstream.wire.codec.schema_codec import load_request_schema

    for module in (
        *millstream.cli.COMMANDS.values(),
        *(found.name for found in pkgutil.walk_packages(millstream.client.__path__, "millstream.client.")),
    ):
        importlib.import_module(module)
    load_request_schema(3, 0)
    with contextlib.redirect_stdout(io.StringIO()):
        millstream.cli.execute(["version"])  # parsing imports more
    gc.collect()
    gc.freeze()  # the collector need not examine loaded modules again when a command ends


def serve(channel: socket.socket, execute: Callable[[dict[str, Any]], None]) -> None:
    del sys.path[0]  # the directory that the server was started in, which commands must not see
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
    """Start the command, wait for it, and report how it ended."""
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
    ending.register(status, 0)  # reports an error once the reader has closed the pipe
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
