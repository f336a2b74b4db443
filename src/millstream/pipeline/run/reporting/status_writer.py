"""Writes a job's status to the topic ``millstream.jobs``, for consoles and any other program that reads it.

It runs on a separate thread: a batch hands over its progress and continues. It writes at most one record
per second, a change of state at once, and one record every few seconds if nothing happens. It never fails
the job: if the topic can't be created or written, that is reported once, and the job continues without it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.core.clock import Clock, SystemClock
from millstream.core.errors import MillstreamError, TopologyError
from millstream.jobs.report import HEARTBEAT_MS, TOPIC, State, encoded
from millstream.pipeline.planning.plan import Plan
from millstream.pipeline.run.delivery.transactions import JobTakenOver
from millstream.pipeline.run.reporting.progress import BatchProgress
from millstream.pipeline.run.reporting.status_account import RunningProcess, StatusAccount
from millstream.views.address import shown
from millstream.views.views import ViewsRebuilt

_log = logging.getLogger(__name__)
_LEAST_S = 1.0  # between two records
_END_S = 5.0  # for the last one to arrive
# Small segments: the active one is not compacted, and a status is worth nothing once there is a newer one.
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.2",
}


class ReportedJob(Protocol):
    """What the writer asks a job."""

    @property
    def plan(self) -> Plan: ...
    @property
    def views(self) -> str | Path:
        """Where the job's views are: a file, or the URL of a database."""

    @property
    def waiting(self) -> str | None:
        """Why a batch has not been delivered yet and is retried; None if all is well."""

    def lags(self) -> dict[str, dict[str, int]]:
        """By query and topic, how far the job is behind. Unknown lags are left out."""


class StatusWriter:
    """The writer of one process, for the jobs that it runs one after the other under one name. At the end of
    its ``with`` block it writes how the job ended: stopped, or failed with the exception that passes."""

    def __init__(
        self,
        connection: Connection,
        *,
        say: Callable[[str], None] = _log.warning,
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        self._say = say
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._account: StatusAccount | None = None
        self._job: ReportedJob | None = None
        self._sender: RecordSender | None = None
        self._thread: threading.Thread | None = None
        self._started_ms = self._clock.now_ms()
        self._run = uuid.uuid4().hex
        self._ended = self._given_up = False

    # What a job says ---------------------------------------------------------------------------------

    def begin(self, job: ReportedJob) -> None:
        """A job is about to start. Another run of the same job keeps the earlier report."""
        with self._lock:
            if self._job is None or self._job.plan.flow is not job.plan.flow:
                views = job.views if "://" in str(job.views) else Path(job.views).resolve()
                run = RunningProcess(
                    self._run, socket.gethostname(), os.getpid(), self._started_ms, shown(views)
                )
                self._account = StatusAccount(job.plan, run)
            self._job = job
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_on, name="job-status", daemon=True)
            self._thread.start()
        self.turned("starting")

    def turned(self, state: State, reason: str | None = None) -> None:
        with self._lock:
            if self._account is not None:
                self._account.turned(state, self._clock.now_ms(), reason)
        self._hurry()

    def progressed(self, progress: BatchProgress) -> None:
        with self._lock:
            if self._account is not None:
                self._account.progressed(progress, self._clock.now_ms())
        self._wake.set()

    def troubled(self, what: str) -> None:
        with self._lock:
            if self._account is not None:
                self._account.troubled(what, self._clock.now_ms())
        self._wake.set()

    def failed(self, error: MillstreamError) -> None:
        """The job ends with an error. If another run has taken over, this one writes nothing more: the status
        under its name belongs to the other run."""
        if isinstance(error, JobTakenOver | ViewsRebuilt):
            self._given_up = True
            return
        with self._lock:
            if self._account is not None:
                where = error.where if isinstance(error, TopologyError) else None
                said = str(error).removeprefix(f"{where}: ")
                self._account.failed(said, self._clock.now_ms(), where)
        self._hurry()

    def _hurry(self) -> None:
        self._urgent.set()
        self._wake.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, MillstreamError):
            self.failed(error)
        elif error is not None and not isinstance(error, KeyboardInterrupt):
            self.failed(MillstreamError(f"{type(error).__name__}: {error}"))
        else:
            self.turned("stopped")
        self._ended = True
        self._hurry()
        if self._thread is not None:
            self._thread.join(2 * _END_S)

    # Writing -----------------------------------------------------------------------------------------

    def _write_on(self) -> None:
        try:
            self._make_topic()
            self._sender = RecordSender(self._connection, TOPIC, acks="1", compression="lz4", timeout=_END_S)
            last = -HEARTBEAT_MS / 1000
            while not self._ended:
                self._wake.wait(HEARTBEAT_MS / 1000)
                pause = last + _LEAST_S - self._clock.monotonic()
                if pause > 0:
                    self._urgent.wait(pause)
                self._wake.clear()
                self._urgent.clear()
                last = self._clock.monotonic()
                self._write()
            self._write()
            self._sender.finish(_END_S)
        except MillstreamError as error:
            self._give_up(str(error))
        except Exception as error:
            _log.debug("the status is no longer written", exc_info=True)
            self._give_up(f"{type(error).__name__}: {error}")

    def _make_topic(self) -> None:
        with Admin(self._connection) as admin:
            if TOPIC not in admin.topics():
                admin.create_topic(TOPIC, partitions=1, config=CONFIG, if_not_exists=True)

    def _write(self) -> None:
        sender = self._sender
        if self._given_up or sender is None:
            return
        if sender.failing():
            self._say_once(f"what the job does could not be written to {TOPIC!r}: {sender.first_failure}")
        if sender.unanswered and not self._ended:
            return  # the broker is away: once it is back, the status of that moment is written
        with self._lock:
            account, job = self._account, self._job
        if account is None or job is None:
            return
        lags = job.lags()  # outside of the lock, because batches wait for it
        with self._lock:
            for query, by_topic in lags.items():
                account.measured(query, by_topic)
            if (why := job.waiting) is not None:
                account.turned("waiting", self._clock.now_ms(), why)
            status = account.status(self._clock.now_ms())
        sender.send([Outgoing(encoded(status), status.job.encode())])

    def _say_once(self, text: str) -> None:
        say, self._say = self._say, lambda text: None
        say(text)

    def _give_up(self, why: str) -> None:
        self._given_up = True
        self._say_once(f"the console can't show this job: {TOPIC!r} can't be written: {why}")
