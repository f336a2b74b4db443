"""``millstream run``: a pipeline on Spark."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.help import App, examples
from millstream.cli.options import connected, pairs
from millstream.cli.output import count, note
from millstream.client.connect import Connection
from millstream.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.cli.signals import Interrupts
    from millstream.pipeline.job import Job
    from millstream.pipeline.progress import Progress

app = App()

PipelineArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The Python file that defines the topology.", show_default=False)
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The topology, if the file defines several.")
]


@app.command(
    epilog=examples(
        ("millstream run fraud.py", "against the broker at 127.0.0.1:9092, until Ctrl-C"),
        ("millstream run fraud.py --available-now", "what is there now, and end"),
        (
            "millstream run fraud.py --trigger 10s --master spark://host:7077",
            "a batch every 10 s, on a cluster",
        ),
        ("millstream run fraud.py --checkpoint /var/lib/fraud", "go on from there, now and next time"),
    )
)
@connected
def run(
    connection: Connection,
    pipeline: PipelineArgument,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Where the job remembers how far it is. [default: .millstream/NAME]",
            show_default=False,
        ),
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(
            "--views",
            metavar="FILE|URL",
            envvar="MILLSTREAM_VIEWS",
            help="The database of its views: a SQLite file, or postgresql://... [default: DIR/views.db]",
        ),
    ] = None,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark's master: local[2], spark://host:7077, ...")
    ] = "local[*]",
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what is in the topics, and end.")
    ] = False,
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger", metavar="DURATION", help="A batch this often. [default: as soon as the last is done]"
        ),
    ] = None,
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="Create topics it reads, not only those it writes.")
    ] = False,
    new_ledger: Annotated[
        bool,
        typer.Option(
            "--new-ledger",
            help="Forget which batches the group's offsets say are done, and go by the checkpoint alone.",
        ),
    ] = False,
    transaction_timeout: Annotated[
        str,
        typer.Option(
            "--transaction-timeout",
            metavar="DURATION",
            help="With exactly-once: when a transaction that nobody ends is aborted.",
        ),
    ] = "5m",
    spark: Annotated[
        list[str] | None,
        typer.Option("--spark", metavar="NAME=VALUE", help="A setting of Spark's; may be repeated."),
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve Spark's own web page, on port 4040.")] = False,
    name: NameOption = None,
) -> int:
    """Run a pipeline on Spark until Ctrl-C, printing a line a batch.

    The file is checked before Spark starts. Topics that it writes are created if they are missing. Ctrl-C or
    SIGTERM ends it after the batch under way; the next run goes on from the checkpoint. How far it is behind
    shows in `millstream group lag NAME`.
    """
    from millstream.cli.signals import Interrupts
    from millstream.pipeline.engine import end_engine, start_engine
    from millstream.pipeline.expressions import ExpressionError, duration_ms
    from millstream.pipeline.job import Job, Settings
    from millstream.pipeline.load import load_topology
    from millstream.pipeline.session import is_local

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
    flow = load_topology(Path(pipeline), name)
    totals = Totals()
    job = Job(
        flow,
        Settings(
            connection,
            checkpoint or f".millstream/{flow.name}",
            views=views,
            trigger=trigger,
            available_now=available_now,
            create_topics=create_topics,
            new_ledger=new_ledger,
            transaction_timeout_s=timeout_s,
            on_progress=totals.show,
            on_trouble=note,
        ),
    )
    for warning in flow.check():
        note(warning)
    for topic in job.prepare():
        print(f"created topic {topic}")
    if flow.guarantee != "at-least-once":
        options.setdefault("spark.task.maxFailures", "1")  # a task that is tried again may write twice
    if flow.guarantee == "exactly-once":
        options.setdefault("spark.stage.maxConsecutiveAttempts", "1")
    if not is_local(master):
        # Spark's default of 200 tasks a stage would cost seconds a batch; more than there are buckets of keys
        # would have nothing to do.
        options.setdefault("spark.sql.shuffle.partitions", str(flow.buckets))
    home = job.checkpoint.local or Path(tempfile.mkdtemp(prefix=f"millstream-{flow.name}-"))
    with Interrupts() as interrupts:
        engine = start_engine(flow.name, master=master, log_file=home / "spark.log", settings=options, ui=ui)
        session = _wait(engine, interrupts)
        if session is None:
            return 130
        try:
            with spinner("planning the pipeline"):
                job.start(session)
            print(_started(job), flush=True)
            return _watch(job, totals, interrupts)
        finally:
            job.close()
            end_engine(session)


class Totals:
    """Prints a line a batch, and adds up."""

    def __init__(self) -> None:
        self.batches = self.rows = self.rejected = 0

    def show(self, progress: Progress) -> None:
        self.batches += 1
        self.rows += progress.rows_in
        self.rejected += progress.rejected
        if progress.rows_in or any(progress.rows_out.values()):
            print(progress.line(), flush=True)


def _started(job: Job) -> str:
    from millstream.pipeline.views import shown

    lines = [f"{job.flow.name} is running ({job.flow.guarantee}); Ctrl-C ends it after the batch under way"]
    if job.plan.views:
        lines.append(f"views ({', '.join(job.plan.views)}) in {shown(job.views)}")
    return "\n".join(lines)


def _wait(engine: Future[SparkSession], interrupts: Interrupts) -> SparkSession | None:
    """The session, once it is there; None if the user did not want to wait."""
    began = time.monotonic()
    with spinner("starting Spark"):
        while not engine.done():
            if interrupts:
                return None
            time.sleep(0.05)
    session = engine.result()
    print(f"Spark {session.version} started in {time.monotonic() - began:.0f} s", flush=True)
    return session


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Something that moves, with the seconds so far; one plain line where there is no terminal."""
    if not sys.stdout.isatty():
        print(f"{what} ...", flush=True)
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def _watch(job: Job, totals: Totals, interrupts: Interrupts) -> int:
    while job.running and not interrupts:
        time.sleep(0.1)
        if (error := job.failed()) is not None:
            job.stop()
            raise error
    if interrupts:
        print("stopping after this batch ...", flush=True)
        seen = interrupts.count
        job.stop(patience=60)
        if interrupts.count > seen:
            os._exit(130)  # asked twice
    if (error := job.failed()) is not None:
        raise error
    ending = (
        f"{count(totals.rows, 'record')} in {count(totals.batches, 'batch').replace('batchs', 'batches')}"
    )
    if totals.rejected:
        ending += f", {totals.rejected:,} rejected"
    if job.unkeyed:
        ending += f", {count(job.unkeyed, 'row')} without a key left out of the views"
    print(f"{job.flow.name} ended: {ending}", flush=True)
    return 0
