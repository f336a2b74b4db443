"""``millstream produce``: sends records from standard input or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.schema import DEFAULT_REGISTRY, RegistryOption, open_registry, read_schema
from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import TopicArgument, connected
from millstream.cli.terminal.output import note
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError, MillstreamError, RequestFailed
from millstream.core.units import count

if TYPE_CHECKING:
    from millstream.cli.terminal.input import Input
    from millstream.client.librdkafka.produce import RecordSender
    from millstream.core.interrupts import Interrupts

app = App()


class RecordFormat(StrEnum):
    LINES = "lines"
    JSON = "json"
    RAW = "raw"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


FormatOption = Annotated[
    RecordFormat,
    typer.Option(
        "--format",
        "-F",
        metavar="lines|json|raw",
        help="lines: each line is a value. json: each line is an object with key, value, headers, "
        "partition, timestamp. raw: the whole input is one value.",
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every record.")
]
KeySeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="The text that separates the key from the value in a line.",
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record. May be repeated."),
]
TombstonesOption = Annotated[
    bool,
    typer.Option(
        "--tombstones", "-Z", help="Send an empty value as null (a tombstone), which deletes the key."
    ),
]
PartitionOption = Annotated[
    int,
    typer.Option(
        "--partition", "-p", metavar="N", min=-1, help="The partition; -1 means that the key decides."
    ),
]
TimestampOption = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="TIME",
        help="The timestamp of every record: @2026-01-01, @-1h, or milliseconds since 1970.",
    ),
]
InputFileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="Read this file instead of standard input."),
]
AcksOption = Annotated[
    Acks,
    typer.Option(
        "--acks",
        metavar="0|1|all",
        help="When a record counts as delivered: 0 once sent, 1 once the broker has it, all once it is "
        "safe (synced to disk).",
    ),
]
CompressionOption = Annotated[
    Compression,
    typer.Option("--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd."),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="Give up on a record that is not acknowledged within this time.",
    ),
]
SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Register this schema (.avsc, .json, .proto), and encode the values, given as JSON, with it.",
    ),
]
SubjectOption = Annotated[
    str | None,
    typer.Option(
        "--subject",
        metavar="SUBJECT",
        help="The subject to register the schema under. [default: TOPIC-value]",
    ),
]
MessageOption = Annotated[
    str | None,
    typer.Option(
        "--message",
        metavar="NAME",
        help="The message type of the values, for a .proto file. [default: the first]",
    ),
]
CreateOption = Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing unless something fails.")]


@app.command(
    epilog=examples(
        ("echo hello | millstream produce greetings", "a line is a record's value"),
        ("millstream produce payments --key-separator : < payments.txt", "lines of KEY:VALUE"),
        (
            """echo '{"key": "k", "value": {"n": 1}}' | millstream produce t --format json""",
            "one JSON record",
        ),
        ("millstream produce payments --file big.txt --compression zstd", "with a progress bar"),
        ("millstream consume a -J -o :end | millstream produce b --format json", "copy a topic"),
        (
            """echo '{"card": "c1", "eur": 9.5}' | millstream produce payments --schema payment.avsc""",
            "JSON lines as Avro, their schema registered",
        ),
        ("printf 'k:' | millstream produce t --key-separator : --tombstones", "a null value: delete key k"),
    )
)
@connected
def produce(
    connection: Connection,
    topic: TopicArgument,
    format: FormatOption = RecordFormat.LINES,
    key: KeyOption = None,
    key_separator: KeySeparatorOption = None,
    header: HeaderOption = None,
    tombstones: TombstonesOption = False,
    partition: PartitionOption = -1,
    timestamp: TimestampOption = None,
    file: InputFileOption = None,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    timeout: TimeoutOption = 30.0,
    schema: SchemaOption = None,
    subject: SubjectOption = None,
    message: MessageOption = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    create: CreateOption = False,
    quiet: QuietOption = False,
) -> int:
    """Send records to a topic, from standard input or a file.

    Memory use is bounded, however large the input. At the end, or on Ctrl-C, the command waits for
    acknowledgements and prints how many records were delivered. The exit code is 1 if any was not.
    """
    from millstream.cli.terminal.input import Input
    from millstream.client.librdkafka.produce import RecordSender, send_all
    from millstream.client.text.lines import batches_of_records
    from millstream.core.interrupts import Interrupts

    if format is not RecordFormat.LINES and key_separator is not None:
        raise ConfigError("--key-separator requires --format lines")
    parse = _parser(format, key, key_separator, header, tombstones, partition, timestamp)
    if schema is not None:
        parse = _encoding(parse, schema, subject or f"{topic}-value", message, registry)
    elif subject is not None or message is not None:
        raise ConfigError("--subject and --message require --schema")
    if file is not None and not file.is_file():
        raise ConfigError(f"can't read {file}: {'not a file' if file.exists() else 'no such file'}")
    sender = RecordSender(
        connection,
        topic,
        acks=acks.value,
        compression=compression.value,
        timeout=timeout,
        batch_bytes=_batch_bytes(connection, topic, create=create),
    )
    with Interrupts() as interrupts, _opened(file) as descriptor:
        source = Input(descriptor, lambda: bool(interrupts) or sender.failing())
        batches = batches_of_records(
            source, parse, one=format is RecordFormat.RAW, empty_lines=format is RecordFormat.LINES
        )
        with _progress(file, source, sender, quiet=quiet) as advance:
            problem = send_all(sender, batches, lambda: bool(interrupts), advance)
            _finish(sender, interrupts, timeout)
            advance()
    return _report(sender, problem, quiet=quiet)


def _batch_bytes(connection: Connection, topic: str, *, create: bool) -> int:
    """The largest batch to send to the topic, which is created first if the user wants that."""
    from millstream.client.librdkafka.admin import Admin
    from millstream.client.librdkafka.produce import batch_bytes
    from millstream.core.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION

    with Admin(connection) as admin:
        if create:
            admin.create_topic(topic, if_not_exists=True)
        try:
            admin.describe_topics([topic])
        except RequestFailed as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise RequestFailed(error.code, error.name, f"{error}; --create creates {topic!r}") from None
        return batch_bytes(admin, topic)


def _parser(
    format: RecordFormat,
    key: str | None,
    key_separator: str | None,
    header: list[str] | None,
    tombstones: bool,
    partition: int,
    timestamp: str | None,
) -> Any:
    from millstream.client.text.lines import json_parser, line_parser
    from millstream.client.text.position import parse_position
    from millstream.core.clock import SystemClock

    headers: list[tuple[str, bytes | None]] = []
    for text in header or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--header {text!r} is not NAME=VALUE")
        headers.append((name, value.encode()))
    time = 0
    if timestamp is not None:
        position = parse_position("@" + timestamp.removeprefix("@"), SystemClock().now_ms())
        time = position.value
    shared: dict[str, Any] = {
        "key": None if key is None else key.encode(),
        "headers": headers or None,
        "partition": partition,
        "timestamp": time,
    }
    if format is RecordFormat.JSON:
        return json_parser(**shared)
    separator = None
    if key_separator is not None:
        separator = key_separator.encode().decode("unicode_escape").encode("latin-1")
        if not separator:
            raise ConfigError("--key-separator must not be empty")
    return line_parser(key_separator=separator, tombstones=tombstones, **shared)


def _encoding(parse: Any, file: Path, subject: str, message: str | None, registry: str) -> Any:
    """A parser that encodes the values of its records by a schema. Registers the schema."""
    client = open_registry(registry)
    from millstream.registry.schema import Schema
    from millstream.registry.values import encoder, encoding_json

    kind, text = read_schema(file, None)
    schema = Schema(kind, text)
    return encoding_json(parse, encoder(client.parse(schema), client.register(subject, schema), message))


@contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    if file is None:
        if sys.stdin.isatty():
            note("type records, one per line; Ctrl-D ends the input")
        yield sys.stdin.fileno()
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise ConfigError(f"can't read {file}: {error.strerror}") from None
    with opened:
        yield opened.fileno()


@contextmanager
def _progress(file: Path | None, source: Input, sender: RecordSender, *, quiet: bool) -> Iterator[Any]:
    """A progress bar, if the input is a file, whose size is known, and standard error is a terminal."""
    if file is None or quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn(file.name),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[delivered]:,} records"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task("", total=file.stat().st_size, delivered=0)
        yield lambda: bar.update(task, completed=source.taken, delivered=sender.delivered)


def _finish(sender: RecordSender, interrupts: Interrupts, timeout: float) -> None:
    """Wait for the acknowledgements. Gives up at another Ctrl-C, or 5 s after the time-out of records."""
    import time

    asked = interrupts.count
    deadline = time.monotonic() + timeout + 5
    while not sender.finish(0.2):
        if interrupts.count > asked or time.monotonic() > deadline:
            sender.abandon()
            return


def _report(sender: RecordSender, problem: MillstreamError | None, *, quiet: bool) -> int:
    lost = sender.failed + sender.unanswered
    if not quiet or lost or problem:
        note(f"delivered {count(sender.delivered, 'record')} to {sender.topic}")
    if lost:
        reason = f": {sender.first_failure}" if sender.first_failure else ""
        note(f"{count(lost, 'record')} not delivered{reason}")
    if problem is not None:
        note(str(problem))
    return 1 if lost or problem is not None else 0
