"""How the catalogue keeps a share partition: its start offset, and this for the records after it.

    run     records uint32 | state uint8 | deliveries uint8 | where the state is MIXED: one state for each

The runs follow each other from the start offset on. Acquired records are saved as available, with the count
that they had before they were given out (rule 6 of ``share_partition``). Available records at the end that
were never delivered before are left out: they are like those that were never looked at.

All of it is written each time. It is small: a run takes 6 bytes, and one with marks a byte more for each
record, of which there are few. What changes during a write shares the next one (``delivery``).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from millstream.broker.groups.share.in_flight import ACQUIRED, AVAILABLE, MIXED, InFlight
from millstream.broker.groups.share.share_partition import Counts, SharePartition
from millstream.core.group_config import GroupConfig

_RUN = Struct(">IBB")
_MOST = (1 << 32) - 1


def to_bytes(partition: SharePartition) -> bytes:
    """The records from the partition's start on."""
    out = bytearray()
    kept = 0  # bytes of ``out``; the runs after them were never delivered before
    for size, state, count, marks in _merged(partition):
        while size > _MOST:
            out += _RUN.pack(_MOST, state, count)
            size -= _MOST
        out += _RUN.pack(size, state, count)
        if marks is not None:
            out += marks
        if state != AVAILABLE or count:
            kept = len(out)
    return bytes(out[:kept])


def _merged(partition: SharePartition) -> Iterator[tuple[int, int, int, bytearray | None]]:
    """Records, state, count and marks of each run. Records that were never delivered are one run."""
    fresh = 0
    for run in partition.runs:
        state, count = run.state, run.count
        if state == ACQUIRED:
            state, count = AVAILABLE, count - 1
        if state == AVAILABLE and not count:
            fresh += len(run)
            continue
        if fresh:
            yield fresh, AVAILABLE, 0, None
            fresh = 0
        yield len(run), state, count, run.marks
    if fresh:
        yield fresh, AVAILABLE, 0, None


def end_of(start_offset: int, state: bytes) -> int:
    """The end of the saved records."""
    position, offset = 0, start_offset
    while position < len(state):
        size, kind, _ = _RUN.unpack_from(state, position)
        position += _RUN.size + (size if kind == MIXED else 0)
        offset += size
    return offset


def restored(
    start_offset: int,
    state: bytes,
    settings: GroupConfig,
    counts: Counts | None = None,
    *,
    log_start: int,
    log_end: int,
) -> SharePartition:
    """The saved partition, as far as the log has its records. A log that lost its end (records that were
    not synced, after a power failure) gives the lost offsets to new records, which nobody has seen yet."""
    partition = SharePartition(min(start_offset, log_end), settings, counts)
    runs: list[InFlight] = []
    position, offset = 0, start_offset
    while position < len(state) and offset < log_end:
        size, kind, count = _RUN.unpack_from(state, position)
        position += _RUN.size
        run = InFlight(offset, offset + size - 1, kind, count)
        if kind == MIXED:
            run.marks = bytearray(state[position : position + size])
            position += size
        offset += size
        if offset > log_end:
            run.cut(log_end)
        for part in run.runs():
            if part.state == ACQUIRED:
                part.state, part.count = AVAILABLE, part.count - 1
            runs.append(part)
    partition.restore(runs)
    partition.on_log_start(log_start)
    return partition
