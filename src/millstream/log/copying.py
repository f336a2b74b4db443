"""A log that is a copy: it takes batches as another broker's log has them, offsets, epochs and all.

Nothing is given out here: offsets, leader epochs, where a segment begins and where the log does are the
leader's. What a copy checks is that the bytes are whole (the checksum) and follow on what is there. Gaps that
compaction or damage left in the leader's offsets are gaps here.

What a copy may have to take back (its leader lost the end of its log in a crash, or another broker was
promoted) is moved into a directory of its own, never dropped: ``LogDirectory.cut_log``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from millstream.errors import CorruptBatch, LogError
from millstream.log.partition import PartitionLog
from millstream.log.replay import Replay
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

CORRUPT_MESSAGE = 2
_MOST_OFFSETS = 1 << 31  # of one batch
_NOBODYS = {
    "attributes": 0,
    "base_timestamp": NO_TIMESTAMP,
    "max_timestamp": NO_TIMESTAMP,
    "producer_id": NO_PRODUCER_ID,
    "producer_epoch": -1,
    "base_sequence": -1,
}

# This is the other half of ``PartitionLog.append``, apart from it because no producer comes this way; so it
# keeps the same books by the same private names.


def append_copied(
    log: PartitionLog, data: memoryview, *, bases: Sequence[int], upto: int, now_ms: int
) -> int:
    """Append the whole batches in ``data`` below ``upto``, and start segments where the leader did: at
    ``bases``, in order. Returns the bytes taken. Raises LogError if they don't follow on what is there."""
    if log.failed is not None:
        raise log.failed
    replay = Replay(log.producers, log.transactions, now_ms)
    taken = start = end = 0  # the bytes from start to end are on their way into the file
    try:
        for position, header in batches(data):
            if header.base_offset >= upto:
                break
            if header.last_offset < log.end_offset:
                start = end = position + header.size  # the answer to a Fetch begins with the whole batch
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
    """Start the last segment that the leader has up to ``upto``, which may be empty. Those between this one
    and the copy's last have no records any more: the leader has compacted them since it named them."""
    base = bases[bisect_right(bases, upto) - 1]
    if base > log.segments.last.base_offset:
        jump(log, base)
        if log.segments.last.size:
            log.roll()
        else:
            log._start_segment()


def jump(log: PartitionLog, offset: int) -> None:
    """The leader has no records between the end and ``offset``. A batch without records covers these offsets,
    as compaction leaves them: a file that ends before the next segment begins would be taken for damaged. May
    raise OSError."""
    while log.end_offset < offset:
        if not log.segments.last.gaps:
            log.compaction.expect_gaps()  # readers pass over batches without records only there
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
    # By where the batch before it ended: who asks for an offset in a gap is given what follows the gap.
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
