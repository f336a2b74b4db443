"""``millstream log``: what can be done with a stopped broker's directory."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.help import App, examples
from millstream.cli.output import Output, OutputOption, show_json
from millstream.units import bytes_text, count

if TYPE_CHECKING:
    from millstream.log.check import Finding, Progress, Summary

app = App(help="A stopped broker's data directory: check it.")


@app.callback()
def _group() -> None:
    """Makes ``check`` a command of a group, though it is the only one so far."""


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
    """Read every record in a directory and report what is damaged; nothing is changed.

    The exit code is 1 if records are damaged or missing, or an index of aborted transactions is wrong. What a
    crash cut off at the end of a partition, and other indexes that are wrong, are reported too, but they mend
    themselves at the next start and lose nothing that was acknowledged.
    """
    from millstream.log.check import Finding, Progress, check_directory

    findings: list[Finding] = []
    summary: Summary | None = None
    with _progress() as advance:
        for item in check_directory(directory):
            if isinstance(item, Progress):
                advance(item)
            elif isinstance(item, Finding):
                findings.append(item)
                if output is Output.TABLE:
                    print(f"{item.kind}: {item}", flush=True)
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
    return 1 if any(finding.loses_records or finding.misleads_readers for finding in findings) else 0


def _show(summary: Summary) -> None:
    print(
        f"{count(summary.partitions, 'partition')}, {count(summary.segments, 'segment')}, "
        f"{count(summary.records, 'record')}, {bytes_text(summary.bytes)}; "
        + ("shut down in order" if summary.clean_shutdown else "not shut down in order")
    )
    if summary.open_transactions or summary.aborted_transactions:
        print(
            f"{count(summary.open_transactions, 'open transaction')}, "
            f"{count(summary.aborted_transactions, 'aborted transaction')}"
        )
    if summary.sound:
        print("everything is in order")
        return
    for number, noun, meaning in (
        (summary.damage, "damaged place", "these records are lost, the rest stays readable"),
        (summary.gap, "gap", "offsets that are in no file"),
        (summary.torn, "torn end", "cut off at the next start; nothing acknowledged with acks=all is lost"),
        (summary.transactions, "wrong entry", "readers of committed records may be given aborted ones"),
        (summary.index, "wrong index", "built anew when it is needed"),
    ):
        if number:
            print(f"{count(number, noun)}: {meaning}")


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error, if a person is looking."""
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
