"""What a program may choose about the run of a job. ``millstream run`` has the same options."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.client.connect import DEFAULT_ADDRESS, Connection
from millstream.client.text.position import parse_position
from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError
from millstream.core.interrupts import Interrupts
from millstream.core.units import DurationError, duration_ms
from millstream.jobs.command import Command
from millstream.jobs.report import Action
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.run.engine import Engine
from millstream.pipeline.run.handle import JobHandle
from millstream.pipeline.run.launch import Launch
from millstream.pipeline.run.reporting.progress import BatchProgress
from millstream.pipeline.run.reporting.status_writer import StatusWriter
from millstream.pipeline.run.reporting.totals import JobSummary
from millstream.pipeline.run.settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of ``Topology.run``, which describes them."""

    spark: SparkSession | None
    broker: str | Connection | None
    checkpoint: str | Path | None
    views: str | Path | None
    trigger: str | None
    available_now: bool
    leave_open: bool
    start: str | None
    rebuild: bool
    create_topics: bool
    new_ledger: bool
    reset: Sequence[str]
    skip_lost: bool
    transaction_timeout: str
    report_status: bool
    on_progress: Callable[[BatchProgress], None] | None
    master: str | None
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    ui: bool = False

    def run_here(self, flow: Topology) -> JobSummary:
        """Run the job in this thread until it ends, or Ctrl-C or SIGTERM stops it."""
        commanded = threading.Event()
        with Interrupts(impatient=True) as interrupts:

            def stopping() -> bool:
                return bool(interrupts) or commanded.is_set()

            launch = Launch(
                flow,
                self._settings(),
                self._engine(stopping=stopping),
                note=_log.warning,
                status=partial(self._status, commanded),
                rebuild=self.rebuild,
                finish=not self.leave_open,
            )
            launch.run()
            return launch.totals.summary(interrupted=stopping())

    def run_in_background(self, flow: Topology) -> JobHandle:
        """Run the job in the background. Returns once it runs."""
        stopping = threading.Event()
        job = JobHandle(
            flow,
            self._settings(),
            self._engine(stopping=stopping.is_set),
            stopping=stopping,
            status=partial(self._status, stopping),
            rebuild=self.rebuild,
            finish=not self.leave_open,
        )
        return job.started()

    def _settings(self) -> JobSettings:
        if self.leave_open and not self.available_now:
            raise ConfigError(
                "leave_open=True requires available_now=True: without it, nothing is closed before its time"
            )
        if isinstance(self.reset, str):
            raise ConfigError(f"reset={self.reset!r} must be a list of names: reset=[{self.reset!r}]")
        trigger = None
        if self.trigger is not None:
            trigger = f"{_milliseconds('trigger', self.trigger)} milliseconds"
        return JobSettings(
            self._connection(),
            "" if self.checkpoint is None else os.fspath(self.checkpoint),
            views=self.views or os.environ.get("MILLSTREAM_VIEWS") or None,
            trigger=trigger,
            transaction_timeout_s=_milliseconds("transaction_timeout", self.transaction_timeout) / 1000,
            available_now=self.available_now,
            create_topics=self.create_topics,
            new_ledger=self.new_ledger,
            start=None if self.start is None else _position(self.start),
            reset=tuple(self.reset),
            skip_lost=self.skip_lost,
            on_progress=self._progressed,
            on_trouble=_log.warning,
        )

    def _progressed(self, progress: BatchProgress) -> None:
        """Call the user's ``on_progress``. A failure of it must not fail the job, nor pass unnoticed."""
        if self.on_progress is None:
            return
        try:
            self.on_progress(progress)
        except Exception:
            _log.exception("on_progress failed for batch %d of query %r", progress.batch, progress.query)

    def _connection(self) -> Connection:
        if isinstance(self.broker, Connection):
            return self.broker
        address = self.broker or os.environ.get("MILLSTREAM_BROKER") or DEFAULT_ADDRESS
        if not isinstance(address, str):
            raise ConfigError(f"broker={address!r} must be an address, as in '127.0.0.1:9092'")
        return Connection.of(address)

    def _engine(self, *, stopping: Callable[[], bool]) -> Engine:
        return Engine(
            self.master, self.spark_settings, self.ui, spark=self.spark, stopping=stopping, say=_log.info
        )

    def _status(self, stopping: threading.Event) -> StatusWriter | None:
        if not self.report_status:
            return None
        return StatusWriter(self._connection(), say=_log.warning, commanded=_Stoppable(stopping))


class _Stoppable:
    """Follows the command to stop. To restart a job of a program is up to the program."""

    takes: Sequence[Action] = ("stop",)

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def obey(self, command: Command) -> str | None:
        _log.info("%s asks the job to stop", command.by)
        self._stopping.set()
        return None


def _milliseconds(name: str, text: str) -> int:
    try:
        return duration_ms(text)
    except DurationError as error:
        raise ConfigError(f"{name}: {error}") from None


def _position(text: str) -> str:
    """A position to start from. A relative time is resolved here, once, so it is the same for all topics."""
    try:
        return str(parse_position(text, SystemClock().now_ms()))
    except ConfigError as error:
        raise ConfigError(f"start: {error}") from None
