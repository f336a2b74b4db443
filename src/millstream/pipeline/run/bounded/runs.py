"""Divides a job into the runs that bring it to its end.

A job that continues until it is stopped takes one run. A job that processes what is there and then ends may
take several (planner.py).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from millstream.pipeline.run.bounded.planner import RunPlanner
from millstream.pipeline.run.job import Job


def runs(job: Job, *, finish: bool = True) -> Generator[Job, None, None]:
    """Yields each run as a prepared job. The caller starts it and waits until it has ended; it is closed
    here. ``job`` must be prepared and not started. ``finish=False`` leaves everything that waits for later
    events to a later run."""
    settings = job.settings
    if not settings.available_now:
        yield from _closing(job)
        return
    planner = RunPlanner(job.plan, settings.connection, finish=finish)
    this = planner.next({})
    while this is not None:
        job.close()
        job = Job(job.flow, replace(settings, bounds=this))
        job.prepare()
        yield from _closing(job)
        this = planner.next(job.last_progress())
        settings = replace(settings, start=None, reset=())  # from now on the checkpoint says where to start


def _closing(job: Job) -> Generator[Job, None, None]:
    try:
        yield job
        job.last_progress()
    finally:
        job.close()
