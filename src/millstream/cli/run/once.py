"""One run of ``millstream run``: starts Spark, starts the job, and watches it until it ends."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.run.progress import Totals
from millstream.cli.terminal.output import note
from millstream.core.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.cli.terminal.signals import Interrupts
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.run.job import Job, Settings
    from millstream.pipeline.run.status_writer import StatusWriter


class OneJob:
    """A job with the options of its command line. After a failed run, another run goes on from the
    checkpoint, and does not repeat what was to be done once and is done (a rebuild, a reset).
    """

    def __init__(
        self,
        flow: Topology,
        settings: Settings,
        master: str,
        options: dict[str, str],
        totals: Totals,
        *,
        ui: bool,
        rebuild: bool,
        leave_open: bool,
        status: Callable[[], StatusWriter | None],
    ) -> None:
        self._flow = flow
        self._settings = settings
        self._master = master
        self._options = options
        self._totals = totals
        self._ui = ui
        self._rebuild = rebuild
        self._leave_open = leave_open
        self._status = status
        self.ran = False  # True once a run got past planning

    def run(self, interrupts: Interrupts) -> int:
        from millstream.pipeline.run.job import Job
        from millstream.pipeline.spark.engine import end_engine, noticing_its_end, start_engine

        status = self._status()
        given = replace(self._settings, status=status)
        job = Job(self._flow, given)
        if not self._rebuild:
            for topic in job.prepare():
                print(f"created topic {topic}")
        home = job.checkpoint.local or Path(tempfile.mkdtemp(prefix=f"millstream-{self._flow.name}-"))
        with status or nullcontext():
            engine = start_engine(
                self._flow.name,
                master=self._master,
                log_file=home / "spark.log",
                settings=self._all_options(),
                ui=self._ui,
            )
            session = session_of(engine, interrupts)
            if session is None:
                return 130
            try:
                with noticing_its_end(home / "spark.log"):
                    if self._rebuild:
                        if not _rebuild(self._flow, given, session, job.views, self._totals, interrupts):
                            return 130
                        self._rebuild, self.ran = False, True
                        given = replace(given, start=None)
                        job = Job(self._flow, given)
                        job.prepare()
                    return self.go(job, session, interrupts)
            finally:
                end_engine(session)

    def _all_options(self) -> dict[str, str]:
        from millstream.pipeline.spark.session import is_local

        options = dict(self._options)
        if self._flow.guarantee != "at-least-once":
            options.setdefault("spark.task.maxFailures", "1")  # a retried task may write twice
        if self._flow.guarantee == "exactly-once":
            options.setdefault("spark.stage.maxConsecutiveAttempts", "1")
        if not is_local(self._master):
            # Spark's default of 200 tasks a stage would cost seconds in every batch. Tasks beyond the number
            # of key buckets would have nothing to do.
            options.setdefault("spark.sql.shuffle.partitions", str(self._flow.buckets))
        return options

    def go(self, job: Job, session: SparkSession, interrupts: Interrupts) -> int:
        """Start the job and wait until it ends. It may take several runs: see pipeline/run/ending.py."""
        from millstream.pipeline.run.bounded import runs

        unkeyed, first = 0, True
        with closing(runs(job, finish=not self._leave_open)) as jobs:
            for one in jobs:
                try:
                    with spinner("planning the pipeline"):
                        one.start(session, stopping=lambda: bool(interrupts))
                    if first:
                        print(_started(one), flush=True)
                    self.ran = True
                    _watch(one, interrupts)
                finally:
                    self._done_by(one)
                unkeyed, first = unkeyed + one.unkeyed, False
                if interrupts:
                    break
        totals = self._totals
        batches = "batch" if totals.batches == 1 else "batches"
        ending = f"{count(totals.rows, 'record')} in {totals.batches:,} {batches}"
        if totals.rejected:
            ending += f", {totals.rejected:,} rejected"
        if unkeyed:
            ending += f", {count(unkeyed, 'row')} without a key left out of the views"
        print(f"{job.flow.name} ended: {ending}", flush=True)
        return 0

    def _done_by(self, job: Job) -> None:
        """Drop the one-time options that are done, so that the next run, if there is one, does not repeat
        them.
        """
        given = replace(self._settings, again=True)
        if job.bound:  # the operators' state was reset
            given = replace(given, reset=())
        if job.entries:  # a new ledger has replaced the forgotten one
            given = replace(given, new_ledger=False)
        self._settings = given


def _rebuild(
    flow: Topology,
    settings: Settings,
    session: SparkSession,
    views: str | Path,
    totals: Totals,
    interrupts: Interrupts,
) -> bool:
    """Rebuild the views and swap them in. False if the user interrupted it."""
    from millstream.pipeline.run.rebuild import Rebuild, Stopped

    totals = totals.again()
    began = time.monotonic()
    rebuild = Rebuild(
        flow,
        replace(settings, on_progress=totals.show),
        start=settings.start or "earliest",
        say=note,
        stopping=lambda: bool(interrupts),
    )
    print(f"rebuilding {', '.join(rebuild.plan.views)}; those that are there are read until then", flush=True)
    try:
        rebuild.run(session, views)
    except Stopped:
        print("stopped: the views and the job are as they were", flush=True)
        return False
    took = time.monotonic() - began
    print(f"swapped after {count(totals.rows, 'record')} and {took:.0f} s; the job goes on", flush=True)
    return True


def _started(job: Job) -> str:
    from millstream.views.views import shown

    lines = [f"{job.flow.name} is running ({job.flow.guarantee}); Ctrl-C ends it after the batch under way"]
    if job.plan.views:
        lines.append(f"views ({', '.join(job.plan.views)}) in {shown(job.views)}")
    return "\n".join(lines)


def session_of(engine: Future[SparkSession], interrupts: Interrupts) -> SparkSession | None:
    """The session, once Spark has started; None if the user interrupted the wait."""
    began = time.monotonic()
    with spinner("starting Spark"):
        while not engine.done():
            if interrupts:
                return None
            time.sleep(0.05)
    session = engine.result()
    print(f"Spark {session.version} started in {time.monotonic() - began:.0f} s", flush=True)
    return session


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """A spinner with the elapsed seconds; one plain line if standard output is not a terminal."""
    if not sys.stdout.isatty():
        print(f"{what} ...", flush=True)
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def _watch(job: Job, interrupts: Interrupts) -> None:
    while job.running and not interrupts:
        time.sleep(0.1)
        # A failure after an interrupt may be caused by it: systemd also ends Spark's Python processes.
        if not interrupts and (error := job.failed()) is not None:
            job.stop()
            raise error
    if interrupts:
        print("stopping after this batch ...", flush=True)
        seen = interrupts.count
        job.stop(patience=60)
        if interrupts.count > seen:
            os._exit(130)  # asked twice
    if (error := job.failed()) is not None:
        raise error
