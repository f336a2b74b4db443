"""The file formats of an export: JSON Lines and Parquet.

Both keep all of a record: key, value, headers, timestamp, partition and offset. JSON Lines is what
``millstream consume -J`` prints and ``millstream produce --format json`` reads. Parquet stores bytes as
bytes. If text is requested, keys and values are string columns, and a record that is not UTF-8 is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any, Protocol

from millstream.client.text.template import as_json
from millstream.core.errors import ConfigError, MillstreamError

ROWS = 20_000  # in a Parquet row group; this many are held in memory per file


class Writer(Protocol):
    """A file that is being written."""

    size: int  # approximate

    def write(self, records: Sequence[Any]) -> None: ...

    def end(self) -> None:
        """Write what is left. The caller closes the file itself."""


class Lines:
    """JSON Lines."""

    suffix = ".jsonl"

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def write(self, records: Sequence[Any]) -> None:
        text = "".join(
            json.dumps(as_json(record), ensure_ascii=False, separators=(",", ":")) + "\n"
            for record in records
        )
        data = text.encode("utf-8", "surrogatepass")
        self._file.write(data)
        self.size += len(data)

    def end(self) -> None:
        return None


class Parquet:
    """Parquet, by pyarrow: row groups of up to ``ROWS`` records, compressed with zstd."""

    suffix = ".parquet"

    def __init__(self, file: IO[bytes], *, text: bool = False) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ConfigError(
                "Parquet files are written with pyarrow: pip install 'millstream[spark]', or --format jsonl"
            ) from None
        self._arrow = pyarrow
        data = pyarrow.string() if text else pyarrow.binary()
        self._text = text
        self._schema = pyarrow.schema(
            [
                ("partition", pyarrow.int32()),
                ("offset", pyarrow.int64()),
                ("timestamp", pyarrow.timestamp("ms", tz="UTC")),
                ("timestamp_type", pyarrow.string()),
                ("key", data),
                ("value", data),
                (
                    "headers",
                    pyarrow.list_(pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.binary())])),
                ),
            ]
        )
        self._writer = pyarrow.parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[Any] = []
        self.size = 0

    def write(self, records: Sequence[Any]) -> None:
        self._waiting += records
        self.size += sum(len(record.value() or b"") + len(record.key() or b"") + 16 for record in records)
        if len(self._waiting) >= ROWS:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        records, self._waiting = self._waiting, []
        if not records:
            return
        kinds = {1: "CreateTime", 2: "LogAppendTime"}
        times = [record.timestamp() for record in records]
        columns = [
            [record.partition() for record in records],
            [record.offset() for record in records],
            [time if kind in kinds else None for kind, time in times],
            [kinds.get(kind) for kind, _ in times],
            [self._data(record, record.key()) for record in records],
            [self._data(record, record.value()) for record in records],
            [[{"name": name, "value": data} for name, data in record.headers() or ()] for record in records],
        ]
        arrays = [
            self._arrow.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))

    def _data(self, record: Any, data: bytes | None) -> bytes | str | None:
        if not self._text or data is None:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MillstreamError(
                f"{record.topic()}[{record.partition()}] offset {record.offset()} is not UTF-8 text; export"
                " bytes, without --text, or jsonl"
            ) from None
