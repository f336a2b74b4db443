"""Opening a partition's log: what is on disk becomes what it was, and never more than was written.

After a clean shutdown little is read: the directory's listing, the last index entry of the last segment and the
headers after it, the newest producer snapshot. Otherwise every segment that is not wholly below the recovery point
(the offset up to which a sync is known to have finished) is read and every checksum verified:

- No valid batch follows the first bad one in the last segment, and its offset is at or above the recovery point:
  a write was cut off. The file is cut there.
- Anything else that is bad is damage: it stays in the file, is reported with its place, and is never served.
- Indexes and producers' state are built anew from the batches.
- Offsets that may have been given before are not given again: if synced records are missing at the end, the log
  goes on after them, in a new segment.
"""

from __future__ import annotations

import logging

from millstream.log.files import read_file
from millstream.log.partition import SNAPSHOT_SUFFIX, PartitionLog
from millstream.log.scan import Batch, Damage
from millstream.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from millstream.records.batch import BatchHeader

_log = logging.getLogger(__name__)

NO_CEILING = (1 << 63) - 1
LEFTOVERS = (DELETED_SUFFIX, ".tmp")


def open_partition(
    log: PartitionLog, *, new: bool, clean: bool, recovery_point: int, start_offset: int
) -> None:
    """Bring ``log`` to the state that its directory holds; a new one if it holds nothing."""
    _Opening(log, recovery_point).run(clean, start_offset)
    if new:
        log.parent_unsynced = True


