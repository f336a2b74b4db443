"""Builds batches from plain records and reads them back, one record at a time, in plain Python.

For tests, look-ups by time, and the command line. For many records use ``records.columns.arrow``, which
does the same by columns. The tests compare it with this module.

    a record                 every number a zigzag varint, as in Protocol Buffers
    length                   of all that follows
    attributes               1 byte, unused
    timestamp delta          to the batch's base timestamp
    offset delta             to the batch's base offset
    key length, key          length -1: null
    value length, value      length -1: null
    header count             then for each: key length, key (UTF-8), value length, value
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from millstream.core.errors import CorruptBatch
from millstream.records import batch
from millstream.records.batch import HEADER, HEADER_SIZE, NO_TIMESTAMP, PREFIX_SIZE, BatchHeader, Buffer
from millstream.records.compression import MAX_DECOMPRESSED, NONE, compress, decompress

# The smallest record: a byte each for length, attributes, both deltas, two null lengths, no headers.
SMALLEST_RECORD = 7

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. ``offset`` and ``timestamp`` are absolute; -1 while unknown."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp: int = NO_TIMESTAMP
    offset: int = -1


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    producer_id: int = batch.NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = batch.NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    leader_epoch: int = -1,
    last_offset_delta: int | None = None,
) -> bytearray:
    """One batch of ``records``. Given offsets must grow; offsets left at -1 count up.

    ``last_offset_delta`` is for a batch whose last records were compacted away, and is required for a
    batch without records.
    """
    if not records and last_offset_delta is None:
        raise ValueError("a batch without records needs last_offset_delta")
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    body = bytearray()
    delta = -1
    for record in records:
        previous = delta
        delta = record.offset - base_offset if record.offset >= 0 else delta + 1
        if delta <= previous:
            raise ValueError(f"offset {record.offset} does not follow {base_offset + previous}")
        write_record(body, record, record.timestamp - base_timestamp, delta)
    if last_offset_delta is None:
        last_offset_delta = delta
    attributes = codec
    attributes |= batch.TRANSACTIONAL if transactional else 0
    attributes |= batch.CONTROL if control else 0
    if log_append_time is not None:
        attributes |= batch.LOG_APPEND_TIME
        max_timestamp = log_append_time
    return assemble(
        compress(codec, body),
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def assemble(
    body: Buffer,
    *,
    attributes: int,
    base_offset: int,
    leader_epoch: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """A batch of records that are already encoded (and compressed)."""
    out = bytearray(HEADER_SIZE + len(body))
    out[HEADER_SIZE:] = body
    write_header(
        out,
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    return out


def write_header(
    out: bytearray,
    *,
    attributes: int,
    base_offset: int,
    leader_epoch: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header and checksum of a batch whose records are already in ``out``, after 61 free bytes."""
    HEADER.pack_into(
        out,
        0,
        base_offset,
        len(out) - PREFIX_SIZE,
        leader_epoch,
        batch.MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch.seal(out, 0, len(out))


def read_batches(buffer: Buffer, *, control: bool = False) -> Iterator[Record]:
    """The records of all complete batches in a buffer; those of control batches only if asked for."""
    for position, header in batch.batches(buffer):
        batch.verify(buffer, position, header)
        if control or not header.is_control:
            yield from read_records(buffer, position, header)


def read_records(
    buffer: Buffer, position: int = 0, header: BatchHeader | None = None, max_size: int = MAX_DECOMPRESSED
) -> Iterator[Record]:
    """The records of the complete batch at ``position``. The caller verifies its checksum.

    Raises CorruptBatch at the first invalid record.
    """
    if header is None:
        header = batch.read_header(buffer, position)
    packed = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    try:
        yield from _records(memoryview(decompress(header.codec, packed, max_size)), header)
    except CorruptBatch as problem:
        raise CorruptBatch(problem.reason, position=position) from None


def check_plausible(header: BatchHeader, body_size: int) -> None:
    """Raise CorruptBatch if a header's counts and offsets don't fit ``body_size`` bytes."""
    if not 0 <= header.record_count * SMALLEST_RECORD <= body_size:
        raise CorruptBatch(f"{body_size} bytes can't be {header.record_count} records")
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset >= 2**63 - 1:
        raise CorruptBatch(f"offsets from {header.base_offset} to {header.last_offset}")


def _records(body: memoryview, header: BatchHeader) -> Iterator[Record]:
    check_plausible(header, len(body))
    append_time = header.max_timestamp if header.attributes & batch.LOG_APPEND_TIME else None
    reader = RecordCursor(body)
    previous = -1
    for _ in range(header.record_count):
        timestamp_delta, offset_delta, key, value, headers = reader.record()
        if not previous < offset_delta <= header.last_offset_delta:
            raise CorruptBatch(
                f"offset delta {offset_delta} after {previous}, with {header.last_offset_delta} as the last"
            )
        previous = offset_delta
        timestamp = header.base_timestamp + timestamp_delta
        if not -(2**63) <= timestamp < 2**63:
            raise CorruptBatch("a timestamp beyond 64 bits")
        if append_time is not None:
            timestamp = append_time
        yield Record(key, value, headers, timestamp, header.base_offset + offset_delta)
    if reader.position != len(body):
        raise CorruptBatch(f"{len(body) - reader.position} bytes after the last record")


class RecordCursor:
    """Reads the records of a batch from a current position."""

    __slots__ = ("body", "end", "position")

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.position = 0
        self.end = len(body)  # of the current record

    def begin(self) -> None:
        """Move to the timestamp of the next record and set ``end`` to the record's end."""
        self.end = len(self.body)
        length = self.varint()
        if not 0 <= length <= self.end - self.position:
            raise CorruptBatch(f"a record of {length} bytes where {self.end - self.position} are left")
        self.end = self.position + length
        if length == 0:
            raise CorruptBatch("a record without a byte")
        self.position += 1  # attributes, unused

    def record(self) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]:
        self.begin()
        timestamp_delta = self.varint(10)
        offset_delta = self.varint()
        key = self.data()
        value = self.data()
        header_count = self.varint()
        if not 0 <= header_count <= self.end - self.position:
            raise CorruptBatch(f"{header_count} headers in {self.end - self.position} bytes")
        headers = tuple([self.header() for _ in range(header_count)])
        if self.position != self.end:
            raise CorruptBatch(f"{self.end - self.position} bytes left over in a record")
        return timestamp_delta, offset_delta, key, value, headers

    def header(self) -> Header:
        key = self.data()
        if key is None:
            raise CorruptBatch("a header without a key")
        return key.decode(errors="replace"), self.data()

    def data(self) -> bytes | None:
        length = self.varint()
        if length == -1:
            return None
        if not 0 <= length <= self.end - self.position:
            raise CorruptBatch(f"a field of {length} bytes where {self.end - self.position} are left")
        start = self.position
        self.position += length
        return bytes(self.body[start : self.position])

    def varint(self, max_bytes: int = 5) -> int:
        """A zigzag number of 32 bits, or of 64 with ``max_bytes`` 10."""
        value = shift = 0
        for position in range(self.position, min(self.position + max_bytes, self.end)):
            byte = self.body[position]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if value >> (32 if max_bytes == 5 else 64):
                    break
                self.position = position + 1
                return (value >> 1) ^ -(value & 1)
        raise CorruptBatch("a number that does not end, or is too large")


def write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)  # attributes
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_data(body, record.key)
    _write_data(body, record.value)
    write_headers(body, record.headers)
    write_varint(out, len(body))
    out += body


def write_headers(out: bytearray, headers: Iterable[Header]) -> None:
    pairs = tuple(headers)
    write_varint(out, len(pairs))
    for key, value in pairs:
        _write_data(out, key.encode())
        _write_data(out, value)


def _write_data(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zigzag of -1
        return
    write_varint(out, len(data))
    out += data


def write_varint(out: bytearray, value: int) -> None:
    """Write a zigzag varint of 32 or 64 bits."""
    value = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
