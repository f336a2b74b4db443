"""Prints what ``millstream run`` does: a line for each batch for people, or JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from millstream.core.errors import MillstreamError
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.reporting.progress import BatchProgress
    from millstream.pipeline.run.reporting.totals import JobProgress


class ProgressFormat(StrEnum):
    LINE = "line"
    JSON = "json"


ProgressOption = Annotated[
    ProgressFormat,
    typer.Option(
        "--progress",
        metavar="line|json",
        help="What to print: a line after each batch, or JSON, one object a line, for the start, the end and "
        "each batch with all its figures. With json, everything else goes to standard error.",
    ),
]


class Printer:
    """Prints every batch that read or wrote something."""

    def __init__(self, shown: ProgressFormat = ProgressFormat.LINE, *, event: str = "batch") -> None:
        self._shown = shown
        self._event = event
        self._job = ""
        self._out = sys.stdout  # kept, because sys.stdout is redirected to standard error later (JSON)

    def again(self) -> Printer:
        """One for the batches of a rebuild, which prints to the same place."""
        other = Printer(self._shown, event="rebuild")
        other._job, other._out = self._job, self._out
        return other

    def show(self, progress: BatchProgress) -> None:
        if not progress.rows_in and not any(progress.rows_out.values()):
            return
        if self._shown is ProgressFormat.JSON:
            self._tell(self._event, progress.as_json())
        else:
            # Not to ``_out``: a spinner that is shown takes the line through sys.stdout and stays below it.
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            print(progress.line(width), flush=True)

    # The other events, for programs ------------------------------------------------------------------

    def starting(self, flow: Topology) -> None:
        self._job = flow.name
        self._tell("starting", {"guarantee": flow.guarantee})

    def running(self, job: Job | None) -> None:
        if job is None:
            return
        queries = [query.name for query in job.plan.queries]
        about = {"reads": job.plan.reads, "writes": job.plan.writes, "views": list(job.plan.views)}
        self._tell("running", {"queries": queries, **about})

    def failed(self, error: MillstreamError) -> None:
        self._tell("failed", {"error": str(error)})

    def ended(self, done: JobProgress, *, stopped: bool) -> None:
        """``stopped`` by somebody, or at the end of its input. The totals are of all runs of the process."""
        counts = {"batches": done.batches, "rows_in": done.rows_in, "rejected": done.rejected}
        self._tell("ended", {"stopped": stopped, **counts, "unkeyed": done.unkeyed})

    def _tell(self, event: str, fields: dict[str, Any]) -> None:
        if self._shown is ProgressFormat.JSON:
            told = {"event": event, "at_ms": time.time_ns() // 1_000_000, "job": self._job, **fields}
            print(json.dumps(told, ensure_ascii=False), file=self._out, flush=True)
