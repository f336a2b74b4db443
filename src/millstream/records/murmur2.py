"""Kafka's default partitioner: maps a key to a partition, the same in every client.

All clients that partition by murmur2 must agree bit for bit. Otherwise the records of one key end up in
two partitions and lose their order.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """The 32-bit hash of a key, unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ (k >> 24)) * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ (h >> 13)) * _MULTIPLIER & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """The partition of a key. For a column of keys, see ``records.columns.arrow.partitions_of``."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
