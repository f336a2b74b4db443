"""A job that runs in the background of a program or a notebook: what ``flow.start`` returns.

The names are those of Spark's ``StreamingQuery``, in Python's spelling.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from millstream.core.errors import ConfigError, MillstreamError
from millstream.jobs.report import State
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.run.engine import Engine
from millstream.pipeline.run.launch import Launch
from millstream.pipeline.run.reporting.html import html
from millstream.pipeline.run.reporting.progress import BatchProgress
from millstream.pipeline.run.reporting.totals import JobProgress, JobSummary
from millstream.pipeline.run.settings import JobSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.pipeline.run.reporting.status_writer import StatusWriter

_log = logging.getLogger(__name__)
_RECENT = 100  # batches, as in Spark


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job: ``starting``, ``running``, ``waiting`` (a batch is retried), ``stopped`` or
    ``failed``; and in ``message`` what it waits for, or why it failed.

    >>> job.status
    JobStatus(state='running', message='')
    """

    state: State
    message: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.message}" if self.message else self.state


class JobHandle:
    """A job that runs in the background.

    At the end of a ``with`` block the job is stopped cleanly. In a notebook, the value of a cell is shown as
    a table of the job's progress.

    >>> with job:
    ...     print(job.status)
    running
    """

    def __init__(
        self,
        flow: Topology,
        settings: JobSettings,
        engine: Engine,
        *,
        stopping: threading.Event,
        status: Callable[[], StatusWriter | None],
        rebuild: bool,
        finish: bool,
    ) -> None:
        self._stopping = stopping
        self._settled = threading.Event()  # it runs, or it has ended
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._recent: deque[BatchProgress] = deque(maxlen=_RECENT)
        self._reporting = threading.local()  # .now is true in a thread that calls the user's on_progress
        self._on_progress = settings.on_progress
        self._name = flow.name
        self._launch = Launch(
            flow,
            replace(settings, on_progress=self._progressed),
            replace(engine, say=_log.info),
            note=_log.warning,
            status=status,
            rebuild=rebuild,
            finish=finish,
            on_running=self._settled.set,
        )
        self._thread = threading.Thread(target=self._run, name=f"job {flow.name}", daemon=True)

    def started(self) -> Self:
        # Starts the job, and returns once it runs. Raises why it could not be started.
        self._thread.start()
        try:
            self._settled.wait()
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if self._error is not None and not self._launch.ran:
            raise self._error
        return self

    def _run(self) -> None:
        try:
            self._launch.run()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
            self._settled.set()

    def _progressed(self, progress: BatchProgress) -> None:
        self._recent.append(progress)
        self._reporting.now = True
        try:
            self._on_progress(progress)
        finally:
            self._reporting.now = False

    # ---- what users ask -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the job: that of its topology.

        >>> job.name
        'fraud'
        """
        return self._name

    @property
    def is_active(self) -> bool:
        """True until the job has ended.

        >>> job.is_active
        True
        """
        return not self._ended.is_set()

    @property
    def status(self) -> JobStatus:
        """What the job is doing.

        >>> job.status.state
        'running'
        """
        if self._ended.is_set():
            return JobStatus("stopped") if self._error is None else JobStatus("failed", str(self._error))
        if not self._settled.is_set():
            return JobStatus("starting")
        waiting = None if self._launch.job is None else self._launch.job.waiting
        if waiting is not None:
            return JobStatus("waiting", waiting)
        return JobStatus("running", "stopping after this batch" if self._stopping.is_set() else "")

    @property
    def progress(self) -> JobProgress:
        """What the job has done since it was started, and the last batch of each of its queries.

        >>> job.progress.rows_in, job.progress.rows_out
        (2, {'topic copy': 2})
        """
        return self._launch.totals.progress()

    @property
    def recent_progress(self) -> list[BatchProgress]:
        """The last 100 batches, oldest first.

        >>> [batch.rows_in for batch in job.recent_progress if batch.rows_in]
        [2]
        """
        return list(self._recent)

    @property
    def last_progress(self) -> BatchProgress | None:
        """The last batch; None if there was none yet.

        >>> job.last_progress.query
        'payments'
        """
        return self._recent[-1] if self._recent else None

    def exception(self) -> BaseException | None:
        """Why the job has failed; None if it has not.

        >>> job.exception() is None
        True
        """
        return self._error if self._ended.is_set() else None

    def await_termination(self, timeout: float | None = None) -> bool | None:
        """Wait until the job has ended. Raises its error if it failed. With a ``timeout`` in seconds, returns
        whether the job has ended.

        >>> job.await_termination(timeout=0)
        False
        """
        if timeout is not None and timeout < 0:
            raise ConfigError(f"timeout={timeout!r} must not be negative")
        ended = self._wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended if timeout is not None else None

    def stop(self) -> JobSummary:
        """Stop the job after its current batch, wait until it has ended, and return what it did. The next run
        continues from the checkpoint. A job that has ended, or failed, stays as it is.

        Called by ``on_progress``, it does not wait.

        >>> job.stop().interrupted
        True
        """
        self._stopping.set()
        if not getattr(self._reporting, "now", False):
            self._wait(None)
        return self.summary()

    def summary(self) -> JobSummary:
        """What the job has done so far.

        >>> job.summary().rows_in
        2
        """
        return self._launch.totals.summary(interrupted=self._stopping.is_set())

    def _wait(self, timeout: float | None) -> bool:
        if getattr(self._reporting, "now", False):
            raise MillstreamError("a job can't be waited for in its own on_progress")
        ended = self._ended.wait(timeout)
        if ended:
            self._thread.join()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self._error is not None:
            raise self._error

    def __repr__(self) -> str:
        return f"<job {self._name!r}: {self.status}; {self.progress}>"

    def _repr_html_(self) -> str:
        return html(self.progress, self.status.state, self.status.message)
