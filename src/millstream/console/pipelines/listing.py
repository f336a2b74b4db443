"""The list of pipelines, made from the status that jobs report, and which of them use a group or a topic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.console.observing.job_topic import LastReport
from millstream.console.observing.snapshot import Snapshot
from millstream.jobs.owners import Owner
from millstream.jobs.report import (
    RUNNING,
    DisplayedState,
    JobStatus,
    nodes_with_lags,
    state_now,
    with_lags,
)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A line of the list. ``state`` is what the job reported, or ``silent`` if nothing was heard from it for
    a while. ``errors`` counts errors, and ``fatal`` is true if one of them ended the job.
    """

    name: str
    state: DisplayedState
    reason: str | None
    host: str
    guarantee: str
    started_ms: int
    since_ms: int
    heard_ms: int
    per_second: float
    lag: int | None
    watermark_ms: int | None
    batch_ms: int | None
    errors: int
    fatal: bool


@dataclass(frozen=True, slots=True)
class PipelineList:
    """The list. ``unreadable`` has the keys of records in ``millstream.jobs`` that this console can't read,
    because they are of a newer version or another program.
    """

    pipelines: list[PipelineRow]
    unreadable: list[str]
    total: int
    search: str


def pipeline_list(snapshot: Snapshot, search: str = "") -> PipelineList:
    """The jobs that a search finds: those with problems first, then by name."""
    rows = [row(job, snapshot) for job in snapshot.jobs.values()]
    words = search.casefold().split()
    found = [each for each in rows if all(word in each.name.casefold() for word in words)]
    found.sort(key=lambda each: (_URGENCY[each.state], each.name.casefold()))
    return PipelineList(found, sorted(snapshot.unreadable_jobs), len(rows), search)


_URGENCY: dict[str, int] = {
    "failed": 0,
    "silent": 0,
    "waiting": 1,
    "starting": 2,
    "running": 2,
    "stopped": 3,
}


def shown_state(job: LastReport, now_ms: int) -> DisplayedState:
    return state_now(job.status.state, now_ms - job.heard_ms, job.status.heartbeat_ms)


def with_lag_now(status: JobStatus, snapshot: Snapshot) -> JobStatus:
    """The status with the current lag of the job's groups, as the pages of the groups show it. The reported
    lag is as old as the report, and a job that has ended reports nothing more while its topics grow.
    """
    lags: dict[str, dict[str, int]] = {}
    for query in status.queries:
        group = snapshot.groups.get(query.group)
        for part in () if group is None else group.partitions:
            if part.lag is not None:
                by_topic = lags.setdefault(query.name, {})
                by_topic[part.topic] = by_topic.get(part.topic, 0) + part.lag
    return replace(status, queries=with_lags(status.queries, lags), nodes=nodes_with_lags(status.nodes, lags))


def row(job: LastReport, snapshot: Snapshot) -> PipelineRow:
    status = with_lag_now(job.status, snapshot)
    state = shown_state(job, snapshot.at_ms)
    queries = status.queries
    lags = [query.lag for query in queries if query.lag is not None]
    marks = [query.watermark_ms for query in queries if query.watermark_ms is not None]
    times = [query.batch_ms for query in queries if query.batch_ms is not None]
    return PipelineRow(
        status.job,
        state,
        status.reason,
        status.host,
        status.guarantee,
        status.started_ms,
        status.since_ms,
        job.heard_ms,
        sum(query.per_second for query in queries) if state in RUNNING else 0.0,
        sum(lags) if lags else None,
        min(marks, default=None),
        max(times, default=None),
        sum(error.times for error in status.errors),
        any(error.fatal for error in status.errors),
    )


def owner_of(snapshot: Snapshot, group: str) -> Owner | None:
    """The job whose ledger a group is. If there are several, one that runs is preferred."""
    found = [
        Owner(name, shown_state(job, snapshot.at_ms), job.status.host, job.status.pid)
        for name, job in snapshot.jobs.items()
        if any(query.group == group for query in job.status.queries)
    ]
    return max(found, key=lambda each: each.runs, default=None)


@dataclass(frozen=True, slots=True)
class PipelineUse:
    """A job that reads a topic, writes to it, or both. For a job that is not running, its last run counts."""

    name: str
    state: DisplayedState
    reads: bool
    writes: bool

    @property
    def runs(self) -> bool:
        return self.state in RUNNING


def uses_of(snapshot: Snapshot, topic: str) -> list[PipelineUse]:
    """The jobs that use a topic, running ones first."""
    found = []
    for name, job in snapshot.jobs.items():
        queries = job.status.queries
        reads = any(topic in query.reads for query in queries)
        writes = any(topic in query.writes for query in queries)
        if reads or writes:
            found.append(PipelineUse(name, shown_state(job, snapshot.at_ms), reads, writes))
    return sorted(found, key=lambda each: (not each.runs, each.name))
