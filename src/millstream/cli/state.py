"""``millstream state``: shows and exports the state of a job's operators, read from its checkpoint."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.output import Output, OutputOption, note, show_json, show_table
from millstream.core.errors import ConfigError
from millstream.core.units import bytes_text, count

if TYPE_CHECKING:
    from millstream.pipeline.run.checkpoint.state_reader import StateEntry, StateReader

app = App(help="Read the state of a job's stateful operators from its checkpoint.")

_PARQUET_ROWS = 20_000  # in one row group


class FileFormat(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"


CheckpointArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|NAME",
        help="The job's checkpoint directory, or its name if that is in ./.millstream.",
        show_default=False,
    ),
]
OperatorArgument = Annotated[
    str | None, typer.Argument(metavar="OPERATOR", help="A stateful operator.", show_default=False)
]
StateOption = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="URL",
        envvar="MILLSTREAM_STATE",
        help="The database, if the job keeps its state in one.",
        show_default=False,
    ),
]


@app.command(
    "show",
    epilog=examples(
        ("millstream state show fraud", "the stateful operators of a job, and how large they are"),
        ("millstream state show fraud bursts", "what one of them holds"),
        ("millstream state show fraud bursts --key 4716253098710001", "of one key"),
        ("millstream state show /var/lib/fraud bursts --output json", "for a program"),
    ),
)
def show(
    checkpoint: CheckpointArgument,
    operator: OperatorArgument = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            metavar="KEY",
            help="Only entries with this key, or with this value as part of their key.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", help="Show at most this many entries.")
    ] = 100,
    state: StateOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Show the state of a job as of its last committed batch. Changes nothing.

    While the job runs, the output is a batch or two behind, so stop it first. The exit code is 1 if the
    requested key does not exist.
    """
    from millstream.pipeline.run.checkpoint.state_reader import has_key, text

    if key is not None and operator is None:
        raise ConfigError("--key requires an operator: millstream state show CHECKPOINT OPERATOR --key KEY")
    with _reader(checkpoint, state) as reader:
        if operator is None:
            return _show_operators(reader, output)
        found = reader.find(operator)
        note(f"state of {operator!r} as of batch {found.batch}")
        entries: Iterator[StateEntry] = reader.entries(found)
        if key is not None:
            entries = (entry for entry in entries if has_key(entry, key))
        shown = list(islice(entries, limit))
        more = next(entries, None) is not None
    if output is Output.JSON:
        show_json([entry.to_json() for entry in shown])
    else:
        rows = [[one.container, text(one.key), text(one.value), _time(one)] for one in shown]
        show_table(["container", "key", "value", "due"], rows)
    if more:
        note(f"there are more than {limit:,}; see --limit, or millstream state export")
    return 1 if key is not None and not shown else 0


@app.command(
    "export",
    epilog=examples(
        ("millstream state export fraud bursts --to bursts.jsonl", "a line of JSON for each entry"),
        ("millstream state export fraud --to state.parquet --format parquet", "of all operators, as Parquet"),
    ),
)
def export(
    checkpoint: CheckpointArgument,
    operator: OperatorArgument = None,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="The file to write; - for standard output.")
    ] = "-",
    format: Annotated[
        FileFormat, typer.Option("--format", "-F", metavar="jsonl|parquet", help="The file format.")
    ] = FileFormat.JSONL,
    state: StateOption = None,
) -> None:
    """Write the state of a job, as of its last committed batch, to a file.

    Each entry has its operator, bucket, container, key, value and due time.
    """
    if to == "-" and format is FileFormat.PARQUET:
        raise ConfigError("--format parquet needs a file: --to FILE")
    with _reader(checkpoint, state) as reader:
        chosen = reader.operators() if operator is None else [reader.find(operator)]

        def entries() -> Iterator[StateEntry]:
            for one in chosen:
                note(f"reading {one.name!r} as of batch {one.batch}: {count(len(one.heads), 'bucket')}")
                yield from reader.entries(one, _progress if sys.stderr.isatty() else lambda done, of: None)

        written = _write_jsonl(to, entries()) if format is FileFormat.JSONL else _write_parquet(to, entries())
    note(f"{written:,} {'entry' if written == 1 else 'entries'} written" + ("" if to == "-" else f" to {to}"))


