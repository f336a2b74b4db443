"""``millstream demo``: the whole of it in a minute."""

from __future__ import annotations

import shutil
import tempfile
import time
import webbrowser
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.help import App, examples
from millstream.errors import ConfigError, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.demo_panel import Lines, Panel
    from millstream.cli.signals import Interrupts
    from millstream.client.connect import Connection
    from millstream.pipeline.progress import Progress

app = App()


# A minute is too short for compiling well to pay: quick compilation, and none of whole stages.
_SHORT_LIVED = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}


_CONSOLE = "127.0.0.1:9090"


class _Enough(Exception):
    """The user has pressed Ctrl-C."""


@app.command(
    epilog=examples(
        ("millstream demo", "a minute of card payments, and what was found"),
        ("millstream demo --for 10m --rate 1000", "longer, and more of them"),
        ("millstream demo --open", "with the console in the browser at once"),
        ("millstream demo --keep", "leave the broker running, to look around"),
    )
)
def demo(
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long, once the pipeline is up.")
    ] = "60s",
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Payments a second.")] = 100.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Other payments, other fraud.")] = 7,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave the broker running and its data where they are, until Ctrl-C."),
    ] = False,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master.")] = "local[2]",
    no_console: Annotated[
        bool, typer.Option("--no-console", help="Don't serve the console beside it.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the console in the browser.")] = False,
) -> int:
    """Find fraud in card payments: a broker, a generator and a Spark pipeline, all on this machine.

    Payments with planted fraud are produced to a broker in this process; the pipeline of
    millstream.examples.fraud finds it, writes alerts to a topic and keeps a table of blocked cards. The
    console shows all of it in the browser meanwhile, at an address that is printed. Ends with what was found
    against what was planted.
    """
    from millstream.cli.demo_panel import display
    from millstream.cli.signals import Interrupts
    from millstream.pipeline.expressions import ExpressionError, duration_ms

    try:
        seconds = duration_ms(for_) / 1000
    except ExpressionError as error:
        raise ConfigError(f"--for: {error}") from None
    if no_console and open_:
        raise ConfigError("--no-console and --open exclude each other: there would be nothing to open")
    if not 0 < rate <= 100_000:
        raise ConfigError(f"--rate {rate:g} is not from 1 to 100000 payments a second")
    home = Path(".millstream/demo") if keep else Path(tempfile.mkdtemp(prefix="millstream-demo-"))
    if keep:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
    with Interrupts() as interrupts, ExitStack() as closing:
        if not keep:
            closing.callback(shutil.rmtree, home, ignore_errors=True)
        screen = display()
        try:
            stage = _Stage(home, screen, interrupts, closing)
            with screen:
                stage.set_up(seed, rate, master, console=not no_console, open_=open_)
                stage.play(seconds)
            stage.sum_up(keep)
            if keep:
                stage.wait()
        except _Enough:
            print("the demo was stopped", flush=True)
    return 0


