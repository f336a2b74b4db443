"""The page of one pipeline, made from the status that its job reports: its graph, and where the time went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.console.observing.snapshot import Snapshot
from millstream.console.pipelines.listing import PipelineRow, row, with_lag_now
from millstream.jobs.report import PARTS, BatchReport, Edge, GraphNode, JobStatus, QueryStatus

_FAR_LONGER = 4  # times the median length: a longer bar is cut


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One job: its line of the list, and everything that it reported."""

    summary: PipelineRow
    status: JobStatus


def pipeline(snapshot: Snapshot, name: str) -> Pipeline | None:
    job = snapshot.jobs.get(name)
    return None if job is None else Pipeline(row(job, snapshot), with_lag_now(job.status, snapshot))


# One node --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChosenNode:
    """The box that the viewer has chosen, with the arrows into and out of it, and the query it is part of."""

    node: GraphNode
    into: list[tuple[GraphNode, Edge]]
    out: list[tuple[GraphNode, Edge]]
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

    batch: BatchReport
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


def _timeline(query: str, batches: list[BatchReport]) -> Timeline:
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


def _bar(batch: BatchReport, most: int) -> Bar:
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
