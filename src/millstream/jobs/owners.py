"""Finds the job that a consumer group belongs to, from the reports of jobs in ``millstream.jobs``.

A job reads on Spark and is not a member of its group, so the broker reports the group as empty while the job
runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.connect import Connection
from millstream.core.errors import MillstreamError, RequestFailed
from millstream.core.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from millstream.jobs.reader import JobReader
from millstream.jobs.report import RUNNING, DisplayedState


class JobRuns(MillstreamError):
    """Refused because the job is running."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A job that records in a group's offsets which of its batches are done."""

    job: str
    state: DisplayedState
    host: str = ""
    pid: int = 0

    @property
    def runs(self) -> bool:
        return self.state in RUNNING

    @property
    def refused(self) -> str:
        """Why the offsets must not be changed now; empty if they may be."""
        if not self.runs:
            return ""
        return (
            f"pipeline {self.job} is running, and stores in these offsets which batches are done;"
            " stop it first"
        )

    def __str__(self) -> str:
        where = f" as process {self.pid} on {self.host}" if self.runs and self.host else ""
        return f"pipeline {self.job}, {self.state}{where}"


def owners(connection: Connection, *, settle: bool = False) -> dict[str, Owner]:
    """The owners by group; none if the cluster does not have the topic, or this user may not read it. With
    ``settle``, it listens if it is open whether a job is alive (``board``)."""
    found: dict[str, Owner] = {}
    with JobReader(connection) as reader:
        try:
            reader.read()
        except RequestFailed as error:
            if error.code != TOPIC_AUTHORIZATION_FAILED:
                raise
        if settle:
            reader.settle()
        for run in (run for name in reader.board.names() for run in reader.runs(name)):
            owner = Owner(run.status.job, run.state, run.status.host, run.status.pid)
            for query in run.status.queries:
                if query.group not in found or owner.runs:
                    found[query.group] = owner
    return found
