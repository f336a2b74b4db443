"""Logs of any length that take little disk: valid segments whose records are mostly holes in their files.

Every batch has one record of nearly a megabyte of zeros. Only its first bytes are written; the rest reads as
zeros, and the checksum is that of the whole, so to a broker there is no difference. A hundred gigabytes take
some four hundred megabytes of disk.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from millstream.log.producers import Producers
from millstream.log.snapshots import snapshot_of
from millstream.log.transactions import PartitionTransactions
from millstream.records.batch import stamp
from millstream.records.build import Record, build_batch

BATCH = 1 << 20
PER_SEGMENT = 1000  # batches; just below the gigabyte that a segment has by default
_WRITTEN = 256  # bytes of each batch: its header and how its record begins


def _a_batch(timestamp: int) -> bytearray:
    """A batch of exactly BATCH bytes, zeros after its first ones."""
    size = BATCH - 128
    while True:
        batch = build_batch([Record(None, bytes(size), timestamp=timestamp)])
        if len(batch) == BATCH:
            return batch
        size += BATCH - len(batch)


def write_history(directory: Path, gigabytes: int, *, newest_ms: int) -> int:
    """Fill a partition's directory, of a broker that is stopped; the number of records. Segments are a day
    apart."""
    for name in directory.glob("0*"):
        name.unlink()
    offset = 0
    for number in range(gigabytes):
        timestamp = newest_ms - (gigabytes - 1 - number) * 86_400_000
        batch = _a_batch(timestamp)
        assert not any(batch[_WRITTEN:])
        path = directory / f"{offset:020d}"
        fd = os.open(path.with_suffix(".log"), os.O_CREAT | os.O_RDWR, 0o644)
        os.ftruncate(fd, PER_SEGMENT * BATCH)
        index = bytearray()
        for place in range(PER_SEGMENT):
            stamp(batch, 0, offset + place, 0)
            os.pwrite(fd, batch[:_WRITTEN], place * BATCH)
            if place:
                index += struct.pack(">ii", place, place * BATCH)
        os.close(fd)
        path.with_suffix(".index").write_bytes(index)
        path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", timestamp, 0))
        offset += PER_SEGMENT
    # As a clean shutdown leaves it: nobody has to look through the log for producers.
    (directory / f"{offset:020d}.snapshot").write_bytes(snapshot_of(Producers(), PartitionTransactions()))
    return offset
