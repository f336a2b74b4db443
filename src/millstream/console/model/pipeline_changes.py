"""What can be done to a pipeline from here: its last word is forgotten, once it does not run any more."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.connect import Connection
from millstream.client.lines import Outgoing
from millstream.client.produce import send_one
from millstream.console.model.pipelines import Pipeline
from millstream.pipeline.owners import JobRuns
from millstream.pipeline.status import RUNNING, TOPIC, Shown


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What is lost by forgetting a job: what it told last, at ``told_ms``. ``groups``, ``topics`` that it
    wrote to and ``views`` stay as they are. ``refused`` says why it can't be done now; empty if it can."""

    job: str
    state: Shown
    told_ms: int
    errors: int
    groups: list[str]
    topics: list[str]
    views: list[str]
    refused: str


def forgetting(told: Pipeline) -> Forgetting:
    """What forgetting means, before it is done."""
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
        f"it runs on {status.host} as process {status.pid}, and would tell of itself again. Stop it first."
        if runs
        else "",
    )


def forget(connection: Connection, told: Pipeline) -> Forgetting:
    """Write the tombstone; JobRuns while the job runs."""
    lost = forgetting(told)
    if lost.refused:
        raise JobRuns(f"{lost.job} is not forgotten: {lost.refused}")
    send_one(connection, TOPIC, Outgoing(None, lost.job.encode()))
    return lost
