"""``millstream topic export``: writes a topic out as files."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from millstream.cli.schema import DEFAULT_REGISTRY, RegistryOption
from millstream.cli.terminal.decoding import Decode, RecordDecoder
from millstream.cli.terminal.help import examples
from millstream.cli.terminal.options import TopicArgument, connected, parse_size
from millstream.cli.terminal.output import note
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError
from millstream.core.units import count

EXPORT_EXAMPLES = examples(
    ("millstream topic export payments --to ./payments", "what is there now, as JSON Lines"),
    ("millstream topic export payments --to ./payments", "again: new records since then, in more files"),
    (
        "millstream topic export payments --to s3://lake/payments --format parquet --follow",
        "and continue with new records",
    ),
    ("cat payments/*.jsonl | millstream produce copy --format json", "back into a topic"),
)


class FileFormat(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"


@connected
def export(
    connection: Connection,
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="DIR",
            help="The directory to write to, or an fsspec URL such as s3://bucket/path.",
        ),
    ],
    format: Annotated[
        FileFormat,
        typer.Option(
            "--format",
            "-F",
            metavar="jsonl|parquet",
            help="jsonl: the same lines as `consume -J`. parquet: one row for each record.",
        ),
    ] = FileFormat.JSONL,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new records until Ctrl-C.")] = False,
    size: Annotated[
        str,
        typer.Option("--size", metavar="BYTES", help="Complete a file at this size, such as 64MB or 1GB."),
    ] = "128MB",
    every: Annotated[
        str,
        typer.Option(
            "--every", metavar="TIME", help="Complete a file after this time, such as 30s, 10m or 1h."
        ),
    ] = "10m",
    text: Annotated[
        bool, typer.Option("--text", help="Parquet: write keys and values as text (UTF-8) instead of bytes.")
    ] = False,
    decode: Annotated[
        Decode | None,
        typer.Option(
            "--decode",
            metavar="auto|avro|protobuf|json",
            help="Decode values by the schema id at their start, and write them as JSON. auto: decode keys "
            "and values that have one.",
        ),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing unless something fails.")
    ] = False,
) -> int:
    """Export a topic to files. Each committed record is in exactly one file, even after kill -9.

    A file is named TOPIC-PARTITION-FIRST-LAST, after the first and last offset that it covers. A file appears
    only when it is complete, so the next export continues after the last file. Only one export may write to a
    directory at a time. Keys, headers and timestamps are kept.
    """
    from functools import partial

    from millstream.client.text.position import parse_duration_ms
    from millstream.core.interrupts import Interrupts
    from millstream.integration.files.export import Export
    from millstream.integration.files.formats import Lines, Parquet
    from millstream.integration.files.store import open_store

    most_bytes, most_ms = parse_size(size, "--size"), parse_duration_ms(every)
    if text and format is not FileFormat.PARQUET:
        raise ConfigError("--text requires --format parquet: JSON Lines always has text as text")
    shape: Any = Lines if format is FileFormat.JSONL else partial(Parquet, text=text)
    store = open_store(to)
    try:
        exporting = Export(
            connection,
            topic,
            store,
            shape,
            f".{format.value}",
            most_bytes,
            most_ms / 1000,
            decoded=None if decode is None else RecordDecoder(decode, registry).decoded,
            complain=note,
        )
        with Interrupts() as interrupts:
            exporting.run(lambda: bool(interrupts), follow=follow)
    finally:
        store.close()
    done = exporting.counters
    if not quiet:
        note(f"exported {count(done.records, 'record')} of {topic} in {count(done.files, 'file')} to {to}")
    return 0