class _Opening:
    def __init__(self, log: PartitionLog, recovery_point: int) -> None:
        self.log = log
        self.files = log.pool.files
        self.recovery_point = recovery_point
        self.snapshots: list[int] = []
        self.segments: list[Segment] = []
        self.now_ms = log.clock.now_ms()
        self.recovered: list[Segment] = []

    def run(self, clean: bool, start_offset: int) -> None:
        log = self.log
        self._list()
        log.epochs.load()
        if not self.segments:
            self._create(max(start_offset, self.recovery_point))
            return
        end = self._clean_end() if clean else None
        if end is not None and end >= self.recovery_point:
            self._check_indexes(self.segments)
            self._replay_producers(end)
        else:
            if clean:
                _log.warning("%s is not as the last shutdown left it; it is recovered", log.path)
            end = self._recover()
        log.log_start_offset = max(start_offset, self.segments[0].base_offset)
        log.adopt(self.segments, end)
        self._go_on_at(max(end, self.recovery_point, log.log_start_offset), clean=not self.recovered)

    def _list(self) -> None:
        listing = self.files.listing(self.log.path)
        leftovers = [f"{self.log.path}/{name}" for name in listing if name.endswith(LEFTOVERS)]
        if leftovers:
            self.files.discard(leftovers)
        bases = sorted(
            offset_of(name) for name in listing if name.endswith(LOG_SUFFIX) and offset_of(name) >= 0
        )
        for base in bases:
            name = file_name(base)
            segment = Segment(
                self.log.pool,
                f"{self.log.path}/{name}",
                base,
                size=listing[name + LOG_SUFFIX],
                index_size=listing.get(name + INDEX_SUFFIX, 0),
                times_size=listing.get(name + TIME_INDEX_SUFFIX, 0),
            )
            self.segments.append(segment)
        for name in listing:
            if name.endswith(SNAPSHOT_SUFFIX) and offset_of(name) >= 0:
                self.snapshots.append(offset_of(name))
            elif name.endswith(SUFFIXES) and name.partition(".")[0] + LOG_SUFFIX not in listing:
                self.files.remove(f"{self.log.path}/{name}")  # an index without its log
        self.snapshots.sort()

    def _create(self, offset: int) -> None:
        log = self.log
        log.log_start_offset = log.end_offset = log.written_offset = log.synced_offset = offset
        log.epochs.begin(0, offset)
        log.epochs.write()
        log.leader_epoch = log.epochs.latest
        log.start_segment(offset)

    def _clean_end(self) -> int | None:
        """The end offset by the headers after the last index entry; None if they don't lead to the end of the
        file, or the time index does not cover them: then this is not what a clean shutdown leaves."""
        segment = self.segments[-1]
        start, expected = 0, segment.base_offset
        if segment.index.count:
            relative, start = segment.index.entry(segment.index.count - 1)
            header = segment.header_at(start)
            if header is None or header.last_offset != segment.base_offset + relative:
                return None
            expected = header.base_offset
        largest = segment.largest_timestamp()[0]
        for item in segment.scan(start, segment.size, expected, NO_CEILING, segment.size):
            if isinstance(item, Damage) or item.header.max_timestamp > largest:
                return None
            expected = item.header.next_offset
        return expected

    def _check_indexes(self, segments: list[Segment]) -> None:
        """Build anew what is missing or can't be an index. What only a look inside would show is found by
        the look-ups, which check what they are told."""
        for segment in segments:
            whole = segment.index.intact(segment.size) and segment.times.intact(segment.size)
            if segment.size > 0 and not whole:
                _log.warning("%s and its time index are missing or damaged; built anew", segment.index.path)
                segment.rebuild_indexes(self._ceiling(segment))

    def _ceiling(self, segment: Segment) -> int:
        number = self.segments.index(segment)
        return self.segments[number + 1].base_offset if number + 1 < len(self.segments) else NO_CEILING

    # After a crash

    def _recover(self) -> int:
        """Read and check what is not known to be synced; the end offset."""
        doubtful = [s for s in self.segments if self._ceiling(s) > self.recovery_point]
        synced = self.segments[: len(self.segments) - len(doubtful)]
        self._check_indexes(synced)
        self._replay_producers(doubtful[0].base_offset)
        end = doubtful[0].base_offset
        for segment in doubtful:
            end = self._recover_segment(segment, end)
        self.recovered = doubtful
        return end

    def _recover_segment(self, segment: Segment, end: int) -> int:
        ceiling = self._ceiling(segment)
        last = segment is self.segments[-1]
        segment.start_indexes()
        interval = self.log.config.index_interval_bytes
        end = max(end, segment.base_offset)
        for item in segment.scan(0, segment.size, segment.base_offset, ceiling, 0):
            if isinstance(item, Batch):
                self._replay(item.header)
                header = item.header
                segment.added(item.position, header.size, header.last_offset, header.max_timestamp, interval)
                if segment.index.page_waits:
                    segment.write_indexes(final=False)
                end = header.next_offset
            elif last and item.tail and item.first_offset >= self.recovery_point:
                self._cut_tail(segment, item)
            else:
                if item.tail and last:
                    item = item._replace(next_offset=max(self.recovery_point, item.first_offset + 1))
                segment.report(item)
                end = item.next_offset
        segment.trusted_from = 0
        segment.write_indexes(final=True)
        return end

    def _cut_tail(self, segment: Segment, tail: Damage) -> None:
        _log.warning(
            "%s: cut at byte %d, %d bytes of a write that a crash cut off (%s)",
            segment.log.path,
            tail.position,
            tail.size,
            tail.reason,
        )
        file = segment.log.get()
        file.truncate(tail.position)
        file.sync()
        segment.size = segment.written = tail.position

    def _go_on_at(self, offset: int, *, clean: bool) -> None:
        """Take appends from ``offset`` on, which is the end of the log or beyond it."""
        log = self.log
        log.epochs.cut_start(log.log_start_offset)
        if not clean:
            # Readers that saw more than what is left find out by the epoch's end.
            log.epochs.cut_end(max(offset, 1))
            log.epochs.begin(log.epochs.latest + 1, offset)
            log.epochs.write()
        log.leader_epoch = log.epochs.latest
        active = log.segments[-1]
        lost = log.end_offset < self.recovery_point
        if lost:
            _log.error(
                "%s: records %d to %d were synced and are missing; the log goes on at %d",
                log.path,
                log.end_offset,
                self.recovery_point - 1,
                offset,
            )
        if offset > log.end_offset or any(damage.tail for damage in active.damage):
            log.end_offset = log.written_offset = offset
            log.start_segment(offset)
        log.recovered(self.recovered, synced_offset=offset if clean else min(self.recovery_point, offset))

    # Producers

    def _replay_producers(self, upto: int) -> None:
        """Producers' state as of ``upto``: the newest snapshot below it, and the batches after that."""
        producers = self.log.producers
        start = self.segments[0].base_offset
        for offset in reversed(self.snapshots):
            if offset > upto:
                continue
            path = f"{self.log.path}/{file_name(offset)}{SNAPSHOT_SUFFIX}"
            if producers.load(read_file(self.files, path)):
                start = offset
                break
            _log.warning("%s is damaged; producers' state is read from the log instead", path)
        for segment in self.segments:
            ceiling = min(self._ceiling(segment), upto)
            if start >= ceiling:
                continue
            position, expected = segment.anchor(start, self._ceiling(segment))
            for item in segment.scan(position, segment.size, expected, NO_CEILING, segment.size):
                if isinstance(item, Batch) and start <= item.header.base_offset < upto:
                    self._replay(item.header)
        producers.commit()

    def _replay(self, header: BatchHeader) -> None:
        if header.producer_id >= 0 and not header.is_control:
            self.log.producers.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                header.base_offset,
                # When it came is not known: the state is kept a little longer rather than forgotten early.
                self.now_ms,
            )
        if header.leader_epoch > self.log.epochs.latest:
            self.log.epochs.begin(header.leader_epoch, header.base_offset)
