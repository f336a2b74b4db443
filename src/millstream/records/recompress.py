"""A batch's records in another codec: what a topic with ``compression.type`` other than ``producer`` keeps.

The header stays as it is but for the codec, the size and the checksum. The old checksum is verified first, or
damage on the way would get a valid one.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, Buffer, verify
from millstream.records.build import assemble
from millstream.records.compression import compress, decompress


class Target(NamedTuple):
    """A codec, and how hard it tries; None is the codec's own default."""

    codec: int
    level: int | None = None


def recompressed(data: Buffer, header: BatchHeader, target: Target, most: int) -> bytearray:
    """The batch in ``data`` with its records compressed otherwise; ``most`` bounds what they decompress to.
    Raises CorruptBatch."""
    verify(data, 0, header)
    body = decompress(header.codec, memoryview(data)[HEADER_SIZE : header.size], most)
    return assemble(
        compress(target.codec, body, target.level),
        attributes=header.attributes & ~CODEC_MASK | target.codec,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
