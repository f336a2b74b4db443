"""``millstream tail``: sends the lines of log files to a topic."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import complete_topic, connected
from millstream.cli.terminal.output import note
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError
from millstream.core.units import bytes_text, count, duration_text

if TYPE_CHECKING:
    from millstream.integration.files.tail import Tail

app = App()

FilesArgument = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Files, or patterns with * and ? in quotes.", show_default=False),
]
ToOption = Annotated[
    str,
    typer.Option("--to", metavar="TOPIC", help="The topic to write to.", autocompletion=complete_topic),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-F",
        metavar="FORMAT",
        help="common or combined (Apache, nginx), json, logfmt, regex:PATTERN with named groups, or text "
        "(lines unchanged).",
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", metavar="FIELD", help="The field to use as the record's key.")
]
TimeFieldOption = Annotated[
    str | None,
    typer.Option(
        "--time-field",
        metavar="FIELD",
        help="The field to use as the record's timestamp. [default: time, timestamp, @timestamp, ts, date]",
    ),
]
RejectsOption = Annotated[
    str | None,
    typer.Option(
        "--rejects",
        metavar="TOPIC",
        help="The topic for lines that don't match the format. [default: the same topic, as JSON with "
        "raw and error]",
        autocompletion=complete_topic,
    ),
]
FromStartOption = Annotated[
    bool,
    typer.Option(
        "--from-start",
        help="On the very first start, read existing files from their start instead of their end.",
    ),
]
OnceOption = Annotated[
    bool,
    typer.Option("--once", help="Read what is there, from the last position or the start, and stop."),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The name under which progress is kept. Only one process may use it at a time. [default: "
        "derived from machine, topic and files]",
    ),
]
CreateOption = Annotated[bool, typer.Option("--create", help="Create the topics if they do not exist.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing unless something fails.")]


@app.command(
    epilog=examples(
        ("millstream tail access.log --to web", "new lines, unchanged"),
        ("millstream tail access.log --to web --format combined", "parsed, as JSON with a timestamp"),
        ("millstream tail '/var/log/app/*.log' --to app --format json --key user", "keyed by a field"),
        ("millstream tail access.log --to web --from-start --once", "what is there, and stop"),
        (
            r"millstream tail app.log --to app --format 'regex:(?P<time>\S+) (?P<level>\w+) (?P<text>.*)'",
            "any other format",
        ),
        (
            "millstream tail app.log --to app --format logfmt --rejects app.bad",
            "lines that are not logfmt go to another topic",
        ),
    )
)
@connected
def tail(
    connection: Connection,
    files: FilesArgument,
    to: ToOption,
    format: FormatOption = "text",
    key: KeyOption = None,
    time_field: TimeFieldOption = None,
    rejects: RejectsOption = None,
    from_start: FromStartOption = False,
    once: OnceOption = False,
    name: NameOption = None,
    create: CreateOption = False,
    quiet: QuietOption = False,
) -> int:
    """Send the lines of log files to a topic, each exactly once, through rotation, truncation and kill -9.

    Lines are written in transactions together with the position in each file, so readers of committed records
    see each line exactly once. Rotated files are found under their new names, even if copied or compressed
    (.gz), and read to the end. On the very first start, existing files are read from their end. A line that
    does not match the format is kept, with the reason. Ctrl-C ends the command cleanly, and the next start
    continues from there.
    """
    from millstream.core.clock import SystemClock
    from millstream.core.interrupts import Interrupts
    from millstream.integration.files.parse import parser
    from millstream.integration.files.tail import Tail, default_name

    patterns = [os.path.abspath(file) for file in files]
    parse = parser(format, time_field=time_field)
    if key is not None and format == "text":
        raise ConfigError("--key names a field, and lines of --format text have none")
    tailing = Tail(
        connection,
        patterns,
        to,
        parse,
        SystemClock(),
        name or default_name(to, patterns),
        rejects=rejects,
        key=key,
        blank_lines=format == "text",
        from_start=from_start,
        once=once,
        complain=note,
    )
    tailing.find_topics(create=create)
    show = sys.stderr.isatty() and not quiet
    with Interrupts() as interrupts:
        try:
            tailing.run(lambda: bool(interrupts), lambda: _show(tailing) if show else None)
        finally:
            if show and tailing.counters.lines:
                print(file=sys.stderr)
    _sum_up(tailing, format.partition(":")[0], quiet=quiet)
    return 0


def _show(tailing: Tail) -> None:
    done = tailing.counters
    line = f"{count(done.lines, 'line')}, {bytes_text(done.bytes)}, {os.path.basename(tailing.at)}"
    print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _sum_up(tailing: Tail, format: str, *, quiet: bool) -> None:
    done, topic = tailing.counters, tailing.topic
    if not quiet:
        apart = f", {done.unread:,} of them not in format {format}" if done.unread else ""
        note(f"sent {count(done.lines, 'line')} to {topic}{apart}")
    if (retention_ms := tailing.too_short_retention_ms()) is not None:
        note(
            f"some lines are older than the {duration_text(retention_ms)} that {topic} keeps (retention.ms):"
            " they will be deleted soon"
        )
