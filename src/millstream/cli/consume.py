"""``millstream consume``: prints records of topics as lines, by template or as JSON."""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.schema import DEFAULT_REGISTRY, RegistryOption
from millstream.cli.terminal.decoding import Decode, Decoding
from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import complete_topic, connected
from millstream.cli.terminal.output import for_terminal, nobody_reads, note
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError, DataLoss
from millstream.core.units import count

if TYPE_CHECKING:
    from millstream.client.librdkafka.consume import BatchConsumer, Gap, GroupConsumer
    from millstream.client.protocol.unreadable import Unreadable
    from millstream.client.text.position import Range
    from millstream.client.text.template import Template
    from millstream.core.interrupts import Interrupts

app = App()


class OutputShape(StrEnum):
    LINES = "lines"
    JSON = "json"


OptionalTopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC...]", help="The topics.", autocompletion=complete_topic, show_default=False
    ),
]
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="FROM[:UNTIL]",
        help="start, end, an offset (47), -3 (three before the end), +3 (three after the start), a time "
        "(@-1h, @2026-01-01, @2026-01-01T10:30, @1699999999000), or a range (10:20, @-1h:end, :end). "
        "Reading stops before UNTIL. [default: end]",
    ),
]
NumberOption = Annotated[
    int | None, typer.Option("--number", "-n", min=1, metavar="N", help="Stop after this many records.")
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="TEMPLATE",
        help="%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time in ms, %D date "
        "and time, %K and %S sizes in bytes, %J all as JSON, %% percent; \\n \\t \\xNN. "
        "[default: %s\\n]",
    ),
]
ShapeOption = Annotated[
    OutputShape,
    typer.Option(
        "--output", metavar="lines|json", help="Lines in the --format, or one JSON object per line."
    ),
]
JsonOption = Annotated[bool, typer.Option("-J", help="The same as --output json.")]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", help="Read only this partition. May be repeated."),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help="Read as a member of this group: share its partitions, and commit the offsets read.",
    ),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="REGEX",
        help="Read every topic whose whole name matches, including new ones.",
    ),
]
DecodeOption = Annotated[
    Decode | None,
    typer.Option(
        "--decode",
        metavar="auto|avro|protobuf|json",
        help="Decode values by the schema id at their start. auto: decode keys and values that have one.",
    ),
]
SkipUnreadableOption = Annotated[
    bool,
    typer.Option(
        "--skip-unreadable",
        help="Report unreadable records and continue after them, instead of stopping.",
    ),
]

_BATCH = 2000


@app.command(
    epilog=examples(
        ("millstream consume payments", "new records, like tail -f"),
        ("millstream consume payments -o start", "everything, then new records"),
        ("millstream consume payments -o :end", "everything there is now, and stop"),
        ("millstream consume payments -o -3 -n 3", "the last three of each partition, at most three in all"),
        ("millstream consume payments -o @-1h:end -J | jq .value", "the last hour, as JSON"),
        ("millstream consume payments -f '%t[%p]@%o %D %k=%s\\n' -o 10:20", "offsets 10 to 19, by template"),
        ("millstream consume payments --decode auto -J", "values in Avro, Protobuf or JSON with a schema"),
        ("millstream consume --pattern 'pay.*' --group audit -o start", "as a member of a group"),
    )
)
@connected
def consume(
    connection: Connection,
    topics: OptionalTopicsArgument = None,
    offset: OffsetOption = None,
    number: NumberOption = None,
    template: TemplateOption = None,
    output: ShapeOption = OutputShape.LINES,
    as_json: JsonOption = False,
    partition: PartitionsOption = None,
    group: GroupOption = None,
    pattern: PatternOption = None,
    decode: DecodeOption = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    skip_unreadable: SkipUnreadableOption = False,
) -> int:
    """Print records: new ones like tail -f, from any point in the past, or a range.

    With --group, reading starts at the group's committed offsets, and -o start or end applies to partitions
    without one. Ctrl-C or `| head` ends the command cleanly: the group's offsets are committed.
    """
    from millstream.client.librdkafka.admin import Admin
    from millstream.client.librdkafka.range_reader import RangeReader

    wanted = _range(offset)
    expression = _expression(pattern)
    if not topics and expression is None:
        raise ConfigError("say which topics to read, or give a --pattern")
    shape = _shape(template, decode, registry, as_json=as_json or output is OutputShape.JSON)
    on_unreadable = _say_unreadable if skip_unreadable else None
    reader: BatchConsumer
    with Admin(connection) as admin:
        names = list(dict.fromkeys(topics or ()))
        admin.describe_topics(names)  # for an unknown topic, the error lists the names that exist
        if group is None:
            reader = RangeReader(
                admin,
                names,
                expression,
                wanted,
                partition or (),
                on_gap=_say_gap,
                on_unreadable=on_unreadable,
            )
    if group is not None:
        if partition:
            raise ConfigError("--partition and --group exclude each other: the group assigns the partitions")
        names += [] if pattern is None else [f"^({pattern})$"]
        reader = _member(connection, group, names, wanted, on_unreadable)
    return _print(reader, shape, number)


