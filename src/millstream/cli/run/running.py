"""Runs a pipeline at a terminal: Ctrl-C, spinners, restarts, and the line at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.run.restart import Restarts, restarting
from millstream.cli.run.watch import Watched
from millstream.cli.terminal.output import note
from millstream.core.interrupts import Interrupts
from millstream.pipeline.run.engine import Engine
from millstream.pipeline.run.launch import Launch

if TYPE_CHECKING:
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.reporting.progress import BatchProgress
    from millstream.pipeline.run.reporting.status_writer import StatusWriter
    from millstream.pipeline.run.settings import JobSettings

# An edit may change the guarantee while Spark keeps running, so these hold for all guarantees.
_WHATEVER_IS_WATCHED = {"spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"}


def run_job(
    flow: Topology,
    settings: JobSettings,
    engine: Engine,
    status: Callable[[], StatusWriter | None],
    *,
    on_rebuild: Callable[[BatchProgress], None],
    rebuild: bool,
    finish: bool,
    restarts: Restarts | None,
) -> int:
    """Run a job until it ends or the user interrupts it, with restarts if there are any. Returns the exit
    code.
    """
    with Interrupts() as interrupts:

        def stop(job: Job) -> None:
            seen = interrupts.count
            job.stop(patience=60)
            if interrupts.count > seen:
                os._exit(130)  # asked twice

        launch = Launch(
            flow,
            settings,
            _at_terminal(engine, interrupts),
            stop=stop,
            note=note,
            status=status,
            rebuild=rebuild,
            on_rebuild=on_rebuild,
            finish=finish,
        )

        def once() -> int:
            if not launch.run():
                return 130
            say(f"{flow.name} ended: {launch.totals.progress()}")
            return 0

        if restarts is None:
            return once()
        return restarting(once, restarts, interrupts, ran=lambda: launch.ran)


def run_watched(
    path: Path,
    load: Callable[[], Topology],
    settings: JobSettings,
    engine: Engine,
    status: Callable[[], StatusWriter | None],
) -> int:
    """Run the pipeline in a file, and start it again whenever the file is saved. Returns the exit code."""
    home = Path(".millstream") / f"{path.stem}.watch"
    writer = status()

    def scratch(checkpoint: str, own: Path) -> JobSettings:
        return replace(settings, checkpoint=checkpoint, views=settings.views or own, status=writer)

    watched = Watched(path, load, scratch, home)
    with Interrupts() as interrupts, writer or nullcontext():
        spark = _at_terminal(engine, interrupts)
        with spark.session(home.name, home, _WHATEVER_IS_WATCHED) as session:
            return 130 if session is None else watched.run(session, interrupts)


def _at_terminal(engine: Engine, interrupts: Interrupts) -> Engine:
    return replace(engine, stopping=lambda: bool(interrupts), say=say, waiting=spinner)


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
