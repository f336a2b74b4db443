"""A job's progress as a table for a notebook. It has no script, and takes its colours from the notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from millstream.pipeline.run.reporting.progress import BatchProgress
from millstream.pipeline.run.reporting.totals import JobProgress

_COLUMNS = ("query", "batch", "in", "out", "rejected", "lag", "watermark", "ms")


def html(progress: JobProgress, state: str, message: str) -> str:
    """The job's state and totals, and the last batch of each query."""
    said = f": {escape(message)}" if message else ""
    head = f"<b>{escape(progress.job)}</b> {escape(state)}{said}<br>{escape(str(progress))}"
    if not progress.queries:
        return f"<div>{head}</div>"
    rows = "".join(_row("td", _cells(one)) for one in progress.queries.values())
    return f"<div>{head}<table><thead>{_row('th', _COLUMNS)}</thead><tbody>{rows}</tbody></table></div>"


def _cells(batch: BatchProgress) -> tuple[str, ...]:
    out = ", ".join(f"{name.partition(' ')[2]} {rows:,}" for name, rows in batch.rows_out.items())
    return (
        batch.query,
        f"{batch.batch:,}",
        f"{batch.rows_in:,}",
        out or "0",
        f"{batch.rejected:,}",
        "" if batch.lag is None else f"{batch.lag:,}",
        "" if batch.watermark is None else f"{batch.watermark:%Y-%m-%d %H:%M:%S}",
        f"{batch.milliseconds:,}",
    )


def _row(kind: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
