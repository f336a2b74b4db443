"""JSON values as columns, where they are plain: objects of strict JSON whose fields are as their types say.

Most records are, and reading them by whole batches costs a fraction of what a general reader costs. A value
that is anything else (or is none, or lacks a field that it must have) is null in what comes out: the general
reader takes it, and says what is wrong with it if anything is. So this never decides that a record is bad,
and what it reads it reads as the general reader would.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

try:
    from millstream.records import _json  # type: ignore[attr-defined]
except ImportError:
    _json = None

TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


class JsonField(NamedTuple):
    """A field to be read; ``kind`` is one of ``TYPES``. A row without a required one is not plain."""

    name: str
    kind: str
    required: bool = False


class JsonColumns:
    """Reads values as a struct of the given fields. Where there was no compiler nothing is plain to it."""

    def __init__(self, fields: Iterable[JsonField]) -> None:
        self._fields = list(fields)
        self.type = pa.struct([pa.field(field.name, TYPES[field.kind]) for field in self._fields])
        self._reader: Any = None
        if _json is not None:
            made = [(field.name.encode(), field.kind, field.required) for field in self._fields]
            self._reader = _json.Reader(made)

    def read(self, values: pa.Array) -> pa.StructArray:
        """``values`` are binary. A value that is null is not plain."""
        rows = len(values)
        if self._reader is None or rows == 0:
            return pa.nulls(rows, self.type)
        _, offsets, data = values.buffers()
        places = memoryview(offsets).cast("b").cast("i")[values.offset : values.offset + rows + 1]
        text = memoryview(data if data is not None else b"").cast("B")
        rooms = [(bytearray((rows + 7) // 8), bytearray(_width(field.kind, rows))) for field in self._fields]
        plain = pa.py_buffer(self._reader.read(places, text, rows, rooms))
        columns = [
            _column(field.kind, rows, valid, found, text)
            for field, (valid, found) in zip(self._fields, rooms, strict=True)
        ]
        return pa.Array.from_buffers(self.type, rows, [plain], children=columns)


def _width(kind: str, rows: int) -> int:
    if kind == "boolean":
        return (rows + 7) // 8
    return rows * (8 if kind == "string" else TYPES[kind].bit_width // 8)


def _column(kind: str, rows: int, valid: bytearray, found: bytearray, text: memoryview) -> pa.Array:
    if kind != "string":
        return pa.Array.from_buffers(TYPES[kind], rows, [pa.py_buffer(valid), pa.py_buffer(found)])
    places = memoryview(found).cast("i")
    offsets = pa.allocate_buffer(4 * (rows + 1))
    data = pa.allocate_buffer(_json.text_size(places, valid, text, rows))
    _json.texts(
        places, valid, text, rows, memoryview(offsets).cast("b").cast("i"), memoryview(data).cast("B")
    )
    return pa.Array.from_buffers(pa.string(), rows, [pa.py_buffer(valid), offsets, data])
