"""``millstream topic export``: writes a topic out as files."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from millstream.cli.decoding import Decode, RecordDecoder
from millstream.cli.help import examples
from millstream.cli.options import TopicArgument, connected, parse_size
from millstream.cli.output import note
from millstream.cli.schema import DEFAULT_REGISTRY, RegistryOption
from millstream.client.connect import Connection
from millstream.errors import ConfigError
from millstream.units import count

EXPORT_EXAMPLES = examples(
    ("millstream topic export payments --to ./payments", "what is there now, as JSON Lines"),
    ("millstream topic export payments --to ./payments", "again: what has come since, in further files"),
    ("millstream topic export payments --to s3://lake/payments --format parquet --follow", "and on"),
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
            "--to", metavar="DIR", help="The directory, or a URL of fsspec's such as s3://bucket/path."
        ),
    ],
    format: Annotated[
        FileFormat,
        typer.Option(
            "--format",
            "-F",
            metavar="jsonl|parquet",
            help="jsonl: what `consume -J` prints. parquet: a row a record.",
        ),
    ] = FileFormat.JSONL,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is appended, until Ctrl-C.")
    ] = False,
    size: Annotated[
        str, typer.Option("--size", metavar="BYTES", help="A file is complete at this size: 64MB, 1GB.")
    ] = "128MB",
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="A file is complete after this time: 30s, 10m, 1h.")
    ] = "10m",
    text: Annotated[
        bool, typer.Option("--text", help="Parquet: keys and values as text (UTF-8), not bytes.")
    ] = False,
    decode: Annotated[
        Decode | None,
        typer.Option(
            "--decode",
            metavar="auto|avro|protobuf|json",
            help="Write values decoded by the schema whose id they begin with, as JSON; auto: those that do, "
            "keys too.",
        ),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing unless something fails.")] = False,
) -> int:
    """Write a topic out as files: every committed record in exactly one of them, also over kill -9.

    A file's name says what it holds: TOPIC-PARTITION-FIRST-LAST, the first and last offset it covers. It is
    there whole or not at all, so the next start goes on after the last one there is; only one export writes
    to a directory at a time. Keys, headers and timestamps are kept.
    """
    from functools import partial

    from millstream.cli.signals import Interrupts
    from millstream.client.position import parse_duration_ms
    from millstream.files.export import Export
    from millstream.files.shapes import Lines, Parquet
    from millstream.files.store import open_store

    most_bytes, most_ms = parse_size(size, "--size"), parse_duration_ms(every)
    if text and format is not FileFormat.PARQUET:
        raise ConfigError("--text goes with --format parquet: JSON Lines has text wherever it is text")
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
