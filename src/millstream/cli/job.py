"""``millstream job``: shows what runs where, and stops and restarts jobs wherever they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import connected
from millstream.cli.terminal.output import Output, OutputOption, note, say, show_json, show_table
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError
from millstream.core.units import duration_text

if TYPE_CHECKING:
    from millstream.jobs.board import JobRun
    from millstream.jobs.control import Pending
    from millstream.jobs.reader import JobReader
    from millstream.jobs.report import Action

app = App(help="See what runs where, and stop and restart jobs from any terminal or machine.")

RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="The run, if several run under this name: its id, or the beginning of it.",
        show_default=False,
    ),
]
JobsArgument = Annotated[list[str], typer.Argument(metavar="JOB...", help="The jobs.", show_default=False)]
WaitOption = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Wait until it is done. With --no-wait, only send the command."),
]
TimeoutOption = Annotated[
    str,
    typer.Option("--timeout", metavar="TIME", help="How long to wait: 90s, 5m. The command stays in force."),
]


@app.command(
    "list",
    epilog=examples(
        ("millstream job list", "every job that has reported, with its state and lag"),
        ("millstream job list --output json", "for a program"),
    ),
)
@connected
def list_(connection: Connection, output: OutputOption = Output.TABLE) -> None:
    """List jobs: what runs where, since when, how far behind it is, and what went wrong last.

    Jobs report this themselves in the topic millstream.jobs. A job in the state "silent" has not been heard
    from for several times as long as it may be silent: it was killed, or is cut off from the broker. "Since"
    is when a job that runs was started, and when any other one ended or was last heard from.
    """
    with _read(connection) as reader:
        found = [(run, reader.lag(run)) for name in reader.board.names() for run in reader.runs(name)]
    if output is Output.JSON:
        show_json([_json(run, lag) for run, lag in found])
    elif not found:
        note("no job has reported to this broker")
    else:
        show_table(
            ["job", "state", "since", "host", "pid", "lag", "last error"],
            [
                [
                    run.status.job,
                    run.state,
                    _moment(_since(run)),
                    run.status.host,
                    run.status.pid,
                    lag,
                    _short(run.status.errors[0].what) if run.status.errors else None,
                ]
                for run, lag in found
            ],
        )


@app.command(
    epilog=examples(
        ("millstream job show fraud", "its queries, views and errors"),
        ("millstream job show fraud --output json", "everything that it reports"),
    )
)
@connected
def show(
    connection: Connection,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job.", show_default=False)],
    run: RunOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a job: where it runs, its queries with their lag, its views, its errors and the last command."""
    from millstream.jobs.control import chosen

    with _read(connection) as reader:
        found = chosen(reader.runs(job), job, reader.board.names(), run)
        lag = reader.lag(found)
    status = found.status
    if output is Output.JSON:
        show_json(_json(found, lag) | {"status": asdict(status)})
        return
    say(_headline(found))
    say(f"run {status.run}, {status.guarantee}, lag {'unknown' if lag is None else format(lag, ',')}")
    if status.views:
        say(f"views {', '.join(status.views)} in {status.views_at}")
    if (command := status.command) is not None:
        answer = f", refused: {command.refused}" if command.refused else ""
        say(f"{command.action} asked for by {command.by}{answer}")
    show_table(
        ["query", "reads", "writes", "batches", "records/s", "lag", "watermark", "batch ms"],
        [
            [
                query.name,
                ", ".join(query.reads),
                ", ".join(query.writes) or None,
                query.batches,
                round(query.per_second),
                query.lag,
                None if query.watermark_ms is None else _moment(query.watermark_ms),
                query.batch_ms,
            ]
            for query in status.queries
        ],
    )
    for error in status.errors:
        times = f", {error.times} times" if error.times > 1 else ""
        where = f"{error.where}: " if error.where else ""
        say(f"{_moment(error.at_ms)}{times}: {where}{error.what}")


@app.command(
    epilog=examples(
        ("millstream job stop fraud", "end it after its current batch, and wait for that"),
        ("millstream job stop fraud pricing --no-wait", "several, without waiting"),
        ("millstream job stop fraud --output json", "what came of it, for a program"),
    )
)
@connected
def stop(
    connection: Connection,
    jobs: JobsArgument,
    run: RunOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = "5m",
    output: OutputOption = Output.TABLE,
) -> int:
    """Stop jobs cleanly, wherever they run: each ends after its current batch, as with Ctrl-C.

    The next run of a job continues where it stopped. The command goes through the topic
    millstream.jobs.commands, so the broker's address is all that this terminal and the job must share. It is
    for the run that is alive now: a later run never follows it. A job that is over counts as stopped. The
    exit code is 1 if a job did not answer, did not stop in time, or ended with an error.
    """
    return _command(connection, jobs, "stop", run, wait, timeout, output)


