"""Stops and restarts jobs wherever they run: sends a command through the log, and watches for what it does.

Rules.

1. A command is for one run. Two runs of one name are told apart before anything is sent.
2. A command that can't be followed is refused at once, with the reason: the job is over, it has not been
   heard from, or it follows no commands.
3. A job answers with its next status, which names the command. Without an answer within ``ANSWER_S`` the
   command counts as unanswered.
4. A stop is done once the run has reported its end. A restart is done once the run that follows it in the
   same process has started.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.client.connect import Connection
from millstream.client.text.lines import Outgoing
from millstream.core.errors import MillstreamError
from millstream.core.units import did_you_mean, duration_text
from millstream.jobs.board import Board, JobRun
from millstream.jobs.command import TOPIC, Command, encoded
from millstream.jobs.reader import JobReader
from millstream.jobs.report import Action

ANSWER_S = 15.0
_RETRY_MS = 75_000  # the longest pause of --restart on-failure, and some time to start
Result = Literal["over", "sent", "taken", "done", "refused", "failed", "unanswered", "late"]
_PAST = {"stop": "stopped", "restart": "restarted"}


class NoSuchJob(MillstreamError):
    """No job of this name, or no run of this id, has reported."""


class CommandRefused(MillstreamError):
    """A command can't be followed; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command has done so far. ``said`` is a sentence about it, without the name of the job."""

    job: str
    run: str
    action: Action
    result: Result
    said: str

    @property
    def good(self) -> bool:
        return self.result in ("over", "sent", "taken", "done")


def chosen(found: Sequence[JobRun], name: str, names: Sequence[str], run: str | None = None) -> JobRun:
    """The run of a job that is meant: the only one, or the one whose id begins with ``run``."""
    if not found:
        near = did_you_mean(name, names)
        unreadable = " that this version can read" if name in names else ""
        raise NoSuchJob(f"no job {name!r} has reported{unreadable}" + (f"; {near}" if near else ""))
    fitting = [each for each in found if each.status.run.startswith(run or "")]
    if len(fitting) == 1:
        return fitting[0]
    runs = "; ".join(f"{each.status.run[:8]}, {each.where}" for each in fitting or found)
    if fitting:
        raise CommandRefused(
            f"{len(fitting)} runs report as {name!r} at the same time ({runs}); choose one with --run"
        )
    raise NoSuchJob(f"no run of {name!r} has an id that begins with {run!r}; there is {runs}")


def obstacle(run: JobRun, action: Action) -> str | None:
    """Why a run can't follow a command; None if it can. Nobody needs to stop a job that is over."""
    status = run.status
    if run.state == "silent":
        return (
            f"it has not been heard from for {duration_text(run.silent_ms)}: {run.where} was killed, or is"
            " cut off from the broker. Look there; started again, the job continues from its checkpoint"
        )
    if run.state == "failed" and status.retries and run.silent_ms < _RETRY_MS:
        return (
            f"it {_end(run)}. It may start again by itself within a minute (--restart on-failure): give the"
            " command then, or end its process"
        )
    if not run.runs:
        if action == "stop":
            return None
        return f"it {_end(run)}, and no process is left to restart it; start it with `millstream run`"
    if action not in status.takes:
        return f"{run.where} does not take the command {action!r}; end it there with Ctrl-C or SIGTERM"
    return None


def _end(run: JobRun) -> str:
    why = f": {run.status.reason}" if run.state == "failed" and run.status.reason else ""
    return f"{run.state} {duration_text(run.silent_ms)} ago{why}"


