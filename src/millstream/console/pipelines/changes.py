"""Forgets a pipeline that no longer runs: deletes its last status report."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.connect import Connection
from millstream.client.librdkafka.produce import send_one
from millstream.client.text.lines import Outgoing
from millstream.console.pipelines.pipeline import Pipeline
from millstream.jobs.owners import JobRuns
from millstream.jobs.report import RUNNING, TOPIC, DisplayedState


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What is lost by forgetting a job: its last report, from ``told_ms``. Its ``groups``, the ``topics``
    that it wrote to and its ``views`` are kept. ``refused`` says why it can't be done now, and is empty if it
    can.
    """

    job: str
    state: DisplayedState
    told_ms: int
    errors: int
    groups: list[str]
    topics: list[str]
    views: list[str]
    refused: str


def forgetting(told: Pipeline) -> Forgetting:
    """What would be lost; changes nothing."""
    status = told.status
    runs = told.summary.state in RUNNING
    return Forgetting(
        status.job,
        told.summary.state,
        status.at_ms,
        len(status.errors),
        sorted({query.group for query in status.queries}),
        sorted({topic for query in status.queries for topic in query.writes}),
        list(status.views),
        f"it runs on {status.host} as process {status.pid}, and would report again. Stop it first."
        if runs
        else "",
    )


def forget(connection: Connection, told: Pipeline) -> Forgetting:
    """Write the tombstone of a job. Raises JobRuns while the job runs."""
    lost = forgetting(told)
    if lost.refused:
        raise JobRuns(f"{lost.job} is not forgotten: {lost.refused}")
    send_one(connection, TOPIC, Outgoing(None, lost.job.encode()))
    return lost