@app.command(
    epilog=examples(
        ("millstream job restart fraud", "end it, read its file again, and start it"),
        ("millstream job restart fraud --timeout 10m", "for a cluster on which Spark starts slowly"),
    )
)
@connected
def restart(
    connection: Connection,
    jobs: JobsArgument,
    run: RunOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = "5m",
    output: OutputOption = Output.TABLE,
) -> int:
    """Restart jobs in place: each ends after its current batch, and its own process starts it again.

    The process reads the pipeline's file again, starts Spark again, and continues from the checkpoint. It
    keeps its terminal, its supervisor and its options. The file is checked first: if it has a mistake, the
    job continues as before, and the mistake is printed here. A job whose process is gone can't be restarted;
    start it with `millstream run`.
    """
    return _command(connection, jobs, "restart", run, wait, timeout, output)


def _command(
    connection: Connection,
    names: Sequence[str],
    action: Action,
    run: str | None,
    wait_: bool,
    timeout: str,
    output: Output,
) -> int:
    from millstream.client.text.position import parse_duration_ms
    from millstream.jobs.control import CommandRefused, chosen, obstacle, send, wait, whoami

    timeout_s = parse_duration_ms(timeout) / 1000
    names = list(dict.fromkeys(names))
    if run is not None and len(names) > 1:
        raise ConfigError("--run is for one job at a time")
    with _read(connection) as reader:
        found = [chosen(reader.runs(name), name, reader.board.names(), run) for name in names]
        if refused := [f"{each.status.job}: {why}" for each in found if (why := obstacle(each, action))]:
            for line in refused[:-1]:
                note(line)
            raise CommandRefused(refused[-1] + ("; nothing was sent" if len(found) > 1 else ""))
        pending = [send(connection, reader, each, action, whoami()) for each in found]
        try:
            outcomes = (
                wait(reader, pending, timeout_s, _taken) if wait_ else [each.sent() for each in pending]
            )
        except KeyboardInterrupt:
            note("no longer waiting; the command was sent and stays in force")
            return 130
    if output is Output.JSON:
        show_json([asdict(each) for each in outcomes])
    else:
        for each in outcomes:
            (say if each.good else note)(f"{each.job} {each.said}")
    return 0 if all(each.good for each in outcomes) else 1


# ---- what the commands share -------------------------------------------------------------------------


def _read(connection: Connection) -> JobReader:
    """The jobs of a broker. If the clocks of this machine and the broker may differ, listens for a moment."""
    from millstream.jobs.reader import JobReader

    reader = JobReader(connection)
    reader.read()
    if doubtful := reader.in_doubt():
        names = ", ".join(run.status.job for run in doubtful)
        note(f"listening for a few seconds whether {names} is alive ...")
        reader.settle()
    return reader


def _taken(each: Pending) -> None:
    note(f"{each.command.job} has taken the command, and ends after its current batch ...")


def _since(run: JobRun) -> int:
    if run.runs:
        return run.status.started_ms
    return run.heard_ms if run.state == "silent" else run.status.since_ms


def _moment(at_ms: int) -> str:
    from millstream.client.text.template import utc

    return utc(at_ms // 1000 * 1000).replace(".000Z", "Z")


def _short(text: str, most: int = 60) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def _headline(run: JobRun) -> str:
    status = run.status
    if run.state == "silent":
        return (
            f"{status.job} has not been heard from for {duration_text(run.silent_ms)}: {run.where} was"
            " killed, or is cut off from the broker"
        )
    reason = f": {status.reason}" if status.reason else ""
    if run.runs:
        return f"{status.job} is {run.state} as {run.where}, since {_moment(status.started_ms)}{reason}"
    return f"{status.job} {run.state} at {_moment(status.since_ms)} ({run.where}){reason}"


def _json(run: JobRun, lag: int | None) -> dict[str, Any]:
    status = run.status
    return {
        "job": status.job,
        "run": status.run,
        "state": run.state,
        "reason": status.reason,
        "host": status.host,
        "pid": status.pid,
        "started_ms": status.started_ms,
        "since_ms": _since(run),
        "heard_ms": run.heard_ms,
        "silent_ms": run.silent_ms,
        "guarantee": status.guarantee,
        "lag": lag,
        "last_error": asdict(status.errors[0]) if status.errors else None,
        "takes": status.takes,
        "command": None if status.command is None else asdict(status.command),
    }
