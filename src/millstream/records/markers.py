"""Transaction markers: the control batches that end a transaction in a partition.

    61  batch header                transactional and control bits set, base sequence -1, one record
     1  record length 16            zigzag varints, as everywhere in records
     3  attributes, time delta and offset delta, all 0
     1  key length 4
     2  version of the key, 0
     2  kind: 0 abort, 1 commit     (other kinds belong to Kafka's own raft log)
     1  value length 6
     2  version of the value, 0
     4  coordinator epoch
     1  header count 0

A marker takes up an offset as any record does, and is never delivered to applications.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import NamedTuple

from millstream.core.errors import CorruptBatch
from millstream.records import batch
from millstream.records.batch import HEADER_SIZE, BatchHeader, Buffer
from millstream.records.build import read_records, write_header

_RECORD = Struct(">BbbbBhhBhiB")  # the 17 bytes after the header
_KEY = Struct(">hh")  # version, kind
_VALUE = Struct(">hi")  # version, coordinator epoch
MARKER_SIZE = HEADER_SIZE + _RECORD.size  # 78


class Marker(enum.IntEnum):
    """How a marker ends its transaction."""

    ABORT = 0
    COMMIT = 1


class EndOfTransaction(NamedTuple):
    """What a marker says, apart from the producer that its batch header names."""

    kind: Marker
    coordinator_epoch: int


def build_marker(
    kind: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    coordinator_epoch: int = 0,
) -> bytearray:
    """The control batch that ends a producer's transaction."""
    out = bytearray(MARKER_SIZE)
    _RECORD.pack_into(out, HEADER_SIZE, 16 << 1, 0, 0, 0, 4 << 1, 0, kind, 6 << 1, 0, coordinator_epoch, 0)
    write_header(
        out,
        attributes=batch.TRANSACTIONAL | batch.CONTROL,
        base_offset=base_offset,
        leader_epoch=-1,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=batch.NO_SEQUENCE,
        record_count=1,
    )
    return out


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndOfTransaction | None:
    """What the control batch at ``position`` says; None for another kind of control record. Raises
    CorruptBatch if it is not a control record."""
    for record in read_records(buffer, position, header):
        if record.key is None or len(record.key) < _KEY.size:
            raise CorruptBatch("a control record without a kind", position=position)
        _, kind = _KEY.unpack_from(record.key)
        if kind not in (Marker.ABORT, Marker.COMMIT):
            return None
        if record.value is None or len(record.value) < _VALUE.size:
            raise CorruptBatch("a transaction marker without a coordinator epoch", position=position)
        return EndOfTransaction(Marker(kind), _VALUE.unpack_from(record.value)[1])
    return None  # compaction leaves control batches without a record
