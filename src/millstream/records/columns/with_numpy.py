"""Record columns by numpy and Arrow's kernels, like ``compiled``, for when there was no compiler.

Only finding where each record starts is a loop over records, because each length says where the next
record begins. Everything else is done for all records at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import CorruptBatch
from millstream.records.batch import Buffer
from millstream.records.build import write_headers
from millstream.records.columns.codec_interface import (
    HEADER_TYPE,
    HEADERS_TYPE,
    MAX_MS,
    MIN_MS,
    NO_APPEND_TIME,
    SPAN,
    TIMESTAMP_TYPE,
    Columns,
    header_keys,
)

_BAD_NUMBER = "a number that does not end, or is too large"
_Ints = np.ndarray[Any, np.dtype[np.int64]]


def decode(
    buffer: Buffer, spans: array[int], first: int, end: int, *, key: bool, value: bool, headers: bool
) -> Columns:
    """The records with offsets from ``first`` up to ``end``, exclusive, of the batches in ``spans``."""
    table = np.frombuffer(spans, np.int64).reshape(-1, SPAN)
    records = _Records(buffer, table)
    at = records.starts + 1  # attributes, unused
    time_deltas, at = records.numbers(at, 10)
    offset_deltas, at = records.numbers(at, 5)
    key_lengths, key_at, at = records.fields(at)
    value_lengths, value_at, at = records.fields(at)
    header_counts, header_at = records.numbers(at, 5)
    records.check(
        (header_counts < 0) | (header_counts > records.ends - header_at),
        "more headers than the record can hold",
    )
    pairs = records.headers(header_at, header_counts)

    last_deltas, bases, arrivals = (records.spread(column) for column in (3, 4, 5))
    previous = np.empty_like(offset_deltas)
    previous[1:] = offset_deltas[:-1]
    previous[records.firsts] = -1
    records.check(
        (offset_deltas <= previous) | (offset_deltas > last_deltas),
        "offsets that do not grow, or pass the batch's last",
    )
    with np.errstate(over="ignore"):
        times = bases + time_deltas
    records.check((time_deltas > 0) != (times > bases), "a timestamp beyond 64 bits", unless=time_deltas == 0)
    arrived = arrivals != NO_APPEND_TIME
    times = np.where(arrived, arrivals, times).clip(MIN_MS, MAX_MS) * 1000

    offsets = records.spread(2) + offset_deltas
    keep = np.flatnonzero((offsets >= first) & (offsets < end))
    return Columns(
        slices(buffer, key_at[keep], key_lengths[keep]) if key else None,
        slices(buffer, value_at[keep], value_lengths[keep]) if value else None,
        _headers(pairs, keep) if headers else None,
        pa.array(offsets[keep]),
        pa.array(times[keep], pa.int64()).view(TIMESTAMP_TYPE),
        pa.array(arrived[keep].astype(np.int32)),
    )


class _Records:
    """The positions of the records of some batches in a buffer. Reads a number from all records at once."""

    def __init__(self, buffer: Buffer, table: _Ints) -> None:
        self.table = table
        self.data = np.frombuffer(buffer, np.uint8)
        self.counts = table[:, 6]
        self.firsts = (np.cumsum(self.counts) - self.counts)[self.counts > 0]
        starts: list[int] = []
        ends: list[int] = []
        for start, stop, _, _, _, _, count, position in table.tolist():
            _find_records(memoryview(buffer), start, stop, count, position, starts, ends)
        self.starts = np.array(starts, np.int64)
        self.ends = np.array(ends, np.int64)

    def spread(self, column: int) -> _Ints:
        """A number of each batch, repeated for each of its records."""
        return np.repeat(self.table[:, column], self.counts)

    def check(self, wrong: Any, reason: str, *, unless: Any = None) -> None:
        if unless is not None:
            wrong &= ~unless
        if wrong.any():
            raise CorruptBatch(reason, position=int(self.spread(7)[np.flatnonzero(wrong)[0]]))

    def numbers(self, at: _Ints, max_bytes: int) -> tuple[_Ints, _Ints]:
        """The zigzag varint at a position in each record, and the position after it."""
        self.check(at >= self.ends, _BAD_NUMBER)
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.uint64)
        after = at + 1
        more = np.flatnonzero(byte & 0x80)
        shift = 7
        wrong = np.zeros(len(at), bool)
        while len(more):
            wrong[more] = (after[more] >= self.ends[more]) | (shift >= 7 * max_bytes)
            self.check(wrong, _BAD_NUMBER)
            byte = self.data[after[more]]
            wrong[more] = (shift == 63) & (byte > 1)
            self.check(wrong, _BAD_NUMBER)
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        if max_bytes == 5:
            self.check(value >> np.uint64(32) != 0, _BAD_NUMBER)
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), after

    def fields(self, at: _Ints) -> tuple[_Ints, _Ints, _Ints]:
        """Lengths (-1 for null) and positions of a key or value, and the position after it."""
        lengths, start = self.numbers(at, 5)
        self.check((lengths < -1) | (lengths > self.ends - start), "a field that is longer than its record")
        return lengths, start, start + np.maximum(lengths, 0)

    def headers(self, at: _Ints, counts: _Ints) -> dict[int, list[tuple[bytes, bytes | None]]]:
        """The headers of the records that have any, by record. A loop will do: such records are few."""
        found: dict[int, list[tuple[bytes, bytes | None]]] = {}
        done = at.copy()
        wrong = np.zeros(len(at), bool)
        for record in np.flatnonzero(counts).tolist():
            place, end = int(at[record]), int(self.ends[record])
            pairs = found[record] = []
            try:
                for _ in range(int(counts[record])):
                    key, place = self._one_field(place, end)
                    if key is None:
                        raise CorruptBatch("a header without a key")
                    value, place = self._one_field(place, end)
                    pairs.append((key, value))
            except CorruptBatch as problem:
                wrong[record] = True
                self.check(wrong, problem.reason)
            done[record] = place
        self.check(done != self.ends, "bytes left over in a record")
        return found

    def _one_field(self, at: int, end: int) -> tuple[bytes | None, int]:
        length, at = _number(self.data, at, end)
        if length == -1:
            return None, at
        if not 0 <= length <= end - at:
            raise CorruptBatch("a field that is longer than its record")
        return self.data[at : at + length].tobytes(), at + length


def _find_records(
    buffer: memoryview, at: int, stop: int, count: int, position: int, starts: list[int], ends: list[int]
) -> None:
    try:
        for _ in range(count):
            if at >= stop:
                raise CorruptBatch(_BAD_NUMBER)
            length = buffer[at]
            if length < 0x80:
                at += 1
                length = (length >> 1) ^ -(length & 1)
            else:
                length, at = _number(buffer, at, stop)
            if not 0 < length <= stop - at:
                raise CorruptBatch("a record that is longer than what is left")
            starts.append(at)
            at += length
            ends.append(at)
        if at != stop:
            raise CorruptBatch(f"{stop - at} bytes after the last record")
    except CorruptBatch as problem:
        raise CorruptBatch(problem.reason, position=position) from None


def _number(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, min(at + 5, end)):
        byte = int(data[place])
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 and not value >> 32:
            return (value >> 1) ^ -(value & 1), place + 1
        if byte < 0x80:
            break
    raise CorruptBatch(_BAD_NUMBER)


def slices(buffer: Buffer, at: _Ints, lengths: _Ints) -> pa.Array:
    """Slices of the buffer as a binary column. With the slices' starts and ends as offsets, the buffer is
    a column that alternates slices and the gaps between them. Every second value is taken."""
    rows = len(at)
    if rows == 0:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * rows, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(lengths, 0)
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)], 0
    )
    nulls = lengths < 0
    return whole.take(pa.array(np.arange(0, 2 * rows, 2), mask=nulls if nulls.any() else None))


def _headers(found: dict[int, list[tuple[bytes, bytes | None]]], keep: _Ints) -> pa.Array:
    if not found:
        return pa.nulls(len(keep), HEADERS_TYPE)
    lists = [found.get(record, []) for record in keep.tolist()]
    pairs = [pair for pairs in lists for pair in pairs]
    lengths = np.array([len(pairs) for pairs in lists], np.int32)
    bounds = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    items = pa.StructArray.from_arrays(
        [
            header_keys(pa.array([key for key, _ in pairs], pa.binary())),
            pa.array([value for _, value in pairs], pa.binary()),
        ],
        fields=list(HEADER_TYPE),
    )
    without = lengths == 0
    return pa.ListArray.from_arrays(
        pa.array(bounds), items, type=HEADERS_TYPE, mask=pa.array(without) if without.any() else None
    )


class Encoder:
    """Encodes rows as records. ``key`` and ``headers`` may be None; ``timestamps`` are int64 milliseconds."""

    def __init__(self, key: pa.Array | None, value: pa.Array, headers: pa.Array | None, timestamps: Any):
        self._key = pa.nulls(len(value), pa.binary()) if key is None else key.view(pa.binary())
        self._value = value.view(pa.binary())
        self._headers = _encoded_headers(headers, len(value))
        self._timestamps = timestamps

    def bodies(self, rows: Any, max_bytes: int, room: int) -> Iterator[tuple[bytearray, int, int, int]]:
        """Encode the rows with the given numbers (int32), in that order, as the records of batches of at
        most ``max_bytes``. Yields ``room`` free bytes followed by the records, the record count, and the
        first and largest timestamp."""
        keys, values, headers = (column.take(rows) for column in (self._key, self._value, self._headers))
        times = np.asarray(self._timestamps)[rows]
        key_lengths, value_lengths = _lengths(keys), _lengths(values)
        key_sizes, value_sizes = _zigzag(key_lengths), _zigzag(value_lengths)
        sizes = 1 + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + _lengths(headers)
        sizes += _varint_sizes(key_sizes) + _varint_sizes(value_sizes)
        keys, values = pc.fill_null(keys, b""), pc.fill_null(values, b"")
        least = np.concatenate(([0], np.cumsum(sizes + 3)))  # running total of sizes with the shortest deltas
        start = 0
        while start < len(rows):
            most = int(np.searchsorted(least, least[start] + max_bytes, side="right"))
            stop = max(start + 1, min(most, len(rows)))
            offset_deltas = _zigzag(np.arange(stop - start))
            time_deltas = _zigzag(times[start:stop] - times[start])
            lengths = sizes[start:stop] + _varint_sizes(offset_deltas) + _varint_sizes(time_deltas)
            totals = np.cumsum(lengths + _varint_sizes(_zigzag(lengths)))
            count = max(1, int(np.searchsorted(totals, max_bytes, side="right")))
            stop = start + count
            before = _varints(
                [
                    _zigzag(lengths[:count]),
                    None,
                    time_deltas[:count],
                    offset_deltas[:count],
                    key_sizes[start:stop],
                ]
            )
            between = _varints([value_sizes[start:stop]])
            joined = pc.binary_join_element_wise(
                before, keys[start:stop], between, values[start:stop], headers[start:stop], b""
            )
            body = bytearray(room + int(totals[count - 1]))
            _, bounds, data = joined.buffers()
            begin = int(np.frombuffer(bounds, np.int32)[joined.offset])
            body[room:] = memoryview(data)[begin : begin + len(body) - room]
            yield body, count, int(times[start]), int(times[start:stop].max())
            start = stop


def _encoded_headers(headers: pa.Array | None, rows: int) -> pa.Array:
    if headers is None or headers.null_count == rows:
        return pa.repeat(pa.scalar(b"\0", pa.binary()), rows)
    encoded = []
    for pairs in headers.to_pylist():
        out = bytearray()
        write_headers(out, [(pair["key"], pair["value"]) for pair in pairs or ()])
        encoded.append(bytes(out))
    return pa.array(encoded, pa.binary())


def _lengths(column: pa.Array) -> _Ints:
    """Lengths of a binary column's values, -1 for null."""
    lengths: _Ints = (
        pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return lengths


def _zigzag(values: _Ints) -> Any:
    return ((values << 1) ^ (values >> 63)).astype(np.uint64)


def _varint_sizes(values: Any) -> _Ints:
    sizes = np.ones(len(values), np.int64)
    left = values >> np.uint64(7)
    while left.any():
        sizes += left > 0
        left = left >> np.uint64(7)
    return sizes


def _varints(columns: list[Any]) -> pa.Array:
    """Each row's numbers as varints, one after the other; None stands for a zero byte."""
    rows = len(columns[0])
    parts = []
    used = []
    for column in columns:
        left = np.zeros(rows, np.uint64) if column is None else column
        more = np.ones(rows, bool)
        while more.any():
            byte = (left & np.uint64(0x7F)).astype(np.uint8)
            left = left >> np.uint64(7)
            parts.append(byte | np.where(left > 0, 0x80, 0).astype(np.uint8))
            used.append(more)
            more = more & (left > 0)
    table, mask = np.stack(parts, axis=1), np.stack(used, axis=1)
    bounds = np.zeros(rows + 1, np.int32)
    np.cumsum(mask.sum(axis=1), out=bounds[1:])
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(table[mask]))], 0
    )


