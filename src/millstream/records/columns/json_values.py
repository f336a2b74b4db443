"""Reads plain JSON values as columns: objects of strict JSON whose fields have the declared types.

Most records are plain, and reading them by whole batches costs a fraction of a general reader. Any other
value (including a null one, or one that lacks a required field) is null in the result. The general reader
takes it, and says what is wrong with it if anything is. So this module never decides that a record is
bad, and what it reads, it reads as the general reader would.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

try:
    from millstream.records.columns import _json  # type: ignore[attr-defined]
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
    """A field to read; ``kind`` is one of ``TYPES``. A row without a required field is not plain."""

    name: str
    kind: str
    required: bool = False


class JsonColumns:
    """Reads values as a struct of the given fields. If there was no compiler, it treats no value as plain."""

    def __init__(self, fields: Iterable[JsonField]) -> None:
        self._fields = list(fields)
        self.type = pa.struct([pa.field(field.name, TYPES[field.kind]) for field in self._fields])
        self._reader: Any = None
        if _json is not None:
            made = [(field.name.encode(), field.kind, field.required) for field in self._fields]
            self._reader = _json.Reader(made)

    def read(self, values: pa.Array) -> pa.StructArray:
        """Read binary ``values``. A null value is not plain."""
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
