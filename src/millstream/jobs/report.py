"""The format in which jobs report their status in the topic ``millstream.jobs``, and nothing else.

The topic is compacted and its keys are the names of jobs, so it holds the last status of each job. A value is
the JSON of a ``JobStatus``; docs/guides/job-status.md describes it for other programs. Readers must skip
fields that they do not know, and a missing field has its default. So ``VERSION`` changes only if an old
reader would misunderstand a status.

Times are milliseconds since 1970, spans are milliseconds, and counts are of this run. Unknown values are
None.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

TOPIC = "millstream.jobs"
VERSION = 1
HEARTBEAT_MS = 5000
MOST_BYTES = 256 * 1024
# Where a batch's time goes, in the order in which it is spent. Reading, computing and sending are one pass of
# Spark's tasks, in which each waits for the others. So they are one part: ``process``.
PARTS = ("look", "plan", "process", "ledger", "commit", "views", "checkpoint", "rest")
State = Literal["starting", "running", "waiting", "failed", "stopped"]
DisplayedState = Literal["starting", "running", "waiting", "failed", "stopped", "silent"]
RUNNING = ("starting", "running", "waiting")
_SILENT_HEARTBEATS = 4  # this many may be missed: a broker's hiccup does not mean that the job is dead


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box of the graph: a topic, a stream or a view. ``streams`` are the names of the operators in it.

    ``kind`` is ``topic``, ``view`` or the kind of the stream. ``entries`` and ``bytes`` are the size of its
    state, which is ``shared`` if Spark keeps several windows in one state. ``dropped`` counts groups of late
    rows that one of Spark's own windows left out."""

    key: str
    kind: str
    title: str
    lines: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    query: str | None = None
    lag: int | None = None
    watermark_ms: int | None = None
    entries: int | None = None
    bytes: int | None = None
    shared: bool = False
    rejected: int = 0
    late: int = 0
    ahead: int = 0
    failed: int = 0
    overflow: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow: how many rows went along it in this run, and recently per second."""

    tail: str
    head: str
    rows: int | None = None
    per_second: float | None = None


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch of a query. ``parts`` says where its time went: milliseconds for each of ``PARTS``."""

    query: str
    number: int
    at_ms: int  # when it was done
    ms: int
    rows_in: int
    rows_out: int
    parts: dict[str, int] = field(default_factory=dict)
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """A Spark query of the job. ``group`` is the consumer group that shows its progress."""

    name: str
    group: str
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    batch: int | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    per_second: float = 0.0
    lag: int | None = None
    watermark_ms: int | None = None
    batch_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobError:
    """Something that went wrong. ``record`` is the record that it went wrong with, shortened if it is long.
    ``times`` counts how often the same error was reported. A ``fatal`` error ended the job."""

    at_ms: int
    what: str
    operator: str | None = None
    where: str | None = None  # file:line
    key: str | None = None
    record: str | None = None
    fatal: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The complete status of a job. ``at_ms`` is when it was reported. If nothing newer comes for a few times
    ``heartbeat_ms``, and the state is not a final one, the job's real state is unknown."""

    version: int
    job: str
    run: str
    host: str
    pid: int
    started_ms: int
    at_ms: int
    state: State
    since_ms: int
    guarantee: str
    heartbeat_ms: int = HEARTBEAT_MS
    reason: str | None = None  # for the state: what the job waits for, or why it failed
    views_at: str | None = None  # a file or a URL, without password
    views: list[str] = field(default_factory=list)
    queries: list[QueryStatus] = field(default_factory=list)
    nodes: list[GraphNode] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    batches: list[BatchReport] = field(default_factory=list)  # the last ones, oldest first
    errors: list[JobError] = field(default_factory=list)  # the last ones, newest first


def state_now(state: State, silent_ms: int, heartbeat_ms: int | None = None) -> DisplayedState:
    """The state that a job reported, or ``silent`` if it has reported nothing for too long."""
    patience = _SILENT_HEARTBEATS * max(1000, heartbeat_ms or HEARTBEAT_MS)
    return "silent" if state in RUNNING and silent_ms > patience else state


def with_lags(queries: Iterable[QueryStatus], lags: Mapping[str, Mapping[str, int]]) -> list[QueryStatus]:
    """The queries with their measured lag. ``lags`` is by query and topic."""
    return [
        replace(query, lag=sum(lags[query.name].values())) if lags.get(query.name) else query
        for query in queries
    ]


def nodes_with_lags(nodes: Iterable[GraphNode], lags: Mapping[str, Mapping[str, int]]) -> list[GraphNode]:
    """The graph's boxes, each topic with the lag of the query that is furthest behind in it."""
    found: dict[str, int] = {}
    for by_topic in lags.values():
        for topic, lag in by_topic.items():
            found[topic] = max(lag, found.get(topic, 0))
    return [
        replace(node, lag=found[node.title]) if node.kind == "topic" and node.title in found else node
        for node in nodes
    ]


def encoded(status: JobStatus) -> bytes:
    """The value of the status record. If it is too large, parts are left out: first old batches, then the
    boxes' lines of text, then the boxes."""
    while True:
        data = json.dumps(asdict(status), separators=(",", ":"), ensure_ascii=False).encode()
        if len(data) <= MOST_BYTES:
            return data
        if status.batches:
            status = replace(status, batches=status.batches[len(status.batches) // 2 + 1 :])
        elif any(node.lines for node in status.nodes):
            status = replace(status, nodes=[replace(node, lines=[]) for node in status.nodes])
        elif status.nodes:
            status = replace(status, nodes=[], edges=[])
        else:
            return data
