"""Recompresses a batch's records, for topics whose ``compression.type`` is not ``producer``.

The header keeps everything but the codec, the size and the checksum. The old checksum is verified first:
otherwise damage that happened on the way would get a valid checksum.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, Buffer, verify
from millstream.records.build import assemble
from millstream.records.compression import compress, decompress


class Target(NamedTuple):
    """A codec and its level; None is the codec's default."""

    codec: int
    level: int | None = None


def recompressed(data: Buffer, header: BatchHeader, target: Target, most: int) -> bytearray:
    """The batch in ``data`` with its records compressed by another codec. ``most`` bounds their
    decompressed size. Raises CorruptBatch."""
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