def whoami() -> str:
    """This user and machine, for the people at the other end."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"  # a container may run under a user id without a name
    return f"{user}@{socket.gethostname()}"


class Pending:
    """A command that was sent, or that there was no need to send. No I/O."""

    def __init__(self, command: Command, sent_s: float, over: JobRun | None = None) -> None:
        self.command = command
        self.taken = False
        self._sent_s = sent_s
        self._over = over

    def sent(self) -> Outcome:
        """What to say without waiting."""
        if self._over is not None:
            return self.outcome("over", f"was not running: it {_end(self._over)}")
        return self.outcome("sent", f"was told to {self.command.action}; whether it does was not waited for")

    def look(self, board: Board, own_ms: int, now_s: float, timeout_s: float) -> Outcome | None:
        """What has come of it; None while that is open. ``now_s`` is monotonic."""
        if self._over is not None:
            return self.sent()
        command = self.command
        run = board.run(command.job, command.run, own_ms)
        if run is not None and (outcome := self._seen(run, board, own_ms)) is not None:
            return outcome
        waited_s = now_s - self._sent_s
        if not self.taken and waited_s >= ANSWER_S:
            where = "its process" if run is None else run.where
            return self.outcome(
                "unanswered",
                f"did not answer within {ANSWER_S:.0f} s: {where} was killed, or can't reach the broker. The"
                " command is for this run only, and no later run follows it",
            )
        if waited_s >= timeout_s:
            if run is not None and not run.runs:
                said = f"has stopped, but not started again within {timeout_s:.0f} s; look at {run.where}"
            else:
                said = f"took the command, but has not {_PAST[command.action]} within {timeout_s:.0f} s"
            return self.outcome("late", said)
        return None

    def _seen(self, run: JobRun, board: Board, own_ms: int) -> Outcome | None:
        command, taken = self.command, run.status.command
        if taken is not None and taken.id == command.id:
            self.taken = True
            if taken.refused is not None:
                return self.outcome("refused", f"continues as before: {taken.refused}")
        if run.state == "failed":
            return self.outcome("failed", f"ended with an error: {run.status.reason}")
        if command.action == "stop":
            return self.outcome("done", "has stopped") if run.state == "stopped" else None
        if run.state == "stopped" and taken is not None and taken.action == "stop":
            return self.outcome("failed", f"was stopped by {taken.by} instead")
        after = board.successor(command.job, command.run, own_ms)
        if after is None or after.state == "starting":
            return None
        if after.state == "failed":
            return self.outcome("failed", f"stopped, but failed to start again: {after.status.reason}")
        return self.outcome("done", f"has restarted, as run {after.status.run[:8]}")

    def outcome(self, result: Result, said: str) -> Outcome:
        return Outcome(self.command.job, self.command.run, self.command.action, result, said)


def send(connection: Connection, reader: JobReader, run: JobRun, action: Action, by: str) -> Pending:
    """Send a command to a run. Raises CommandRefused if the run can't follow it."""
    from millstream.client.librdkafka.produce import send_one

    status = run.status
    if (why := obstacle(run, action)) is not None:
        raise CommandRefused(f"{status.job} can't be {_PAST[action]}: {why}")
    command = Command.to(status, action, by)
    if run.runs:
        send_one(connection, TOPIC, Outgoing(encoded(command), status.job.encode(), partition=0))
    return Pending(command, reader.clock.monotonic(), None if run.runs else run)


def wait(
    reader: JobReader,
    pending: Sequence[Pending],
    timeout_s: float,
    taken: Callable[[Pending], None] = lambda each: None,
) -> list[Outcome]:
    """Wait until it is known what has come of each command. ``taken`` is called when a job has answered."""
    outcomes: dict[str, Outcome] = {}
    told: set[str] = set()
    while True:
        for each in pending:
            id_ = each.command.id
            if id_ not in outcomes:
                found = each.look(reader.board, reader.clock.now_ms(), reader.clock.monotonic(), timeout_s)
                if each.taken and id_ not in told:
                    told.add(id_)
                    taken(each)
                if found is not None:
                    outcomes[id_] = found
        if len(outcomes) == len(pending):
            return [outcomes[each.command.id] for each in pending]
        reader.follow()
