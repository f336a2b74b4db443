"""Producers' snapshots: which producers wrote to a partition, and their open transactions, as of an offset.

They are Kafka's ``.snapshot`` files. The file name is the offset that the snapshot describes:

    2  version, 1
    4  CRC-32C of the rest
    4  number of entries, then for each
       8 producer id | 2 epoch | 4 last sequence | 8 last offset | 4 offset delta | 8 time |
       4 coordinator epoch | 8 first offset of the open transaction, -1 if there is none

Kafka keeps only a producer's last batch. Here a producer has up to five entries, oldest first, so that all
five survive a restart. Kafka's reader uses the last of them, which is the one it would have written. A
producer whose newest epoch has a marker and no batch yet has one entry, with -1 for sequence and offset.
"""

from __future__ import annotations

from struct import Struct, error

from crc32c import crc32c

from millstream.log.producers import SEQUENCE_MASK, Producers
from millstream.log.transactions import NO_COORDINATOR, NO_OFFSET, PartitionTransactions

SNAPSHOT_SUFFIX = ".snapshot"

_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1
_CHECKED_FROM = 6  # where the bytes under the snapshot's checksum start
_NO_BATCH = (-1, -1, -1, 0)  # base and last sequence, last offset, offset delta


def snapshot_of(producers: Producers, transactions: PartitionTransactions) -> bytes:
    """The contents of a snapshot file."""
    entries = []
    coordinators, opened = transactions.coordinators, transactions.open
    for producer_id, (epoch, _, batches, last_ms) in producers.states.items():
        coordinator = coordinators.get(producer_id, NO_COORDINATOR)
        first = opened[producer_id][0] if producer_id in opened else NO_OFFSET
        for _, last_sequence, last_offset, delta, time_ms in batches or ((*_NO_BATCH, last_ms),):
            entries.append(
                _ENTRY.pack(
                    producer_id, epoch, last_sequence, last_offset, delta, time_ms, coordinator, first
                )
            )
    body = b"".join(entries)
    count = len(entries).to_bytes(4, "big")
    return _HEAD.pack(_VERSION, crc32c(body, crc32c(count)), len(entries)) + body


def load_snapshot(snapshot: bytes, producers: Producers, transactions: PartitionTransactions) -> bool:
    """Replace the state with a snapshot's. False, with nothing changed, if the snapshot is damaged."""
    entries = _entries(snapshot)
    if entries is None:
        return False
    producers.states.clear()
    transactions.clear()
    for producer_id, epoch, last_sequence, last_offset, delta, time_ms, coordinator, first in entries:
        if last_offset < 0:
            producers.record_marker(producer_id, epoch, time_ms)
        else:
            base_sequence = (last_sequence - delta) & SEQUENCE_MASK
            producers.record(producer_id, epoch, base_sequence, delta, last_offset - delta, time_ms)
        if coordinator != NO_COORDINATOR:
            transactions.coordinators[producer_id] = coordinator
        if first != NO_OFFSET and last_offset >= first:
            # Of the known batches, the first in the transaction shows best when it began.
            transactions.open.setdefault(producer_id, (first, time_ms))
    transactions.sort()
    producers.commit()
    transactions.commit()
    return True


def _entries(snapshot: bytes) -> list[tuple[int, int, int, int, int, int, int, int]] | None:
    try:
        version, crc, count = _HEAD.unpack_from(snapshot)
    except error:
        return None
    if version != _VERSION or len(snapshot) != _HEAD.size + count * _ENTRY.size:
        return None
    if crc32c(memoryview(snapshot)[_CHECKED_FROM:]) != crc:
        return None
    return list(_ENTRY.iter_unpack(memoryview(snapshot)[_HEAD.size :]))
