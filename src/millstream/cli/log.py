"""``millstream log``: checks and repairs the data directory of a stopped broker."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.output import Output, OutputOption, say, show_json
from millstream.core.units import bytes_text, count

if TYPE_CHECKING:
    from millstream.log.recovery.check import CheckProgress, Finding, Summary

app = App(help="Check and repair the data directory of a stopped broker.")


@app.command(
    epilog=examples(
        ("millstream log check ./data", "read everything, and say what is wrong"),
        ("millstream log check ./data --output json | jq .findings", "for a program"),
    )
)
def check(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The data directory of a broker that is not running.")
    ],
    output: OutputOption = Output.TABLE,
) -> int:
    """Read every record in a data directory and report damage. Changes nothing.

    The exit code is 1 if records are damaged or missing, if an index of aborted transactions is wrong, or if
    the catalogue is damaged. A write that a crash cut off at the end of a partition, and other wrong indexes,
    are reported too. The next start repairs them, and no record acknowledged with acks=all is lost.
    """
    from millstream.broker.catalogue.stopped_broker import read_catalogue
    from millstream.log.recovery.check import CheckProgress, Finding, check_directory

    catalogue = read_catalogue(directory)
    findings: list[Finding] = []
    summary: Summary | None = None
    with _progress() as advance:
        for item in check_directory(
            directory,
            expected=catalogue.expected,
            topic_ids=catalogue.topic_ids,
            first=catalogue.findings(directory),
        ):
            if isinstance(item, CheckProgress):
                advance(item)
            elif isinstance(item, Finding):
                findings.append(item)
                if output is Output.TABLE:
                    say(f"{item.kind}: {item}", flush=True)
            else:
                summary = item
    assert summary is not None
    if output is Output.JSON:
        show_json(
            {
                "summary": dataclasses.asdict(summary),
                "findings": [dataclasses.asdict(finding) for finding in findings],
            }
        )
    else:
        _show(summary)
    bad = any(f.loses_records or f.misleads_readers or f.stops_the_broker for f in findings)
    return 1 if bad else 0


@app.command(
    "accept-loss",
    epilog=examples(("millstream log accept-loss ./data orders-0", "accept the loss of its missing records")),
)
def accept_loss(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The data directory of a broker that is not running.")
    ],
    partitions: Annotated[
        list[str], typer.Argument(metavar="PARTITION...", help="Partitions, written as TOPIC-NUMBER.")
    ],
) -> None:
    """Bring partitions back online that are offline because records are missing.

    From the next start on, their remaining records are served again. New records continue after the highest
    known offset, so no offset is used twice: reading a missing record gives an error, never another record.
    """
    from millstream.broker.catalogue.stopped_broker import read_catalogue
    from millstream.core.errors import DataDirectoryError
    from millstream.log.recovery.check import accept_losses

    catalogue = read_catalogue(directory)
    if catalogue.problem:
        raise DataDirectoryError(catalogue.problem)
    for finding in accept_losses(directory, partitions, catalogue.expected, topic_ids=catalogue.topic_ids):
        print(finding.message.partition(". Stop the broker")[0])
    print(
        f"accepted for {count(len(partitions), 'partition')}; the next start continues without these records"
    )


@app.command(
    "rebuild-catalogue",
    epilog=examples(
        ("millstream log rebuild-catalogue ./data", "for a broker that reports a damaged catalogue")
    ),
)
def rebuild_catalogue(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The data directory of a broker that is not running.")
    ],
) -> None:
    """Rebuild a damaged or missing catalogue, and report what could not be recovered.

    Topics, their ids and their partitions come from the directories of the logs. Settings, committed offsets,
    users and quotas come from the broker's backup of the catalogue. The old file is kept under another name.
    Records are not touched.
    """
    from millstream.broker.catalogue.rebuild import rebuild_catalogue as rebuild

    result = rebuild(directory)
    source = "the directories of the logs"
    if result.backup_time is not None:
        source += f" and the copy of {result.backup_time:%Y-%m-%d %H:%M:%S} UTC"
    print(
        f"rebuilt from {source}: {count(result.topics, 'topic')} with {count(result.partitions, 'partition')}"
    )
    if result.kept_as:
        print(f"the old catalogue is kept as {directory / result.kept_as}")
    print("not recovered:")
    for line in result.unrecovered:
        print(f"- {line}")


def _show(summary: Summary) -> None:
    say(
        f"{count(summary.partitions, 'partition')}, {count(summary.segments, 'segment')}, "
        f"{count(summary.records, 'record')}, {bytes_text(summary.bytes)}; "
        + ("shut down cleanly" if summary.clean_shutdown else "not shut down cleanly")
    )
    if summary.open_transactions or summary.aborted_transactions:
        say(
            f"{count(summary.open_transactions, 'open transaction')}, "
            f"{count(summary.aborted_transactions, 'aborted transaction')}"
        )
    if summary.sound:
        say("everything is in order")
        return
    for number, noun, meaning in (
        (summary.catalogue, "damaged catalogue", "the broker does not start with it"),
        (summary.short, "short partition", "offline until its files are back or `log accept-loss` names it"),
        (summary.damage, "damaged place", "these records are lost, the rest stays readable"),
        (summary.gap, "gap", "offsets that are in no file"),
        (summary.torn, "torn end", "cut off at the next start; nothing acknowledged with acks=all is lost"),
        (summary.transactions, "wrong entry", "readers of committed records may be given aborted ones"),
        (summary.index, "wrong index", "rebuilt when needed"),
    ):
        if number:
            say(f"{count(number, noun)}: {meaning}")


@contextmanager
def _progress() -> Iterator[Callable[[CheckProgress], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda progress: bar.update(
            task, description=progress.partition, completed=progress.bytes_read, total=progress.bytes_total
        )