def _shape(
    template: str | None, decode: Decode | None, registry: str, *, as_json: bool
) -> Template | Decoding:
    from millstream.client.text.template import Template

    if as_json:
        if template is not None:
            raise ConfigError("--format and --output json exclude each other; %J in a template is the JSON")
        template = "%J\\n"
    plain = Template(template if template is not None else "%s\\n", safe=sys.stdout.isatty())
    return plain if decode is None else Decoding(plain, decode, registry)


def _range(offset: str | None) -> Range:
    from millstream.client.text.position import END, Range, parse_range
    from millstream.core.clock import SystemClock

    return Range(END) if offset is None else parse_range(offset, SystemClock().now_ms())


def _member(
    connection: Connection,
    group: str,
    topics: Sequence[str],
    wanted: Range,
    on_unreadable: Callable[[Unreadable], None] | None,
) -> GroupConsumer:
    from millstream.client.librdkafka.consume import GroupConsumer

    if wanted.stop is not None or wanted.start.kind not in ("start", "end"):
        raise ConfigError(
            f"a group reads from its committed offsets; move them with "
            f"`millstream group seek {group} --to {wanted.start}`"
        )
    from_start = wanted.start.kind == "start"
    return GroupConsumer(connection, group, topics, from_start=from_start, on_unreadable=on_unreadable)


def _expression(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"--pattern {pattern!r} is not a regular expression: {error}") from None


def _say_unreadable(unreadable: Unreadable) -> None:
    note(f"{unreadable}; continuing at {unreadable.until}")


def _say_gap(gap: Gap) -> None:
    place, first, until = gap
    if until < first:
        note(
            f"{place} now ends before offset {first}: created again, or cut; reading from its start, {until}"
        )
    else:
        note(f"{place}: offsets {first} to {until - 1} are no longer there; continuing at {until}")


def _print(reader: BatchConsumer, shape: Template | Decoding, number: int | None) -> int:
    """Write records until there are enough, the range is read, the user interrupts or the output closes."""
    from millstream.core.interrupts import Interrupts

    out = sys.stdout.fileno()
    # A terminal must not obey control characters in records. Files and pipes get the bytes unchanged.
    shown = for_terminal if sys.stdout.isatty() else bytes
    left = number
    with Interrupts() as interrupts, reader:
        while not interrupts and left != 0 and not reader.finished:
            try:
                records = reader.read(_BATCH if left is None else min(left, _BATCH), 0.2)
            except DataLoss as problem:
                raise DataLoss(f"{problem}; --skip-unreadable continues after them") from None
            if not records:
                if nobody_reads():
                    break
                continue
            try:
                if not _write(out, shown(shape.render(records)), interrupts):
                    break
            except BrokenPipeError:
                break
            reader.done(records)
            if left is not None:
                left -= len(records)
    if left and number is not None and not interrupts and reader.finished:
        note(f"only {count(number - left, 'record')} in that range")
    return 0


def _write(out: int, data: bytes, interrupts: Interrupts) -> bool:
    """Write all of ``data``, bypassing Python's buffer: only records that were really written may be
    committed as read.

    False if an interrupt arrived while the reader of a pipe (a pager, say) accepts nothing. A plain write
    would block until the reader continues.
    """
    view = memoryview(data)
    piece = len(view) if stat.S_ISREG(os.fstat(out).st_mode) else select.PIPE_BUF
    while view:
        if select.select([], [out], [], 0.2)[1]:
            view = view[os.write(out, view[:piece]) :]
        elif interrupts:
            return False
    return True