def partitions_of(keys: pa.Array, partitions: int, out: Any) -> None:
    """Fill ``out`` (int32) with the partition of each key by Kafka's partitioner; -1 for a null key."""
    lengths = _lengths(keys)
    _, bounds, data = keys.buffers()
    bytes_ = np.frombuffer(data, np.uint8) if data is not None and len(data) else np.zeros(1, np.uint8)
    starts = np.frombuffer(bounds, np.int32)[keys.offset : keys.offset + len(keys)].astype(np.int64)
    sizes = np.maximum(lengths, 0)
    multiplier = np.uint32(0x5BD1E995)

    def byte(rows: Any, at: Any) -> Any:
        return bytes_[starts[rows] + at].astype(np.uint32)

    hashes = np.uint32(0x9747B28C) ^ sizes.astype(np.uint32)
    words = sizes // 4
    for word in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > word)
        k = np.zeros(len(rows), np.uint32)
        for i in range(4):
            k |= byte(rows, 4 * word + i) << np.uint32(8 * i)
        k *= multiplier
        k = (k ^ (k >> np.uint32(24))) * multiplier
        hashes[rows] = (hashes[rows] * multiplier) ^ k
    for i in range(3):
        rows = np.flatnonzero(sizes % 4 > i)
        hashes[rows] ^= byte(rows, words[rows] * 4 + i) << np.uint32(8 * i)
    rows = np.flatnonzero(sizes % 4)
    hashes[rows] *= multiplier
    hashes = (hashes ^ (hashes >> np.uint32(13))) * multiplier
    hashes ^= hashes >> np.uint32(15)
    out[:] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)
    out[lengths < 0] = -1
