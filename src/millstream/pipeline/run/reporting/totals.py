"""What a job has done since it was started, over all its batches."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from millstream.core.units import count
from millstream.pipeline.run.reporting.progress import BatchProgress


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What a job has done since it was started.

    ``rows_in`` are records read, ``rows_out`` rows written by sink (``topic alerts``, ``view blocked``),
    ``rejected`` records that did not parse, ``unkeyed`` rows that were left out of a view because their key
    was null. ``queries`` has the last batch of each of the job's Spark queries.
    """

    job: str
    batches: int = 0
    rows_in: int = 0
    rows_out: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    unkeyed: int = 0
    queries: dict[str, BatchProgress] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Records in the topics that were not processed yet, as of the last batches; None if unknown."""
        known = [one.lag for one in self.queries.values() if one.lag is not None]
        return sum(known) if known else None

    def as_json(self) -> dict[str, Any]:
        """Every figure, as plain values."""
        return {
            "job": self.job,
            "batches": self.batches,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rejected": self.rejected,
            "unkeyed": self.unkeyed,
            "lag": self.lag,
            "queries": {name: one.as_json() for name, one in self.queries.items()},
        }

    def __str__(self) -> str:
        text = f"{count(self.rows_in, 'record')} in {self.batches:,} batch{'es' * (self.batches != 1)}"
        if self.rejected:
            text += f", {self.rejected:,} rejected"
        if self.unkeyed:
            text += f", {count(self.unkeyed, 'row')} without a key left out of the views"
        return text


@dataclass(frozen=True, slots=True)
class JobSummary(JobProgress):
    """What a job did, once it has ended. ``interrupted`` is True if it was asked to stop."""

    interrupted: bool = False


class Totals:
    """Adds up what a job's batches report. Batches are added by one thread and read by others."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._batches = self._rows_in = self._rejected = self._unkeyed = 0
        self._rows_out: Counter[str] = Counter()
        self._queries: dict[str, BatchProgress] = {}

    def add(self, progress: BatchProgress) -> None:
        with self._lock:
            self._batches += 1
            self._rows_in += progress.rows_in
            self._rejected += progress.rejected
            self._rows_out.update(progress.rows_out)
            self._queries[progress.query] = progress

    def add_unkeyed(self, rows: int) -> None:
        with self._lock:
            self._unkeyed += rows

    def progress(self) -> JobProgress:
        return JobProgress(**self._figures())

    def summary(self, *, interrupted: bool) -> JobSummary:
        return JobSummary(**self._figures(), interrupted=interrupted)

    def _figures(self) -> dict[str, Any]:
        with self._lock:
            return {
                "job": self._job,
                "batches": self._batches,
                "rows_in": self._rows_in,
                "rows_out": dict(self._rows_out),
                "rejected": self._rejected,
                "unkeyed": self._unkeyed,
                "queries": dict(self._queries),
            }
