"""The list of pipelines and the page of each, made from the status that jobs report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millstream.console.observing.job_topic import HeardJob
from millstream.console.observing.snapshot import Snapshot
from millstream.jobs.owners import Owner
from millstream.jobs.report import (
    PARTS,
    RUNNING,
    Batch,
    Edge,
    JobStatus,
    Node,
    QueryStatus,
    Shown,
    nodes_with_lags,
    state_now,
    with_lags,
)

_FAR_LONGER = 4  # times the median length: a longer bar is cut


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A line of the list. ``state`` is what the job reported, or ``silent`` if nothing was heard from it for
    a while. ``errors`` counts errors, and ``fatal`` is true if one of them ended the job.
    """

    name: str
    state: Shown
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


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One job: its line of the list, and everything that it reported."""

    summary: PipelineRow
    status: JobStatus


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


def pipeline(snapshot: Snapshot, name: str) -> Pipeline | None:
    job = snapshot.jobs.get(name)
    return None if job is None else Pipeline(row(job, snapshot), _with_lag_now(job.status, snapshot))


def shown_state(job: HeardJob, now_ms: int) -> Shown:
    return state_now(job.status.state, now_ms - job.heard_ms, job.status.heartbeat_ms)


def _with_lag_now(status: JobStatus, snapshot: Snapshot) -> JobStatus:
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


def row(job: HeardJob, snapshot: Snapshot) -> PipelineRow:
    status = _with_lag_now(job.status, snapshot)
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
    state: Shown
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


# One node --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChosenNode:
    """The box that the viewer has chosen, with the arrows into and out of it, and the query it is part of."""

    node: Node
    into: list[tuple[Node, Edge]]
    out: list[tuple[Node, Edge]]
    query: QueryStatus | None


def chosen_node(status: JobStatus, key: str) -> ChosenNode | None:
    nodes = {node.key: node for node in status.nodes}
    node = nodes.get(key)
    if node is None:
        return None
    return ChosenNode(
        node,
        [(nodes[edge.tail], edge) for edge in status.edges if edge.head == key and edge.tail in nodes],
        [(nodes[edge.head], edge) for edge in status.edges if edge.tail == key and edge.head in nodes],
        next((query for query in status.queries if query.name == node.query), None),
    )


# Where the time went ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its height, and the distance of its top from the top of the chart, in percent."""

    name: str
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A batch as a bar. One that took far longer than the others is ``cut`` to the height of the scale."""

    batch: Batch
    parts: list[Part]
    cut: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The last batches of a query as bars on one scale (``most_ms`` is the whole height), and the average
    time of each part.
    """

    query: str
    most_ms: int
    mean_ms: float
    bars: list[Bar]
    means: list[tuple[str, float]]


def timelines(status: JobStatus) -> list[Timeline]:
    found = []
    for query in status.queries:
        batches = [batch for batch in status.batches if batch.query == query.name]
        if batches:
            found.append(_timeline(query.name, batches))
    return found


def _timeline(query: str, batches: list[Batch]) -> Timeline:
    lengths = sorted(max(1, batch.ms, sum(batch.parts.values())) for batch in batches)
    # Spark compiles in the first batch. On a scale that fits it, all other bars would be flat.
    most = min(lengths[-1], _FAR_LONGER * lengths[len(lengths) // 2])
    return Timeline(
        query,
        most,
        sum(batch.ms for batch in batches) / len(batches),
        [_bar(batch, most) for batch in batches],
        [
            (part, sum(batch.parts.get(part, 0) for batch in batches) / len(batches))
            for part in _in_order(part for batch in batches for part in batch.parts)
        ],
    )


def _bar(batch: Batch, most: int) -> Bar:
    total = sum(batch.parts.values())
    parts, top = [], 100.0
    for name in _in_order(batch.parts):
        height = 100 * batch.parts[name] / max(most, total)
        top -= height
        parts.append(Part(name, round(top, 2), round(height, 2)))
    return Bar(batch, parts, total > most)


def _in_order(parts: Iterable[str]) -> list[str]:
    """Parts in the order in which a batch goes through them. Parts that only a newer job knows come last."""
    found = set(parts)
    return [part for part in PARTS if part in found] + sorted(found.difference(PARTS))
