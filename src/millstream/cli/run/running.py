"""Runs a pipeline at a terminal: Ctrl-C, spinners, restarts, and the line at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.run.end_requests import EndRequests
from millstream.cli.run.progress import Printer
from millstream.cli.run.restart import Restarts, restarting
from millstream.cli.run.watch import Watched
from millstream.cli.terminal.output import note
from millstream.core.errors import MillstreamError
from millstream.pipeline.run.engine import Engine
from millstream.pipeline.run.launch import Launch

if TYPE_CHECKING:
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.reporting.status_writer import StatusWriter
    from millstream.pipeline.run.settings import JobSettings

# An edit may change the guarantee while Spark keeps running, so these hold for all guarantees.
_WHATEVER_IS_WATCHED = {"spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"}


def run_job(
    load: Callable[[], Topology],
    settings: JobSettings,
    engine: Engine,
    status: Callable[[], StatusWriter | None],
    printer: Printer,
    requests: EndRequests,
    *,
    rebuild: bool,
    finish: bool,
    restarts: Restarts | None,
) -> int:
    """Run a job until it ends or somebody ends it, with restarts. ``load`` loads the file; a command to
    restart loads it again. Returns the exit code.
    """
    flow = load()
    with requests:
        interrupts = requests.interrupts

        def stop(job: Job) -> None:
            seen = interrupts.count
            job.stop(patience=60)
            if interrupts.count > max(1, seen):
                os._exit(130)  # asked twice

        launch = Launch(
            flow,
            settings,
            _at_terminal(engine, requests),
            stop=stop,
            note=note,
            status=status,
            rebuild=rebuild,
            on_rebuild=printer.again().show,
            on_running=lambda: printer.running(launch.job),
            finish=finish,
        )

        def once() -> int:
            while True:
                printer.starting(flow)
                try:
                    began = launch.run()
                except MillstreamError as error:
                    printer.failed(error)
                    raise
                if not began and not requests.commanded:
                    return 130
                printer.ended(launch.totals.progress(), stopped=bool(requests))
                say(f"{flow.name} ended: {launch.totals.progress()}")
                if (command := requests.restart()) is None:
                    return 0
                say(f"restarting for {command.by}: the file is read again")
                launch.reload(load())

        if restarts is None:
            return once()
        return restarting(once, restarts, requests, ran=lambda: launch.ran)


def run_watched(
    path: Path,
    load: Callable[[], Topology],
    settings: JobSettings,
    engine: Engine,
    status: Callable[[], StatusWriter | None],
    requests: EndRequests,
) -> int:
    """Run the pipeline in a file, and start it again whenever the file is saved. Returns the exit code."""
    home = Path(".millstream") / f"{path.stem}.watch"
    writer = status()

    def scratch(checkpoint: str, own: Path) -> JobSettings:
        return replace(settings, checkpoint=checkpoint, views=settings.views or own, status=writer)

    watched = Watched(path, load, scratch, home)
    with requests, writer or nullcontext():
        spark = _at_terminal(engine, requests)
        with spark.session(home.name, home, _WHATEVER_IS_WATCHED) as session:
            return 130 if session is None else watched.run(session, requests)


def _at_terminal(engine: Engine, requests: EndRequests) -> Engine:
    return replace(engine, stopping=lambda: bool(requests), say=say, waiting=spinner)


def say(line: str) -> None:
    print(line, flush=True)


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
