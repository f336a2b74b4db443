"""Stops and restarts a job, in the way of ``millstream job``: what a command would do, and sending it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from millstream.client.connect import Connection
from millstream.jobs.control import Outcome, chosen, obstacle, send
from millstream.jobs.reader import JobReader
from millstream.jobs.report import Action


@dataclass(frozen=True, slots=True)
class CommandedRun:
    """A run that a command could be for. ``refused`` says why it can't follow it, and is empty if it can."""

    run: str
    where: str
    refused: str


@dataclass(frozen=True, slots=True)
class Commanding:
    """A command before it is given. Usually there is one run; two if two processes run the same job."""

    job: str
    action: Action
    runs: list[CommandedRun]


def commanding(connection: Connection, name: str, action: Action) -> Commanding:
    """What there is to stop or restart; changes nothing. Raises NoSuchJob."""
    with _read(connection) as reader:
        found = reader.runs(name)
        if not found:
            chosen(found, name, reader.board.names())
        runs = [
            CommandedRun(
                each.status.run,
                each.where,
                obstacle(each, action) or ("" if each.runs else "it is not running"),
            )
            for each in found
        ]
    return Commanding(name, action, runs)


def command(connection: Connection, name: str, action: Action, run: str) -> Outcome:
    """Send the command, and don't wait for what comes of it: the job's status tells. Raises NoSuchJob and
    CommandRefused."""
    with _read(connection) as reader:
        found = chosen(reader.runs(name), name, reader.board.names(), run or None)
        return send(connection, reader, found, action, f"the console on {socket.gethostname()}").sent()


def _read(connection: Connection) -> JobReader:
    reader = JobReader(connection)
    reader.read()
    reader.settle()
    return reader
