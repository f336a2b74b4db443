"""The format of commands to jobs in the topic ``millstream.jobs.commands``, and nothing else.

A command is for one run of a job, by the run's id. So a command that comes late, or is read twice, can't end
a later run. The job answers in its status (``report.TakenCommand``). The topic is not compacted and keeps
commands for a day; a job reads only what is appended while it runs.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import get_args

from millstream.jobs.report import Action, JobStatus

TOPIC = "millstream.jobs.commands"
CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(24 * 60 * 60 * 1000),
    "segment.bytes": str(1024 * 1024),
    "message.timestamp.type": "LogAppendTime",
}
ACTIONS: tuple[Action, ...] = get_args(Action)
VERSION = 1


@dataclass(frozen=True, slots=True)
class Command:
    """A command to one run. ``by`` says who gave it, for people."""

    id: str
    job: str
    run: str
    action: Action
    by: str

    @classmethod
    def to(cls, status: JobStatus, action: Action, by: str) -> Command:
        return cls(uuid.uuid4().hex, status.job, status.run, action, by)


def encoded(command: Command) -> bytes:
    return json.dumps({"version": VERSION, **asdict(command)}, ensure_ascii=False).encode()


def decoded(value: bytes | None) -> Command | None:
    """The command in a record's value; None if it is not one, or one of a newer version."""
    try:
        told = json.loads(value or b"")
        if told["version"] != VERSION or told["action"] not in ACTIONS:
            return None
        fields = {name: told[name] for name in ("id", "job", "run", "action", "by")}
    except (ValueError, TypeError, KeyError):
        return None
    return Command(**fields) if all(isinstance(field, str) for field in fields.values()) else None
