"""Record columns by the compiled loops in ``_columns``, which fill Arrow's buffers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millstream.records.batch import Buffer
from millstream.records.columns import _columns  # type: ignore[attr-defined]
from millstream.records.columns.codec_interface import (
    HEADER_TYPE,
    HEADERS_TYPE,
    SPAN,
    TIMESTAMP_TYPE,
    Columns,
    header_keys,
)


def decode(
    buffer: Buffer, spans: array[int], first: int, end: int, *, key: bool, value: bool, headers: bool
) -> Columns:
    """The records with offsets from ``first`` up to ``end``, exclusive, of the batches in ``spans``."""
    rows = sum(spans[6::SPAN])
    # Keys and values together can't be longer than all records. Memory that is not used is never touched.
    size = sum(spans[1::SPAN]) - sum(spans[0::SPAN])
    keys = _binary_buffers(rows, size) if key else None
    values = _binary_buffers(rows, size) if value else None
    offsets, timestamps, types = (_room(rows * width) for width in (8, 8, 4))
    header_at = _room(rows * 8) if headers else None
    (
        rows,
        key_size,
        key_nulls,
        value_size,
        value_nulls,
        header_rows,
        header_count,
        header_key_size,
        header_value_size,
    ) = _columns.fill(
        memoryview(buffer), spans, first, end, keys, values, offsets, timestamps, types, header_at
    )
    return Columns(
        None if keys is None else _binary(rows, keys, key_size, key_nulls),
        None if values is None else _binary(rows, values, value_size, value_nulls),
        _headers(buffer, header_at, rows, header_rows, header_count, header_key_size, header_value_size)
        if headers
        else None,
        _plain(pa.int64(), rows, offsets, 8),
        _plain(TIMESTAMP_TYPE, rows, timestamps, 8),
        _plain(pa.int32(), rows, types, 4),
    )


def _headers(
    buffer: Buffer, header_at: Any, rows: int, header_rows: int, count: int, key_size: int, value_size: int
) -> pa.Array:
    if header_rows == 0:
        return pa.nulls(rows, HEADERS_TYPE)
    lists, lists_valid = _room(4 * (rows + 1)), _bitmap(rows)
    keys, values = _binary_buffers(count, key_size), _binary_buffers(count, value_size)
    value_nulls = _columns.fill_headers(memoryview(buffer), header_at, rows, lists, lists_valid, keys, values)
    pairs = pa.StructArray.from_arrays(
        [
            header_keys(_binary(count, keys, key_size, 0)),
            _binary(count, values, value_size, value_nulls),
        ],
        fields=list(HEADER_TYPE),
    )
    nulls = rows - header_rows
    valid = lists_valid if nulls else None
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [valid, lists], nulls, children=[pairs])


def _room(size: int) -> pa.Buffer:
    return pa.allocate_buffer(size)


def _bitmap(rows: int) -> pa.Buffer:
    return pa.py_buffer(bytearray((rows + 7) // 8))


def _binary_buffers(rows: int, size: int) -> tuple[pa.Buffer, pa.Buffer, pa.Buffer]:
    return _room(4 * (rows + 1)), _bitmap(rows), _room(size)


def _binary(rows: int, buffers: tuple[pa.Buffer, pa.Buffer, pa.Buffer], size: int, nulls: int) -> pa.Array:
    offsets, valid, data = buffers
    parts = [valid if nulls else None, offsets.slice(0, 4 * (rows + 1)), data.slice(0, size)]
    return pa.Array.from_buffers(pa.binary(), rows, parts, nulls)


def _plain(kind: pa.DataType, rows: int, buffer: pa.Buffer, width: int) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, buffer.slice(0, rows * width)], 0)


class Encoder:
    """Encodes rows as records. ``key`` and ``headers`` may be None; ``timestamps`` are int64 milliseconds."""

    def __init__(self, key: pa.Array | None, value: pa.Array, headers: pa.Array | None, timestamps: Any):
        self._encoder = _columns.Encoder(key, value, headers, timestamps)

    def bodies(self, rows: Any, max_bytes: int, room: int) -> Iterator[tuple[bytearray, int, int, int]]:
        """Encode the rows with the given numbers (int32), in that order, as the records of batches of at
        most ``max_bytes``. Yields ``room`` free bytes followed by the records, the record count, and the
        first and largest timestamp."""
        start = 0
        while start < len(rows):
            body, stop, base, latest = self._encoder.encode(rows, start, max_bytes, room)
            yield body, stop - start, base, latest
            start = stop


def partitions_of(keys: pa.Array, partitions: int, out: Any) -> None:
    """Fill ``out`` (int32) with the partition of each key by Kafka's partitioner; -1 for a null key."""
    _columns.partitions_of(keys, partitions, out)
