"""Appends to a log that is a copy: it takes batches exactly as the leader's log has them.

A copy assigns nothing itself: offsets, leader epochs, segment boundaries and the log start offset are the
leader's. It checks that the bytes are intact (the checksum) and continue its own log. Gaps that
compaction or damage left in the leader's offsets are gaps in the copy.

A copy may have to give up its end, because the leader lost it in a crash or another broker was promoted.
Those records move to a separate directory and are never dropped: ``LogDirectory.cut_log``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from millstream.core.errors import CorruptBatch, LogError
from millstream.core.kafka_errors import CORRUPT_MESSAGE
from millstream.log.partition import PartitionLog
from millstream.log.recovery.replay import Replay
from millstream.records.batch import (
    CONTROL,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    batches,
    read_header,
    verify,
)
from millstream.records.build import assemble
from millstream.records.markers import read_marker

_MOST_OFFSETS = 1 << 31  # the most that one batch can cover
_NOBODYS = {
    "attributes": 0,
    "base_timestamp": NO_TIMESTAMP,
    "max_timestamp": NO_TIMESTAMP,
    "producer_id": NO_PRODUCER_ID,
    "producer_epoch": -1,
    "base_sequence": -1,
}

# The counterpart of ``PartitionLog.append``. It is separate because no producer is involved, and it
# updates the same state through the same private names.


def append_copied(
    log: PartitionLog, data: memoryview, *, bases: Sequence[int], upto: int, now_ms: int
) -> int:
    """Append the complete batches in ``data`` below ``upto``, starting segments where the leader did: at
    ``bases``, in order. Returns the number of bytes taken. Raises LogError if they don't continue the log."""
    if log.failed is not None:
        raise log.failed
    replay = Replay(log.producers, log.transactions, now_ms)
    taken = start = end = 0  # the bytes from start to end are accepted and not yet written
    try:
        for position, header in batches(data):
            if header.base_offset >= upto:
                break
            if header.last_offset < log.end_offset:
                start = end = position + header.size  # a Fetch response begins with the whole batch
                continue
            if header.base_offset < log.end_offset:
                raise LogError(
                    CORRUPT_MESSAGE,
                    f"{log.name}: a batch of offsets {header.base_offset} to {header.last_offset} came, but "
                    f"the copy ends at {log.end_offset}, in the middle of it",
                )
            verify(data, position, header)
            if _next_base(log, bases) <= header.base_offset:
                _write(log, data[start:end])
                taken += end - start
                start = position
                start_segment(log, bases, header.base_offset)
            if header.base_offset > log.end_offset and not log.segments.last.gaps:
                log.compaction.expect_gaps()
            _keep_books(log, replay, data, position, header)
            end = position + header.size
    except CorruptBatch as problem:
        _write(log, data[start:end])
        raise LogError(CORRUPT_MESSAGE, f"{log.name}: what the leader sent is damaged: {problem}") from None
    _write(log, data[start:end])
    return taken + end - start


def start_segment(log: PartitionLog, bases: Sequence[int], upto: int) -> None:
    """Start the last segment that the leader has at or below ``upto``; it may be empty. The leader's
    segments between the copy's last and this one no longer have records: the leader compacted them after
    listing them."""
    base = bases[bisect_right(bases, upto) - 1]
    if base > log.segments.last.base_offset:
        jump(log, base)
        if log.segments.last.size:
            log.roll()
        else:
            log._start_segment()


def jump(log: PartitionLog, offset: int) -> None:
    """Skip to ``offset``: the leader has no records between the log's end and it. Batches without records
    cover the gap, as compaction leaves them, because a file that ends before the next segment begins
    would count as damaged. May raise OSError."""
    while log.end_offset < offset:
        if not log.segments.last.gaps:
            log.compaction.expect_gaps()  # only there do readers skip batches without records
        covered = min(offset - log.end_offset, _MOST_OFFSETS)
        batch = assemble(
            b"",
            base_offset=log.end_offset,
            leader_epoch=log.leader_epoch,
            last_offset_delta=covered - 1,
            record_count=0,
            **_NOBODYS,
        )
        _place(log, read_header(batch))
        _write(log, memoryview(batch))


def _next_base(log: PartitionLog, bases: Sequence[int]) -> int:
    number = bisect_right(bases, log.segments.last.base_offset)
    return bases[number] if number < len(bases) else 1 << 63


def _keep_books(
    log: PartitionLog, replay: Replay, data: memoryview, position: int, header: BatchHeader
) -> None:
    _place(log, header)
    if header.leader_epoch > log.epochs.latest:
        log.epochs.begin(header.leader_epoch, header.base_offset)
        log.leader_epoch = header.leader_epoch
    marker = None
    if header.attributes & CONTROL:
        marker = read_marker(data, position, header)
    replay.tell(header, marker)


def _place(log: PartitionLog, header: BatchHeader) -> None:
    segment = log.segments.last
    # Record where the previous batch ended: a reader that asks for an offset in a gap gets what follows
    # the gap.
    log._recent_offsets.append(log.end_offset)
    log._recent_positions.append(segment.size)
    segment.added(
        segment.size, header.size, header.last_offset, header.newest_ms, log.config.index_interval_bytes
    )
    segment.size += header.size
    log.end_offset = header.next_offset


def _write(log: PartitionLog, data: memoryview) -> None:
    if len(data):
        log._write(data)