def _show_operators(reader: StateReader, output: Output) -> int:
    operators = reader.operators()
    if output is Output.JSON:
        show_json(
            [
                {
                    "query": one.query,
                    "operator": one.name,
                    "buckets": len(one.heads),
                    "entries": one.entries,
                    "bytes": one.bytes,
                    "batch": one.batch,
                }
                for one in operators
            ]
        )
    elif not operators:
        note("no stateful operators in this checkpoint, or none has started")
    else:
        rows: list[list[str | int | None]] = [
            [one.query, one.name, len(one.heads), one.entries, bytes_text(one.bytes), one.batch]
            for one in operators
        ]
        show_table(["query", "operator", "buckets", "entries", "checkpoint", "batch"], rows)
    return 0


@contextmanager
def _reader(checkpoint: str, state: str | None) -> Iterator[StateReader]:
    """A reader on a Spark session of its own, whose log goes to a file and not to the screen."""
    from millstream.pipeline.run.checkpoint.checkpoint import Checkpoint
    from millstream.pipeline.run.checkpoint.state_reader import StateReader
    from millstream.pipeline.spark.jvm import end_engine, start_engine

    place = Checkpoint(_find(checkpoint))
    if place.local is not None and place.kept() is None:
        raise ConfigError(f"{place.location} is not the checkpoint of a job: there is no {place.notes}")
    with tempfile.TemporaryDirectory(prefix="millstream-state-") as scratch:
        engine = start_engine("millstream-state", master="local[2]", log_file=Path(scratch) / "spark.log")
        note("starting Spark to read the state ...")
        session = engine.result()
        try:
            yield StateReader(session, place, state)
        finally:
            end_engine(session)


def _find(checkpoint: str) -> str:
    if "://" in checkpoint or Path(checkpoint).is_dir():
        return checkpoint
    named = Path(".millstream") / checkpoint
    if named.is_dir():
        return str(named)
    raise ConfigError(f"there is no checkpoint {checkpoint!r}, neither here nor in ./.millstream")


def _time(entry: StateEntry) -> str | None:
    return None if entry.due is None else f"{entry.due:%Y-%m-%d %H:%M:%S}"


def _progress(done: int, of: int) -> None:
    print(f"\r{done} of {of} buckets", end="" if done < of else "\n", file=sys.stderr, flush=True)


def _write_jsonl(to: str, entries: Iterator[StateEntry]) -> int:
    written = 0
    with nullcontext(sys.stdout) if to == "-" else open(to, "w") as file:
        for entry in entries:
            file.write(json.dumps(entry.to_json(), ensure_ascii=False) + "\n")
            written += 1
    return written


def _write_parquet(to: str, entries: Iterator[StateEntry]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from millstream.pipeline.run.checkpoint.state_reader import plain

    schema = pa.schema(
        [
            ("operator", pa.string()),
            ("bucket", pa.int32()),
            ("container", pa.string()),
            ("key", pa.string()),  # as JSON, because keys and values of operators have any shape
            ("value", pa.string()),
            ("due", pa.timestamp("us", tz="UTC")),
        ]
    )
    written = 0
    with pq.ParquetWriter(to, schema) as writer:
        while some := list(islice(entries, _PARQUET_ROWS)):
            rows = [
                {
                    "operator": one.operator,
                    "bucket": one.bucket,
                    "container": one.container,
                    "key": json.dumps(plain(one.key), ensure_ascii=False),
                    "value": json.dumps(plain(one.value), ensure_ascii=False),
                    "due": one.due,
                }
                for one in some
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            written += len(some)
    return written
