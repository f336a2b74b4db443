"""Launch a job: find its Spark, create topics, rebuild views if wanted, and run the job until it ends.

``millstream run`` is a caller, and a program's ``flow.run`` and ``flow.start`` are others. Nothing here
prints: ``say`` gets a line for people at a time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.core.units import count
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.run.bounded.runs import runs
from millstream.pipeline.run.claims import claimed
from millstream.pipeline.run.engine import Engine
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.rebuild.rebuild import Rebuild, RebuildStopped
from millstream.pipeline.run.reporting.progress import BatchProgress
from millstream.pipeline.run.reporting.totals import Totals
from millstream.pipeline.run.settings import JobSettings
from millstream.pipeline.spark.session import is_local
from millstream.views.address import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.pipeline.run.reporting.status_writer import StatusWriter


class Launch:
    """A job that is launched. After a failed run, another ``run`` continues from the checkpoint, and does not
    repeat what is done once (a rebuild, a reset).

    With ``finish=False``, a job that ends leaves what waits for later events to the next run. ``stop`` stops
    a run after its current batch. ``note`` gets what went wrong and was overcome, ``on_rebuild`` the batches
    of a rebuild, ``on_running`` is called when the job runs. ``status`` makes the writer that reports to
    others what the job does.
    """

    def __init__(
        self,
        flow: Topology,
        settings: JobSettings,
        engine: Engine,
        *,
        stop: Callable[[Job], None] = lambda job: job.stop(patience=60),
        note: Callable[[str], None] = lambda line: None,
        status: Callable[[], StatusWriter | None] = lambda: None,
        rebuild: bool = False,
        on_rebuild: Callable[[BatchProgress], None] = lambda progress: None,
        on_running: Callable[[], None] = lambda: None,
        finish: bool = True,
    ) -> None:
        self.totals = Totals(flow.name)
        self._flow = flow
        self._on_progress = settings.on_progress
        self._settings = replace(
            settings,
            checkpoint=settings.checkpoint or f".millstream/{flow.name}",
            on_progress=self._progressed,
        )
        self._engine = engine
        self._stop = stop
        self._note = note
        self._status = status
        self._rebuild = rebuild
        self._on_rebuild = on_rebuild
        self._on_running = on_running
        self._finish = finish
        self._warned = False
        self.ran = False  # True once a run got past planning
        self.job: Job | None = None  # the one that is at work

    def run(self) -> bool:
        """Run until the job has ended. Returns False if it was stopped before the job began."""
        self._engine.check()
        for warning in self._flow.check():
            if not self._warned:
                self._note(warning)
        self._warned = True
        with claimed(self._flow.name, self._settings.checkpoint):
            status = self._status()
            given = replace(self._settings, status=status)
            job = Job(self._flow, given)
            with closing(job):
                if not self._rebuild:
                    for topic in job.prepare():
                        self._engine.say(f"created topic {topic}")
                with status or nullcontext():
                    return self._run(job, given)

    def _run(self, job: Job, given: JobSettings) -> bool:
        home = job.checkpoint.local or Path(tempfile.mkdtemp(prefix=f"millstream-{self._flow.name}-"))
        with self._engine.session(self._flow.name, home, self._defaults()) as session:
            if session is None:
                return False
            if self._rebuild:
                if not self._rebuilt(given, session, job.views):
                    return False
                self._rebuild, self.ran = False, True
                given = replace(given, start=None)
                job = Job(self._flow, given)
                job.prepare()
            self.run_prepared(job, session)
            return True

    def _progressed(self, progress: BatchProgress) -> None:
        self.totals.add(progress)
        self._on_progress(progress)

    def _defaults(self) -> dict[str, str]:
        defaults = {}
        if self._flow.guarantee != "at-least-once":
            defaults["spark.task.maxFailures"] = "1"  # a retried task may write twice
        if self._flow.guarantee == "exactly-once":
            defaults["spark.stage.maxConsecutiveAttempts"] = "1"
        if not is_local(self._engine.master):
            # Spark's default of 200 tasks a stage would cost seconds in every batch. Tasks beyond the number
            # of key buckets would have nothing to do.
            defaults["spark.sql.shuffle.partitions"] = str(self._flow.buckets)
        return defaults

    def run_prepared(self, job: Job, session: SparkSession) -> None:
        """Start a prepared job and wait until it ends. It may take several runs: see ``bounded``."""
        first = True
        with closing(runs(job, finish=self._finish)) as jobs:
            for one in jobs:
                self.job = one
                try:
                    with self._engine.waiting("planning the pipeline"):
                        one.start(session, stopping=self._engine.stopping)
                    if first:
                        self._say_started(one)
                    first, self.ran = False, True
                    self._wait(one)
                finally:
                    self._done_by(one)
                    self.totals.add_unkeyed(one.unkeyed)
                if self._engine.stopping():
                    break

    def _say_started(self, job: Job) -> None:
        say = self._engine.say
        say(f"{job.flow.name} is running ({job.flow.guarantee}); Ctrl-C stops it after the current batch")
        if job.plan.views:
            say(f"views ({', '.join(job.plan.views)}) in {shown(job.views)}")
        self._on_running()

    def _wait(self, job: Job) -> None:
        """Wait until a run has ended, or stop it. Raises its error."""
        stopping = self._engine.stopping
        while job.running and not stopping():
            time.sleep(0.1)
            # A failure after an interrupt may be caused by it: systemd also ends Spark's Python processes.
            if not stopping() and (error := job.failed()) is not None:
                job.stop()
                raise error
        if stopping():
            self._engine.say("stopping after this batch ...")
            self._stop(job)
        if (error := job.failed()) is not None:
            raise error

    def _done_by(self, job: Job) -> None:
        """Drop the one-time options that are done, so that the next run, if there is one, does not repeat
        them."""
        given = replace(self._settings, again=True)
        if job.bound:  # the operators' state was reset
            given = replace(given, reset=())
        if job.entries:  # a new ledger has replaced the forgotten one
            given = replace(given, new_ledger=False)
        self._settings = given

    def _rebuilt(self, settings: JobSettings, session: SparkSession, views: str | Path) -> bool:
        """Rebuild the views and swap them in. False if the user stopped it."""
        rows = 0

        def on_progress(progress: BatchProgress) -> None:
            nonlocal rows
            rows += progress.rows_in
            self._on_rebuild(progress)

        say, began = self._engine.say, time.monotonic()
        rebuild = Rebuild(
            self._flow,
            replace(settings, on_progress=on_progress),
            start=settings.start or "earliest",
            say=self._note,
            stopping=self._engine.stopping,
        )
        say(f"rebuilding {', '.join(rebuild.plan.views)}; until then, readers see the current views")
        try:
            rebuild.run(session, views)
        except RebuildStopped:
            say("stopped: the views and the job are as they were")
            return False
        took = time.monotonic() - began
        say(f"swapped after {count(rows, 'record')} and {took:.0f} s; the job continues")
        return True