class _Stage:
    """The demo's parts in the order they start; ``closing`` ends them in the opposite one."""

    def __init__(self, home: Path, screen: Panel | Lines, interrupts: Interrupts, closing: ExitStack) -> None:
        from millstream.cli.demo_panel import Picture

        self._home = home
        self._screen = screen
        self._interrupts = interrupts
        self._closing = closing
        self._picture = Picture()
        self._up_ms = 0  # when the pipeline had caught up with what came before it
        self._up = 0.0
        self._tick = 0.0
        self._before = 0

    # ---- setting up ---------------------------------------------------------------------------------

    def set_up(self, seed: int, rate: float, master: str, *, console: bool, open_: bool) -> None:
        from millstream import Broker
        from millstream.cli import demo_scene as scene
        from millstream.client.admin import Admin
        from millstream.client.connect import Connection
        from millstream.examples.fraud import topology
        from millstream.pipeline.engine import end_engine, start_engine
        from millstream.pipeline.job import Job, Settings
        from millstream.pipeline.load import load_topology
        from millstream.pipeline.status_writer import StatusWriter

        began = self._begin("starting the broker")
        broker = Broker(self._home / "broker")
        broker.start()
        self._closing.callback(broker.stop)
        self._picture.address = broker.address
        connection = Connection(broker.address)
        with Admin(connection) as admin:
            for topic in (scene.PAYMENTS, scene.ALERTS, scene.TRUTH, scene.REJECTED):
                admin.create_topic(topic, partitions=2 if topic == scene.PAYMENTS else 1)
        self._done(f"broker at {broker.address}", began)

        self._payments = scene.Payments(connection, seed=seed, rate=rate)
        self._payments.start()
        self._closing.callback(self._payments.end)
        self._alerts = scene.Alerts(connection)
        self._alerts.start()
        self._closing.callback(self._alerts.end)

        began = self._begin("starting Spark")
        flow = load_topology(Path(topology.__file__))
        engine = start_engine(
            "millstream demo", master=master, log_file=self._home / "spark.log", settings=_SHORT_LIVED
        )
        if console:  # while Spark starts, which takes longer
            serving: Future[None] = Future()
            _in_background(lambda: self._serve_console(connection), serving)
            self._await(serving)
            if open_ and self._picture.console.startswith("http"):
                webbrowser.open(self._picture.console)
        status = self._closing.enter_context(StatusWriter(connection))
        self._job = Job(
            flow,
            Settings(connection, str(self._home / "pipeline"), on_progress=self._progress, status=status),
        )
        self._job.prepare()
        session = self._await(engine)
        self._closing.callback(end_engine, session)
        self._done(f"Spark {session.version}", began)

        began = self._begin("planning the pipeline, reading the history of every card")
        self._closing.callback(self._job.stop)
        start: Future[None] = Future()
        _in_background(lambda: self._job.start(session), start)
        self._await(start)
        while self._picture.processed < 0.9 * self._payments.sent:
            self._breathe()
        self._done("pipeline of 4 rules is up to date", began)

    def _serve_console(self, connection: Connection) -> None:
        """The console, on a thread: at its usual port, or at any if that is taken."""
        from millstream.console import needs_extra

        try:
            with needs_extra():
                from millstream.console.run import Console
                from millstream.console.settings import Settings
        except MillstreamError as missing:
            self._picture.console = f"none: {missing}"
            return
        settings = Settings(connection, views=(str(self._home / "pipeline" / "views.db"),))
        try:
            served = Console(settings, listen=_CONSOLE).start()
        except MillstreamError:
            served = Console(settings).start()
        self._closing.callback(served.stop)
        self._picture.console = f"{served.url}/pipelines"

    def _await(self, future: Future[Any]) -> Any:
        while not future.done():
            self._breathe()
        return future.result()

    def _begin(self, what: str) -> float:
        self._picture.phase = what
        self._picture.steps.append((what, None))
        self._picture.step_began = time.monotonic()
        self._breathe()
        return self._picture.step_began

    def _done(self, what: str, began: float) -> None:
        self._picture.steps[-1] = (what, time.monotonic() - began)
        self._breathe()

    # ---- playing ------------------------------------------------------------------------------------

    def play(self, seconds: float) -> None:
        from millstream.cli.demo_scene import now_ms

        self._picture.phase, self._picture.wanted = "watching payments", seconds
        self._up, self._up_ms = time.monotonic(), now_ms()
        while time.monotonic() - self._up < seconds:
            self._breathe()
        self._picture.phase = "finishing what is under way"
        self._payments.end()
        deadline = time.monotonic() + 30
        while self._picture.processed < self._payments.sent and time.monotonic() < deadline:
            self._breathe()
        settled = time.monotonic() + 0.5  # the last alerts are on their way to this process
        while time.monotonic() < settled:
            self._breathe()

    def _progress(self, progress: Progress) -> None:
        picture = self._picture
        picture.processed += progress.rows_in
        picture.rejected += progress.rejected
        picture.watermark = progress.watermark or picture.watermark
        picture.batch_ms = progress.milliseconds

    def _breathe(self) -> None:
        """A moment: look at everything, show it, and notice Ctrl-C and failures."""
        if self._interrupts:
            raise _Enough
        self._look()
        self._screen.show(self._picture)
        time.sleep(0.1)

    def _look(self) -> None:
        from millstream.cli.demo_scene import percentile

        if not hasattr(self, "_alerts"):
            return
        for part in (self._payments, self._alerts):
            if part.error is not None:
                raise MillstreamError(f"the demo's {part.name} failed: {part.error}")
        picture = self._picture
        picture.sent = self._payments.sent
        picture.alerts = len(self._alerts.seen)
        picture.recent = list(self._alerts.recent)
        if picture.processed:
            picture.lag = max(0, picture.sent - picture.processed)
        if self._up:
            picture.live = time.monotonic() - self._up
            latencies = self._alerts.latencies(self._up_ms)
            picture.p50, picture.p95 = percentile(latencies, 0.5), percentile(latencies, 0.95)
        if time.monotonic() - self._tick > 0.5:
            self._tick = time.monotonic()
            if self._up:
                picture.rates.append(picture.processed - self._before)
            self._before = picture.processed
            picture.blocked = self._blocked()
            if hasattr(self, "_job") and (error := self._job.failed()) is not None:
                raise error

    def _blocked(self) -> int:
        from millstream.pipeline.views import open_reader

        try:
            reader = open_reader(self._home / "pipeline" / "views.db")
        except MillstreamError:
            return 0  # not made yet
        try:
            return sum(rows for _, _, rows in reader.views())
        finally:
            reader.close()

    # ---- ending -------------------------------------------------------------------------------------

    def sum_up(self, keep: bool) -> None:
        from millstream.cli.demo_panel import summary
        from millstream.examples.fraud.judge import judge

        self._picture.blocked = self._blocked()
        alerts = [seen.alert for seen in self._alerts.seen]
        summary(judge(self._payments.planted, alerts, self._payments.until_ms), self._picture)
        if keep:
            address, views = self._picture.address, self._home / "pipeline" / "views.db"
            if self._picture.console.startswith("http"):
                print(f"The console is at {self._picture.console}")
            print("The broker is still there. In another terminal:")
            for command in (
                f"millstream topic list --broker {address}",
                f"millstream consume alerts -o start -n 3 --broker {address}",
                f"millstream consume payments.rejected -o start --broker {address}",
                f"millstream group lag fraud --broker {address}",
                f"millstream view query blocked_cards --views {views}",
            ):
                print(f"  {command}")
            print("Ctrl-C ends it.", flush=True)
        else:
            from millstream.examples.fraud import topology

            print("Where to look next:")
            for command, meaning in (
                (f"millstream graph {_near(Path(topology.__file__))}", "the pipeline you have just seen"),
                ("millstream demo --keep", "the same, with a broker and a console that stay, to look around"),
                ("millstream serve --data ./data", "a broker of your own; any Kafka client can talk to it"),
                ("docs/pipelines.md", "how to write a pipeline"),
            ):
                print(f"  {command}\n      {meaning}")

    def wait(self) -> None:
        while not self._interrupts:
            time.sleep(0.1)
        print("ending", flush=True)


def _near(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _in_background(work: Callable[[], None], future: Future[None]) -> None:
    import threading

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="pipeline-start", daemon=True).start()
