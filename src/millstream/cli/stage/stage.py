"""The stage that a demonstration runs on: a broker, Spark, the job, and a screen that keeps moving.

The demo and ``millstream example run`` are stages. Each adds what it plays.
"""

from __future__ import annotations

import shutil
import threading
import time
import webbrowser
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.cli.stage.panel import Picture, Screen
from millstream.core.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.client.connect import Connection
    from millstream.core.interrupts import Interrupts
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.reporting.progress import BatchProgress

# In a one-minute run, optimised compilation doesn't pay off: compile quickly, without whole-stage code.
_SHORT_LIVED = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}
_CONSOLE = "127.0.0.1:9090"
_LOOK_EVERY = 0.5  # seconds between looks at what takes a moment to read

P = TypeVar("P", bound=Picture)


class StoppedByUser(Exception):
    """The user has pressed Ctrl-C."""


class Stage(Generic[P]):
    """Starts the parts in order. ``closing`` ends them in reverse order."""

    def __init__(
        self, home: Path, screen: Screen[P], picture: P, interrupts: Interrupts, closing: ExitStack
    ) -> None:
        self.home = home
        self.screen = screen
        self.picture = picture
        self.interrupts = interrupts
        self.closing = closing
        self.processed: dict[str, int] = {}  # records, by query
        self.progressed = time.monotonic()  # when the newest batch was done
        self.job: Job | None = None
        self._parts: list[Any] = []
        self._looked = 0.0
        self._before = 0

    # ---- setting up ---------------------------------------------------------------------------------

    def start_broker(self) -> Connection:
        from millstream import Broker
        from millstream.client.connect import Connection

        began = self.begin("starting the broker")
        broker = Broker(self.home / "broker")
        broker.start()
        self.closing.callback(broker.stop)
        self.picture.address = broker.address
        self.done(f"broker at {broker.address}", began)
        return Connection(broker.address)

    def start_part(self, part: Any) -> None:
        """Start a part that runs on its own thread. If it fails, the stage fails."""
        part.start()
        self.closing.callback(part.end)
        self._parts.append(part)

    def start_job(
        self,
        flow: Topology,
        connection: Connection,
        *,
        title: str,
        master: str,
        planning: str,
        console: bool = False,
        open_: bool = False,
    ) -> None:
        """Start the pipeline on Spark. The job reports its status as one of ``millstream run`` does, so that
        the console started here, or any other console of the broker, shows it.
        """
        from millstream.pipeline.run.job import Job
        from millstream.pipeline.run.reporting.status_writer import StatusWriter
        from millstream.pipeline.run.settings import JobSettings
        from millstream.pipeline.spark.jvm import end_engine, start_engine

        began = self.begin("starting Spark")
        engine = start_engine(title, master=master, log_file=self.home / "spark.log", settings=_SHORT_LIVED)
        if console:  # while Spark starts, which takes longer
            serving: Future[None] = Future()
            _in_background(lambda: self._serve_console(connection), serving)
            self.wait_for(serving)
            if open_ and self.picture.console.startswith("http"):
                webbrowser.open(self.picture.console)
        status = self.closing.enter_context(StatusWriter(connection))
        self.job = job = Job(
            flow,
            JobSettings(
                connection,
                str(self.home / "pipeline"),
                new_ledger=True,
                on_progress=self.progress,
                on_trouble=self.waits_for,
                status=status,
            ),
        )
        self.closing.callback(job.close)  # needed even if the job is never started
        job.prepare()
        session = self.wait_for(engine)
        self.closing.callback(end_engine, session)
        self.done(f"Spark {session.version}", began)

        self.begin(planning)
        self.closing.callback(job.stop)
        start: Future[None] = Future()
        _in_background(lambda: job.start(session), start)
        self.wait_for(start)
        self.waits_for("waiting for Spark's first batch: it compiles the plan and starts Python processes")

    def _serve_console(self, connection: Connection) -> None:
        """Serve the console on a thread, at its usual port, or at any free port if that is taken."""
        from millstream.console import needs_extra

        try:
            with needs_extra():
                from millstream.console.run import Console
                from millstream.console.settings import ConsoleSettings
        except MillstreamError as missing:
            self.picture.console = f"none: {missing}"
            return
        settings = ConsoleSettings(connection, views=(str(self.home / "pipeline" / "views.db"),))
        try:
            served = Console(settings, listen=_CONSOLE).start()
        except MillstreamError:
            served = Console(settings).start()
        self.closing.callback(served.stop)
        self.picture.console = f"{served.url}/pipelines"

    # ---- showing ------------------------------------------------------------------------------------

    def begin(self, what: str) -> float:
        self.picture.phase = what
        self.picture.steps.append((what, None))
        self.picture.step_began = time.monotonic()
        self.breathe()
        return self.picture.step_began

    def done(self, what: str, began: float | None = None) -> None:
        self.picture.steps[-1] = (what, time.monotonic() - (began or self.picture.step_began))
        self.breathe()

    def waits_for(self, what: str) -> None:
        """Say what the current step is waiting for. The job's threads call this too."""
        if self.picture.steps and self.picture.steps[-1][1] is None:
            self.picture.steps[-1] = (what, None)
            self.picture.phase = what

    def wait_for(self, future: Future[Any]) -> Any:
        while not future.done():
            self.breathe()
        return future.result()

    def breathe(self) -> None:
        """Wait 0.1 s: update the picture, show it, and check for Ctrl-C and failures."""
        if self.interrupts:
            raise StoppedByUser
        for part in self._parts:
            if part.error is not None:
                raise MillstreamError(f"the {part.name} failed: {part.error}")
        self.look()
        if time.monotonic() - self._looked > _LOOK_EVERY:
            self._looked = time.monotonic()
            if self.picture.live:
                self.picture.rates.append(self.picture.processed - self._before)
            self._before = self.picture.processed
            if self.job is not None and self.processed:
                self.picture.lag = self.job.lag
            self.look_closer()
            if self.job is not None and (error := self.job.failed()) is not None:
                raise error
        self.screen.show(self.picture)
        time.sleep(0.1)

    def look(self) -> None:
        """Update the picture. Called about ten times a second."""

    def look_closer(self) -> None:
        """Update the parts of the picture that take a moment to read. Called about twice a second."""

    def progress(self, progress: BatchProgress) -> None:
        """Count a finished batch. Called by one of the job's threads."""
        picture = self.picture
        self.progressed = time.monotonic()
        self.processed[progress.query] = self.processed.get(progress.query, 0) + progress.rows_in
        picture.processed += progress.rows_in
        picture.rejected += progress.rejected
        picture.watermark = progress.watermark or picture.watermark
        picture.batch_ms = progress.milliseconds

    # ---- ending -------------------------------------------------------------------------------------

    def stay(self) -> None:
        """Wait until Ctrl-C."""
        print("Ctrl-C ends it.", flush=True)
        while not self.interrupts:
            time.sleep(0.1)
        print("ending", flush=True)


def remove(home: Path) -> None:
    """Delete a stage's directory with all its content. Runs twice, because Spark may open its log in the
    directory during the first pass. After that it can't: Spark does not create the directory.
    """
    for _ in range(2):
        shutil.rmtree(home, ignore_errors=True)


def _in_background(work: Callable[[], None], future: Future[None]) -> None:
    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="pipeline-start", daemon=True).start()
