"""The header of a record batch, its checksum, and iteration over the batches in a buffer.

    offset  size  field
     0       8    base offset                 stamped by the broker; not under the CRC
     8       4    batch length                bytes after this field: the batch's size less 12
    12       4    partition leader epoch      stamped by the broker; not under the CRC
    16       1    magic                       2
    17       4    CRC-32C                     of everything from 21 to the end
    21       2    attributes                  bits 0-2 codec, 3 time type, 4 transactional, 5 control,
                                              6 delete horizon
    23       4    last offset delta           of the last record; kept by compaction
    27       8    base timestamp              of the first record (the delete horizon if bit 6 is set)
    35       8    max timestamp               of any record; the time of arrival if bit 3 is set
    43       8    producer id                 -1: not idempotent
    51       2    producer epoch
    53       4    base sequence
    57       4    record count
    61            records, compressed as a whole by the codec

Everything here works on whole batches; nothing reads a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from millstream.core.errors import CorruptBatch

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
PREFIX = Struct(">qi")  # base offset and batch length: what iterating needs
PREFIX_SIZE = PREFIX.size  # 12
STAMP = Struct(">qii")  # base offset, batch length, leader epoch: what the broker writes
MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
CHECKED_FROM = 21  # where the bytes under the checksum start
CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_TIMED = Struct(">i9xh")  # from 8: the length and, skipping what is between, the attributes
_MAX_TIMESTAMP_AT = 35

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
NO_SEQUENCE = -1

Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The unpacked 61 bytes at the start of every batch."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self.batch_length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def newest_ms(self) -> int:
        """The timestamp of the newest record; -1 if compaction left no record, although the header has a
        timestamp."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number. Sequence numbers wrap from 2^31-1 to 0."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``. Raises ``struct.error`` if fewer than 61 bytes follow."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def checksum(buffer: Buffer, position: int, size: int) -> int:
    """CRC-32C over the checked part of the batch of ``size`` bytes at ``position``."""
    value: int = crc32c(memoryview(buffer)[position + CHECKED_FROM : position + size])
    return value


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the batch's offset and leader epoch, in place. Neither field is under the checksum."""
    length = PREFIX.unpack_from(buffer, position)[1]
    STAMP.pack_into(buffer, position, base_offset, length, leader_epoch)


def stamp_time(buffer: bytearray | memoryview, position: int, time_ms: int) -> None:
    """Make the time of arrival the batch's timestamp, in place, and update the checksum, which covers it."""
    length, attributes = _TIMED.unpack_from(buffer, position + 8)
    _ATTRIBUTES.pack_into(buffer, position + CHECKED_FROM, attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, time_ms)
    seal(buffer, position, length + PREFIX_SIZE)


def stamp_max_time(buffer: bytearray | memoryview, position: int, size: int, time_ms: int) -> None:
    """Correct a batch's largest timestamp, in place, and update the checksum, which covers it."""
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, time_ms)
    seal(buffer, position, size)


def seal(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Recompute the checksum after a change to the bytes under it."""
    CRC.pack_into(buffer, position + CRC_AT, checksum(buffer, position, size))


def batches(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the complete batches in a buffer. A partial batch at the end is left out:
    a Fetch response may end with one. Raises CorruptBatch if the bytes can't be a batch."""
    if end is None:
        end = len(buffer)
    while position + HEADER_SIZE <= end:
        header = read_header(buffer, position)
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - PREFIX_SIZE:
            raise CorruptBatch(
                f"magic {header.magic}, length {header.batch_length}: not a batch of format 2",
                position=position,
            )
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def verify(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatch if the batch's checksum is wrong."""
    actual = checksum(buffer, position, header.size)
    if actual != header.crc:
        raise CorruptBatch(
            f"checksum is {header.crc:#010x}, the bytes give {actual:#010x}", position=position
        )
