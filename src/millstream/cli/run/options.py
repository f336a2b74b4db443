"""The options of ``millstream run``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from millstream.core.errors import ConfigError
from millstream.core.units import DurationError, duration_ms

PipelineArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The Python file that defines the topology.", show_default=False)
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Which topology to use, if the file defines several."),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="The directory for the job's progress and state. [default: .millstream/NAME]",
        show_default=False,
    ),
]
ViewsOption = Annotated[
    str | None,
    typer.Option(
        "--views",
        metavar="FILE|URL",
        envvar="MILLSTREAM_VIEWS",
        help="The database for the job's views: a SQLite file or postgresql://... [default: DIR/views.db]",
    ),
]
MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark's master: local[2], spark://host:7077, ...")
]
AvailableNowOption = Annotated[
    bool,
    typer.Option(
        "--available-now",
        help="Process what is in the topics now, close what is still open (windows, waiting rows), and end.",
    ),
]
LeaveOpenOption = Annotated[
    bool,
    typer.Option(
        "--leave-open",
        help="With --available-now: leave what waits for later events open for the next run.",
    ),
]
TriggerOption = Annotated[
    str | None,
    typer.Option(
        "--trigger",
        metavar="DURATION",
        help="Start a batch this often. [default: as soon as the last one is done]",
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="Where the first run starts in its input topics, except those it writes itself: start, an "
        "offset, -3 (three before the end), or a time (@-1d, @2026-01-01).",
    ),
]
OutputPrefixOption = Annotated[
    str | None,
    typer.Option(
        "--output-prefix",
        metavar="TEXT",
        help="Run a copy of the job, with this prefix on its name, output topics and views. The original "
        "is not touched. The copy ends once it has processed what is there now, unless --follow is given.",
    ),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="With --output-prefix: continue with new records.")
]
RebuildOption = Annotated[
    bool,
    typer.Option(
        "--rebuild",
        help="Rebuild the views first, from --from or the start of the topics, next to the current ones. "
        "Then replace those, and take over from the running job.",
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option("--watch", help="Restart whenever the file changes, on a separate scratch checkpoint."),
]
CreateTopicsOption = Annotated[
    bool, typer.Option("--create-topics", help="Also create missing input topics, not only output topics.")
]
NewLedgerOption = Annotated[
    bool,
    typer.Option(
        "--new-ledger",
        help="Ignore which batches the group's offsets say are done, and trust only the checkpoint.",
    ),
]
ResetOperatorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reset-operator",
        metavar="NAME",
        help="Discard the state of an operator that was changed, and start without it. May be repeated.",
    ),
]
SkipLostOption = Annotated[
    bool,
    typer.Option(
        "--skip-lost", help="Continue if records were deleted before they were read, instead of stopping."
    ),
]
TransactionTimeoutOption = Annotated[
    str,
    typer.Option(
        "--transaction-timeout",
        metavar="DURATION",
        help="With exactly-once: the time after which an unfinished transaction is aborted.",
    ),
]
SparkOption = Annotated[
    list[str] | None,
    typer.Option("--spark", metavar="NAME=VALUE", help="A Spark setting. May be repeated."),
]
NoStatusOption = Annotated[
    bool,
    typer.Option(
        "--no-status",
        help="Don't report the job's status in the topic millstream.jobs, which consoles read.",
    ),
]
UiOption = Annotated[bool, typer.Option("--ui", help="Serve Spark's web UI on port 4040.")]


@dataclass(frozen=True, slots=True)
class Mode:
    """The options of a run that may contradict one another."""

    rebuild: bool
    watch: bool
    output_prefix: str | None
    follow: bool
    checkpoint: str | None
    leave_open: bool
    available_now: bool
    restarts: bool

    @property
    def is_bounded(self) -> bool:
        """True if the job processes what is there now, and ends."""
        return self.available_now or (self.output_prefix is not None and not self.follow and not self.watch)

    def check(self) -> None:
        """Raise ConfigError for options that exclude each other."""
        if self.restarts and self.watch:
            raise ConfigError(
                "--restart and --watch exclude each other: a watched job waits for the next edit"
            )
        if self.rebuild and (self.watch or self.output_prefix is not None):
            other = "--watch" if self.watch else "--output-prefix"
            raise ConfigError(
                f"--rebuild and {other} exclude each other: a rebuild takes over from the job itself"
            )
        if self.watch and self.checkpoint is not None:
            raise ConfigError(
                "--watch and --checkpoint exclude each other: every start uses a scratch checkpoint"
            )
        if self.leave_open and not self.is_bounded:
            raise ConfigError(
                "--leave-open requires --available-now: without it, nothing is closed before its time"
            )
        if self.follow and self.output_prefix is None:
            raise ConfigError("--follow requires --output-prefix: without it, a job continues anyway")
        if self.output_prefix == "":
            raise ConfigError("--output-prefix is empty: the copy would write where the original does")


def milliseconds(text: str, option: str) -> float:
    """A duration in an option."""
    try:
        return duration_ms(text)
    except DurationError as error:
        raise ConfigError(f"{option}: {error}") from None


def position(text: str) -> str:
    """A position to start from. A relative time is resolved here, once, so it is the same for all topics."""
    from millstream.client.text.position import parse_position
    from millstream.core.clock import SystemClock

    try:
        return str(parse_position(text, SystemClock().now_ms()))
    except ConfigError as error:
        raise ConfigError(f"--from: {error}") from None
