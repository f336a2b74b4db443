"""``millstream demo``: shows a broker, a generator and a Spark pipeline at work in a minute."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.stage.demo_panel import DemoPicture, display, summary
from millstream.cli.stage.stage import Stage, StoppedByUser, remove
from millstream.cli.terminal.help import App, examples
from millstream.core.errors import ConfigError, MillstreamError
from millstream.core.units import DurationError, duration_ms

if TYPE_CHECKING:
    from millstream.cli.stage.demo_scene import Alerts, Payments
    from millstream.core.interrupts import Interrupts

app = App()


@app.command(
    epilog=examples(
        ("millstream demo", "a minute of card payments, and what was found"),
        ("millstream demo --for 10m --rate 1000", "longer, with more payments"),
        ("millstream demo --open", "with the console in the browser at once"),
        ("millstream demo --keep", "leave the broker running, to look around"),
    )
)
def demo(
    for_: Annotated[
        str,
        typer.Option("--for", metavar="DURATION", help="How long to run once the pipeline has caught up."),
    ] = "60s",
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Payments per second.")] = 100.0,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", help="The random seed: another seed gives other payments and other fraud."
        ),
    ] = 7,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the broker running until Ctrl-C, and keep its data."),
    ] = False,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master.")] = "local[2]",
    no_console: Annotated[bool, typer.Option("--no-console", help="Don't serve the console.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the console in the browser.")] = False,
) -> int:
    """Find fraud in card payments: a demo with a broker, a generator and a Spark pipeline on this machine.

    A generator sends payments with planted fraud to a broker in this process. The pipeline of
    millstream.examples.fraud finds the fraud, writes alerts to a topic and keeps a table of blocked cards.
    Meanwhile the console shows everything in the browser, at the printed address. At the end, what was found
    is compared with what was planted.
    """
    from millstream.core.interrupts import Interrupts

    try:
        seconds = duration_ms(for_) / 1000
    except DurationError as error:
        raise ConfigError(f"--for: {error}") from None
    if no_console and open_:
        raise ConfigError("--no-console and --open exclude each other: there would be nothing to open")
    if not 0 < rate <= 100_000:
        raise ConfigError(f"--rate {rate:g} is not from 1 to 100000 payments a second")
    home = Path(".millstream/demo") if keep else Path(tempfile.mkdtemp(prefix="millstream-demo-"))
    if keep:
        remove(home)
        home.mkdir(parents=True)
    with Interrupts() as interrupts, ExitStack() as closing:
        if not keep:
            closing.callback(remove, home)
        try:
            stage = _Demo(home, interrupts, closing)
            with stage.screen:
                stage.set_up(seed, rate, master, console=not no_console, open_=open_)
                stage.play(seconds)
            stage.sum_up(keep)
            if keep:
                stage.stay()
        except StoppedByUser:
            print("the demo was stopped", flush=True)
    return 0


class _Demo(Stage[DemoPicture]):
    """The fraud example, with the demo's own panel."""

    _payments: Payments
    _alerts: Alerts

    def __init__(self, home: Path, interrupts: Interrupts, closing: ExitStack) -> None:
        super().__init__(home, display(), DemoPicture(), interrupts, closing)
        self._up_ms = 0  # when the pipeline had caught up with its backlog
        self._up = 0.0

    # ---- setting up ---------------------------------------------------------------------------------

    def set_up(self, seed: int, rate: float, master: str, *, console: bool, open_: bool) -> None:
        from millstream.cli.stage import demo_scene as scene
        from millstream.client.librdkafka.admin import Admin
        from millstream.examples.fraud import EXAMPLE
        from millstream.examples.fraud.generate import PAYMENTS
        from millstream.pipeline.dsl.load import load_topology

        connection = self.start_broker()
        with Admin(connection) as admin:
            for topic in (PAYMENTS, scene.ALERTS, scene.TRUTH, scene.REJECTED):
                admin.create_topic(topic, partitions=2 if topic == PAYMENTS else 1)
        self._payments = scene.Payments(connection, seed=seed, rate=rate)
        self.start_part(self._payments)
        self._alerts = scene.Alerts(connection)
        self.start_part(self._alerts)
        self.start_job(
            load_topology(EXAMPLE.pipeline),
            connection,
            title="millstream demo",
            master=master,
            planning="planning the pipeline, reading the history of every card",
            console=console,
            open_=open_,
        )
        while self.picture.processed < 0.9 * self._payments.payments:
            if self.picture.processed:
                self.waits_for("catching up with the payments that came while Spark started")
            self.breathe()
        self.done("pipeline of 4 rules is up to date")

    # ---- playing ------------------------------------------------------------------------------------

    def play(self, seconds: float) -> None:
        from millstream.examples.feed import now_ms

        self.picture.phase, self.picture.wanted = "watching payments", seconds
        self._up, self._up_ms = time.monotonic(), now_ms()
        while time.monotonic() - self._up < seconds:
            self.breathe()
        self.picture.phase = "finishing what is under way"
        self._payments.end()
        deadline = time.monotonic() + 30
        while self.picture.processed < self._payments.payments and time.monotonic() < deadline:
            self.breathe()
        settled = time.monotonic() + 0.5  # the last alerts may not have reached this process yet
        while time.monotonic() < settled:
            self.breathe()

    def look(self) -> None:
        from millstream.cli.stage.demo_scene import percentile

        if not hasattr(self, "_alerts"):
            return
        picture = self.picture
        picture.sent = self._payments.payments
        picture.alerts = len(self._alerts.seen)
        picture.recent = list(self._alerts.recent)
        if self._up:
            picture.live = time.monotonic() - self._up
            latencies = self._alerts.latencies(self._up_ms)
            picture.p50, picture.p95 = percentile(latencies, 0.5), percentile(latencies, 0.95)

    def look_closer(self) -> None:
        self.picture.blocked = self._blocked()

    def _blocked(self) -> int:
        from millstream.views.opening import open_reader

        try:
            reader = open_reader(self.home / "pipeline" / "views.db")
        except MillstreamError:
            return 0  # the database does not exist yet
        try:
            return sum(rows for _, _, rows in reader.views())
        finally:
            reader.close()

    # ---- ending -------------------------------------------------------------------------------------

    def sum_up(self, keep: bool) -> None:
        from millstream.examples.fraud.check import judge

        self.picture.blocked = self._blocked()
        alerts = [seen.alert for seen in self._alerts.seen]
        summary(judge(self._payments.generator.planted, alerts, self._payments.until_ms), self.picture)
        if keep:
            address, views = self.picture.address, self.home / "pipeline" / "views.db"
            if self.picture.console.startswith("http"):
                print(f"The console is at {self.picture.console}")
            print("The broker is still there. In another terminal:")
            for command in (
                f"millstream topic list --broker {address}",
                f"millstream consume alerts -o start -n 3 --broker {address}",
                f"millstream consume payments.rejected -o start --broker {address}",
                f"millstream group lag fraud --broker {address}",
                f"millstream view query blocked_cards --views {views}",
            ):
                print(f"  {command}")
        else:
            from millstream.examples.fraud import EXAMPLE

            print("Where to look next:")
            for command, meaning in (
                (f"millstream graph {_near(EXAMPLE.pipeline)}", "the pipeline you have just seen"),
                ("millstream demo --keep", "the same, with a broker and a console that stay, to look around"),
                ("millstream serve --data ./data", "a broker of your own; any Kafka client can talk to it"),
                ("docs/guides/pipelines.md", "how to write a pipeline"),
            ):
                print(f"  {command}\n      {meaning}")


def _near(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
