"""``millstream run``: runs a pipeline on Spark."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from millstream.cli.run.options import (
    AvailableNowOption,
    CheckpointOption,
    CreateTopicsOption,
    FollowOption,
    FromOption,
    LeaveOpenOption,
    MasterOption,
    Mode,
    NameOption,
    NewLedgerOption,
    NoStatusOption,
    OutputPrefixOption,
    PipelineArgument,
    RebuildOption,
    ResetOperatorOption,
    SkipLostOption,
    SparkOption,
    TransactionTimeoutOption,
    TriggerOption,
    UiOption,
    ViewsOption,
    WatchOption,
    milliseconds,
    position,
)
from millstream.cli.run.progress import Printer, ProgressFormat, ProgressOption
from millstream.cli.run.restart import MaxRestartsOption, Restart, RestartOption, Restarts
from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import connected, pairs
from millstream.cli.terminal.output import note
from millstream.client.connect import Connection

if TYPE_CHECKING:
    from millstream.pipeline.dsl.topology import Topology

app = App()


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
        ("millstream run fraud.py --rebuild", "rebuild its views, swap them in, and continue"),
    )
)
@connected
def run(
    context: typer.Context,
    connection: Connection,
    pipeline: PipelineArgument,
    checkpoint: CheckpointOption = None,
    views: ViewsOption = None,
    master: MasterOption = "local[*]",
    available_now: AvailableNowOption = False,
    leave_open: LeaveOpenOption = False,
    trigger: TriggerOption = None,
    from_: FromOption = None,
    output_prefix: OutputPrefixOption = None,
    follow: FollowOption = False,
    rebuild: RebuildOption = False,
    watch: WatchOption = False,
    create_topics: CreateTopicsOption = False,
    new_ledger: NewLedgerOption = False,
    reset_operator: ResetOperatorOption = None,
    skip_lost: SkipLostOption = False,
    transaction_timeout: TransactionTimeoutOption = "5m",
    spark: SparkOption = None,
    no_status: NoStatusOption = False,
    ui: UiOption = False,
    restart: RestartOption = Restart.NEVER,
    max_restarts: MaxRestartsOption = 10,
    progress: ProgressOption = ProgressFormat.LINE,
    name: NameOption = None,
) -> int:
    """Run a pipeline on Spark until Ctrl-C, and print a line for each batch.

    The file is checked before Spark starts. Missing output topics are created. Ctrl-C or SIGTERM stops the
    job after the current batch, and the next run continues from the checkpoint. `millstream job list` shows
    how far the job is behind, and `millstream job stop` ends it from another terminal.
    """
    import pyspark  # noqa: F401  (fails here if missing, before the broker is queried and topics are created)

    from millstream.cli.run.end_requests import EndRequests, check_file
    from millstream.cli.run.running import run_job, run_watched
    from millstream.pipeline.dsl.load import load_topology, user_modules
    from millstream.pipeline.run.engine import Engine
    from millstream.pipeline.run.reporting.status_writer import StatusWriter
    from millstream.pipeline.run.settings import JobSettings
    from millstream.pipeline.run.shadow_copy import write_elsewhere

    mode = Mode(
        rebuild=rebuild,
        watch=watch,
        output_prefix=output_prefix,
        follow=follow,
        checkpoint=checkpoint,
        leave_open=leave_open,
        available_now=available_now,
        restarts=restart is not Restart.NEVER,
    )
    mode.check()
    printer = Printer(progress)
    settings = JobSettings(
        connection,
        checkpoint or "",
        views=views,
        trigger=None if trigger is None else f"{milliseconds(trigger, '--trigger')} milliseconds",
        transaction_timeout_s=milliseconds(transaction_timeout, "--transaction-timeout") / 1000,
        available_now=mode.is_bounded,
        create_topics=create_topics,
        new_ledger=new_ledger or watch,
        start=None if from_ is None else position(from_),
        reset=tuple(reset_operator or ()),
        skip_lost=skip_lost,
        on_progress=printer.show,
        on_trouble=note,
    )
    engine = Engine(master, pairs(spark or (), "--spark"), ui)
    if progress is ProgressFormat.JSON:
        # Everything meant for people goes to standard error, including a pipeline's own print().
        context.with_resource(redirect_stdout(sys.stderr))

    file = Path(pipeline)
    loaded = ""  # the topology's name in the file

    def load() -> Topology:
        nonlocal loaded
        for module in user_modules():  # of an earlier load
            del sys.modules[module]
        flow = load_topology(file, name)
        loaded = flow.name
        if output_prefix is not None:
            write_elsewhere(flow, output_prefix)
        return flow

    requests = EndRequests(None if watch else lambda: check_file(file, name, loaded))
    last: StatusWriter | None = None

    def status() -> StatusWriter | None:
        nonlocal last
        if not no_status:
            previous = None if last is None else last.run
            last = StatusWriter(
                connection, say=note, commanded=requests, previous=previous, retries=mode.restarts
            )
        return last

    if watch:
        return run_watched(file, load, settings, engine, status, requests)
    restarts = None if restart is Restart.NEVER else Restarts(max_restarts)
    return run_job(
        load,
        settings,
        engine,
        status,
        printer,
        requests,
        rebuild=rebuild,
        finish=not leave_open,
        restarts=restarts,
    )
