"""Converts fetched batches to Arrow columns, and Arrow columns to batches ready to be produced.

A Fetch response may begin with a batch whose first records were not requested, and end with a partial
batch. Control batches are left out. So are the batches of aborted transactions, if the caller passes the
list from the response. No Python code runs per record: batches are walked here, records by
``compiled``, or by ``with_numpy`` if there was no compiler.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pyarrow as pa

from millstream.core.errors import CorruptBatch
from millstream.records import batch
from millstream.records.batch import HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE, Buffer
from millstream.records.build import assemble, check_plausible, write_header
from millstream.records.columns import with_numpy as numpy_columns
from millstream.records.columns.codec_interface import HEADERS_TYPE, NO_APPEND_TIME, TIMESTAMP_TYPE
from millstream.records.compression import MAX_DECOMPRESSED, NONE, compress, decompress
from millstream.records.fetched import NO_END, wanted

try:
    from millstream.records.columns import compiled as compiled_columns
except ImportError:
    compiled_columns = None  # type: ignore[assignment]

columns: ModuleType = numpy_columns if compiled_columns is None else compiled_columns

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("timestampType", pa.int32()),
    ]
)
NAMES = tuple(SCHEMA.names)

# Bytes of records decoded into one Arrow batch: enough to be fast, small enough to pass on soon. Offsets
# in a column are 32 bits, so this plus one Kafka batch must stay below 2 GiB, which it does.
CHUNK_BYTES = 4 * 1024 * 1024


def decode(
    buffer: Buffer,
    *,
    first: int,
    end: int = NO_END,
    aborted: Iterable[tuple[int, int]] = (),
    names: Collection[str] = NAMES,
    max_decompressed: int = MAX_DECOMPRESSED,
    implementation: ModuleType | None = None,
) -> list[pa.RecordBatch]:
    """The records in a Fetch response from offset ``first`` up to ``end``, exclusive.

    ``aborted`` are the producer ids and first offsets of aborted transactions, as the response lists
    them. ``names`` selects columns of ``SCHEMA``; they keep its order. Raises CorruptBatch, with the
    position of the batch in the buffer, if anything is wrong.
    """
    chunks = _Chunks(buffer, first, end, names, implementation or columns)
    for position, header in wanted(buffer, first, end, aborted):
        packed = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
        try:
            body = decompress(header.codec, packed, max_decompressed)
            check_plausible(header, len(body))
        except CorruptBatch as problem:
            raise CorruptBatch(problem.reason, position=position) from None
        chunks.add(header, position, None if header.codec == NONE else body)
    chunks.finish()
    return chunks.done


class _Chunks:
    """Collects batches until there are enough for an Arrow batch. Uncompressed batches are read in place;
    decompressed ones are joined in a separate buffer."""

    def __init__(
        self, buffer: Buffer, first: int, end: int, names: Collection[str], implementation: ModuleType
    ) -> None:
        self.done: list[pa.RecordBatch] = []
        self._buffer = buffer
        self._range = first, end
        self._schema = pa.schema([field for field in SCHEMA if field.name in names])
        self._wants = {name: name in names for name in ("key", "value", "headers")}
        self._decode = implementation.decode
        self._spans = array("q")
        self._size = 0
        self._bodies: list[Buffer] = []

    def add(self, header: batch.BatchHeader, position: int, decompressed: Buffer | None) -> None:
        if self._spans and (decompressed is None) != (not self._bodies):
            self.finish()
        if decompressed is None:
            start, size = position + HEADER_SIZE, header.size - HEADER_SIZE
        else:
            start, size = self._size, len(decompressed)
            self._bodies.append(decompressed)
        arrival = header.max_timestamp if header.attributes & batch.LOG_APPEND_TIME else NO_APPEND_TIME
        self._spans.extend(
            (
                start,
                start + size,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                arrival,
                header.record_count,
                position,
            )
        )
        self._size += size
        if self._size >= CHUNK_BYTES:
            self.finish()

    def finish(self) -> None:
        if not self._spans:
            return
        buffer = b"".join(self._bodies) if self._bodies else self._buffer
        decoded = self._decode(buffer, self._spans, *self._range, **self._wants)
        found = dict(zip(NAMES, decoded, strict=True))
        if len(decoded.offset):
            arrays = [found[name] for name in self._schema.names]
            self.done.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._spans = array("q")
        self._size = 0
        self._bodies = []


@dataclass(slots=True)
class ProducerSequence:
    """An idempotent producer in one partition: its id, epoch and next sequence. By default there is none."""

    id: int = NO_PRODUCER_ID
    epoch: int = -1
    sequence: int = NO_SEQUENCE
    transactional: bool = False


class Encoder:
    """Encodes rows of an Arrow record batch as Kafka batches: any rows, in any order.

    ``key``, ``headers`` and ``timestamp`` may be None: no key, no headers, the current time. Keys and
    values are binary or text. Timestamps are truncated to milliseconds.
    """

    def __init__(
        self,
        value: pa.Array,
        key: pa.Array | None = None,
        headers: pa.Array | None = None,
        timestamp: pa.Array | None = None,
        *,
        now_ms: int | None = None,
        implementation: ModuleType | None = None,
    ) -> None:
        times = _milliseconds(timestamp, len(value), now_ms)
        self._encoder = (implementation or columns).Encoder(
            None if key is None else _narrow(key),
            _narrow(value),
            None if headers is None or headers.null_count == len(headers) else headers.cast(HEADERS_TYPE),
            times,
        )

    def batches(
        self, rows: Any, *, max_bytes: int, codec: int = NONE, producer: ProducerSequence | None = None
    ) -> Iterator[tuple[bytearray, int]]:
        """Yield batches of the rows with the given numbers (int32), and how many records each batch has.

        ``max_bytes`` bounds a batch before compression; a single larger row becomes a separate batch. The
        producer's sequence advances with each batch.
        """
        producer = producer or ProducerSequence()
        attributes = codec | (batch.TRANSACTIONAL if producer.transactional else 0)
        for out, count, base, latest in self._encoder.bodies(rows, max_bytes - HEADER_SIZE, HEADER_SIZE):
            fields = {
                "attributes": attributes,
                "base_offset": 0,
                "leader_epoch": -1,
                "last_offset_delta": count - 1,
                "base_timestamp": base,
                "max_timestamp": latest,
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "base_sequence": producer.sequence,
                "record_count": count,
            }
            if producer.sequence != NO_SEQUENCE:
                producer.sequence = (producer.sequence + count) & 0x7FFF_FFFF
            if codec == NONE:
                write_header(out, **fields)
            else:
                out = assemble(compress(codec, memoryview(out)[HEADER_SIZE:]), **fields)
            yield out, count


def partitions_of(keys: pa.Array, partitions: int, implementation: ModuleType | None = None) -> Any:
    """The partition of each key by Kafka's partitioner, as a numpy array of int32; -1 for a null key."""
    import numpy as np

    out = np.empty(len(keys), np.int32)
    (implementation or columns).partitions_of(_narrow(keys), partitions, out)
    return out


def _narrow(column: pa.Array) -> pa.Array:
    """A binary column with 32-bit offsets, from any kind of text or bytes."""
    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.binary())
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        raise TypeError(f"keys and values are binary or string, not {column.type}")
    return column


def _milliseconds(timestamp: pa.Array | None, rows: int, now_ms: int | None) -> Any:
    import numpy as np

    if now_ms is None:
        now_ms = time.time_ns() // 1_000_000
    if timestamp is None:
        return np.full(rows, now_ms, np.int64)
    micros = timestamp.cast(pa.timestamp("us", timestamp.type.tz)).view(pa.int64())
    if micros.null_count:
        micros = micros.fill_null(now_ms * 1000)
    return np.ascontiguousarray(micros.to_numpy(zero_copy_only=False) // 1000)
