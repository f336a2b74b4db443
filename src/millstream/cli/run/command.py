"""``millstream run``: runs a pipeline on Spark."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.run.once import OneJob, session_of
from millstream.cli.run.progress import ProgressOption, Shown, Totals
from millstream.cli.run.restart import MaxRestartsOption, Restart, RestartOption, Restarts, restarting
from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import connected, pairs
from millstream.cli.terminal.output import note
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError

if TYPE_CHECKING:
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.run.job import Settings

app = App()

PipelineArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The Python file that defines the topology.", show_default=False)
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Which topology to use, if the file defines several."),
]


@app.command(
    epilog=examples(
        ("millstream run fraud.py", "against the broker at 127.0.0.1:9092, until Ctrl-C"),
        ("millstream run fraud.py --available-now", "process what is there now, and end"),
        (
            "millstream run fraud.py --trigger 10s --master spark://host:7077",
            "a batch every 10 s, on a cluster",
        ),
        ("millstream run fraud.py --checkpoint /var/lib/fraud", "keep progress there, now and next time"),
        (
            "millstream run fraud.py --restart on-failure",
            "start it again when it fails, after a growing pause",
        ),
        ("millstream run fraud.py --watch", "start again whenever the file is saved"),
        (
            "millstream run fraud.py --from @-1d --output-prefix replay-",
            "a copy over the last day that writes to other topics, and ends",
        ),
        ("millstream run fraud.py --rebuild", "rebuild its views, swap them in, and go on"),
    )
)
@connected
def run(
    context: typer.Context,
    connection: Connection,
    pipeline: PipelineArgument,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="The directory for the job's progress and state. [default: .millstream/NAME]",
            show_default=False,
        ),
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(
            "--views",
            metavar="FILE|URL",
            envvar="MILLSTREAM_VIEWS",
            help="The database for the job's views: a SQLite file or postgresql://... [default: "
            "DIR/views.db]",
        ),
    ] = None,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark's master: local[2], spark://host:7077, ...")
    ] = "local[*]",
    available_now: Annotated[
        bool,
        typer.Option(
            "--available-now",
            help="Process what is in the topics now, close what is still open (windows, waiting rows), and "
            "end.",
        ),
    ] = False,
    leave_open: Annotated[
        bool,
        typer.Option(
            "--leave-open",
            help="With --available-now: leave what waits for later events open for the next run.",
        ),
    ] = False,
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger",
            metavar="DURATION",
            help="Start a batch this often. [default: as soon as the last one is done]",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Where the first run starts in its input topics, except those it writes itself: start, an "
            "offset, -3 (three before the end), or a time (@-1d, @2026-01-01).",
        ),
    ] = None,
    output_prefix: Annotated[
        str | None,
        typer.Option(
            "--output-prefix",
            metavar="TEXT",
            help="Run a copy of the job, with this prefix on its name, output topics and views. The original "
            "is not touched. The copy ends once it has processed what is there now, unless --follow is "
            "given.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --output-prefix: continue with new records.")
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Rebuild the views first, from --from or the start of the topics, next to the current ones. "
            "Then replace those, and take over from the running job.",
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Restart whenever the file changes, on a separate scratch checkpoint."),
    ] = False,
    create_topics: Annotated[
        bool,
        typer.Option("--create-topics", help="Also create missing input topics, not only output topics."),
    ] = False,
    new_ledger: Annotated[
        bool,
        typer.Option(
            "--new-ledger",
            help="Ignore which batches the group's offsets say are done, and trust only the checkpoint.",
        ),
    ] = False,
    reset_operator: Annotated[
        list[str] | None,
        typer.Option(
            "--reset-operator",
            metavar="NAME",
            help="Discard the state of an operator that was changed, and start without it. May be repeated.",
        ),
    ] = None,
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost",
            help="Continue if records were deleted before they were read, instead of stopping.",
        ),
    ] = False,
    transaction_timeout: Annotated[
        str,
        typer.Option(
            "--transaction-timeout",
            metavar="DURATION",
            help="With exactly-once: the time after which an unfinished transaction is aborted.",
        ),
    ] = "5m",
    spark: Annotated[
        list[str] | None,
        typer.Option("--spark", metavar="NAME=VALUE", help="A Spark setting. May be repeated."),
    ] = None,
    no_status: Annotated[
        bool,
        typer.Option(
            "--no-status",
            help="Don't report the job's status in the topic millstream.jobs, which consoles read.",
        ),
    ] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve Spark's web UI on port 4040.")] = False,
    restart: RestartOption = Restart.NEVER,
    max_restarts: MaxRestartsOption = 10,
    progress: ProgressOption = Shown.LINE,
    name: NameOption = None,
) -> int:
    """Run a pipeline on Spark until Ctrl-C, and print a line for each batch.

    The file is checked before Spark starts. Missing output topics are created. Ctrl-C or SIGTERM stops the
    job after the current batch, and the next run continues from the checkpoint. `millstream group lag NAME`
    shows how far the job is behind.
    """
    import pyspark  # noqa: F401  (fails here if missing, before the broker is queried and topics are created)

    from millstream.cli.terminal.signals import Interrupts
    from millstream.pipeline.dsl.expressions import ExpressionError, duration_ms
    from millstream.pipeline.dsl.load import load_topology
    from millstream.pipeline.run.job import Settings
    from millstream.pipeline.run.replay import write_elsewhere
    from millstream.pipeline.run.status_writer import StatusWriter
    from millstream.pipeline.spark.engine import end_engine, noticing_its_end, start_engine

    if trigger is not None:
        try:
            trigger = f"{duration_ms(trigger)} milliseconds"
        except ExpressionError as error:
            raise ConfigError(f"--trigger: {error}") from None
    try:
        timeout_s = duration_ms(transaction_timeout) / 1000
    except ExpressionError as error:
        raise ConfigError(f"--transaction-timeout: {error}") from None
    options = pairs(spark or (), "--spark")
    bounded = available_now or (output_prefix is not None and not follow and not watch)
    _check_together(
        rebuild=rebuild,
        watch=watch,
        prefix=output_prefix,
        follow=follow,
        checkpoint=checkpoint is not None,
        leave_open=leave_open,
        bounded=bounded,
        restart=restart is not Restart.NEVER,
    )
    start = None if from_ is None else _position(from_)
    totals = Totals(progress)
    if progress is Shown.JSON:
        # Everything meant for people goes to standard error, including a pipeline's own print().
        context.with_resource(redirect_stdout(sys.stderr))

    def status() -> StatusWriter | None:
        return None if no_status else StatusWriter(connection, say=note)

    def load() -> Topology:
        flow = load_topology(Path(pipeline), name)
        if output_prefix is not None:
            write_elsewhere(flow, output_prefix)
        return flow

    def settings(checkpoint: str, views: str | Path | None) -> Settings:
        return Settings(
            connection,
            checkpoint,
            views=views,
            trigger=trigger,
            available_now=bounded,
            create_topics=create_topics,
            new_ledger=new_ledger or watch,
            start=start,
            reset=tuple(reset_operator or ()),
            skip_lost=skip_lost,
            transaction_timeout_s=timeout_s,
            on_progress=totals.show,
            on_trouble=note,
        )

    if watch:
        from millstream.cli.run.watch import Watched

        home = Path(".millstream") / f"{Path(pipeline).stem}.watch"
        writer = status()

        def scratch(checkpoint: str, own: Path) -> Settings:
            return replace(settings(checkpoint, views or own), status=writer)

        watched = Watched(Path(pipeline), load, scratch, home)
        # An edit may change the guarantee while Spark keeps running, so these hold for all guarantees.
        options = {"spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1", **options}
        with Interrupts() as interrupts, writer or nullcontext():
            engine = start_engine(
                home.name, master=master, log_file=home / "spark.log", settings=options, ui=ui
            )
            session = session_of(engine, interrupts)
            if session is None:
                return 130
            try:
                with noticing_its_end(home / "spark.log"):
                    return watched.run(session, interrupts)
            finally:
                end_engine(session)

    flow = load()
    for warning in flow.check():
        note(warning)
    given = settings(checkpoint or f".millstream/{flow.name}", views)
    one = OneJob(
        flow, given, master, options, totals, ui=ui, rebuild=rebuild, leave_open=leave_open, status=status
    )
    with Interrupts() as interrupts:
        if restart is Restart.NEVER:
            return one.run(interrupts)
        restarts = Restarts(max_restarts)
        return restarting(lambda: one.run(interrupts), restarts, interrupts, ran=lambda: one.ran)


def _check_together(
    *,
    rebuild: bool,
    watch: bool,
    prefix: str | None,
    follow: bool,
    checkpoint: bool,
    leave_open: bool,
    bounded: bool,
    restart: bool,
) -> None:
    if restart and watch:
        raise ConfigError("--restart and --watch exclude each other: a watched job waits for the next edit")
    if rebuild and (watch or prefix is not None):
        other = "--watch" if watch else "--output-prefix"
        raise ConfigError(
            f"--rebuild and {other} exclude each other: a rebuild takes over from the job itself"
        )
    if watch and checkpoint:
        raise ConfigError(
            "--watch and --checkpoint exclude each other: every start is on a scratch checkpoint"
        )
    if leave_open and not bounded:
        raise ConfigError(
            "--leave-open goes with --available-now: without it nothing is closed before its time"
        )
    if follow and prefix is None:
        raise ConfigError("--follow goes with --output-prefix: without it a job goes on anyway")
    if prefix == "":
        raise ConfigError("--output-prefix is empty: the copy would write where the original does")


def _position(text: str) -> str:
    """A position to start from. A relative time is resolved here, once, so it is the same for all topics."""
    from millstream.client.text.position import parse_position
    from millstream.core.clock import SystemClock

    try:
        return str(parse_position(text, SystemClock().now_ms()))
    except ConfigError as error:
        raise ConfigError(f"--from: {error}") from None
