"""Draws the graph of a job, with the rows that flow along its arrows and the state in its boxes."""

from __future__ import annotations

from millstream.console.links import pipeline_link
from millstream.console.units import rate, short, size
from millstream.core.units import duration_text
from millstream.jobs.report import GraphNode, JobStatus
from millstream.pipeline.drawing.boxes import Box, Graph
from millstream.pipeline.drawing.svg import Live, draw_svg


def picture(status: JobStatus, now_ms: int, *, chosen: str = "", alive: bool = True) -> str:
    """The graph as SVG for a page. If the job is not ``alive``, arrows show totals instead of rates."""
    graph = Graph(
        tuple(Box(node.key, _kind(node), node.title, tuple(node.lines)) for node in status.nodes),
        tuple((edge.tail, edge.head) for edge in status.edges),
    )
    blamed = {error.operator for error in status.errors if error.fatal}
    live = Live(
        {
            node.key: pipeline_link(status.job)
            + ("#graph" if node.key == chosen else f"?node={node.key}#graph")
            for node in status.nodes
        },
        {
            (edge.tail, edge.head): (rate(edge.per_second) if alive else short(edge.rows)).replace(" ", "")
            for edge in status.edges
            if edge.rows is not None and edge.per_second is not None
        },
        {node.key: _notes(node, now_ms) for node in status.nodes},
        {
            node.key: " ".join(
                mark
                for mark, holds in (
                    ("chosen", node.key == chosen),
                    ("blamed", bool(blamed.intersection(node.streams))),
                )
                if holds
            )
            for node in status.nodes
        },
    )
    return draw_svg(graph, f"The graph of {status.job}", live)


def _kind(node: GraphNode) -> str:
    """The kind that a box is drawn as. A box that contains a window is drawn as one, whatever its last step
    is.
    """
    return "window" if node.entries is not None and node.kind in ("where", "select") else node.kind


def _notes(node: GraphNode, now_ms: int) -> list[tuple[str, str]]:
    """Lines of numbers, each with its severity: ``bad``, ``warn`` or nothing."""
    notes: list[tuple[str, str]] = []
    if node.lag is not None:
        notes.append((f"lag {node.lag:,}", ""))
    if node.entries is not None:
        keys = f"{short(node.entries)} keys"
        notes.append((f"shared state {keys}" if node.shared else f"state {keys}, {size(node.bytes)}", ""))
    if node.watermark_ms is not None:
        notes.append((f"watermark {duration_text(max(0, now_ms - node.watermark_ms))} behind", ""))
    counted = (
        ("rejected", node.rejected, "bad"),
        ("failed", node.failed, "bad"),
        ("late", node.late + node.dropped, "warn"),
        ("ahead", node.ahead, "warn"),
        ("overflow", node.overflow, "warn"),
        ("duplicates", node.duplicates, ""),
    )
    return [*notes, *((f"{name} {number:,}", kind) for name, number, kind in counted if number)]
