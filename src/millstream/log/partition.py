"""A partition's log: appends, reads, and how much of it has reached the file and the disk.

    log_start_offset <= synced_offset <= written_offset <= end_offset

``append`` assigns offsets and stages small batches in memory. ``write_staged`` writes everything staged
to the file in one write, and from then on readers see it. ``sync`` makes it survive the machine. If a
write fails, everything staged is undone (offsets, index entries, producers' sequences), as if it had
never been appended. If a sync fails, the log takes no more writes, for good (``log.disk_failures``).

All methods belong to one thread, except ``sync``, which may run in another, one call at a time.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from crc32c import crc32c

from millstream.core.clock import Clock
from millstream.core.errors import AppendRefused, LogFailed, LogOffline
from millstream.core.kafka_errors import CORRUPT_MESSAGE
from millstream.core.topic_config import TopicConfig
from millstream.log.appended import Appended, appended
from millstream.log.compaction.compaction import Compaction
from millstream.log.disk_failures import fail, out_of_range, refused, sync_failed
from millstream.log.refusal import FROM_PRODUCERS, HIGHEST_CODEC, refusal
from millstream.log.retention import Retention, RetentionClock
from millstream.log.ring import Ring
from millstream.log.segment.scan import MAX_RELATIVE_OFFSET, Damage
from millstream.log.segment.segment import Segment, file_name
from millstream.log.segment.segments import NOTHING, LogSlice, Segments
from millstream.log.segment.time_search import OffsetAndTimestamp, Search, run_here
from millstream.log.segment.unsynced import Unsynced
from millstream.log.snapshots import snapshot_of
from millstream.log.state import LogState
from millstream.log.storage.files import FilePool, replace_file
from millstream.log.transactions import (
    OpenTransaction,
    ProducerDescription,
    RequestTransaction,
    describe_producers,
    open_transactions,
)
from millstream.log.validation import Verdict, abide_by, check_here, rules_of, verdict_of_plain
from millstream.records.batch import (
    CHECKED_FROM,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    STAMP,
    stamp,
    stamp_time,
)
from millstream.records.check import check
from millstream.records.markers import MARKER_SIZE, Marker, build_marker

_log = logging.getLogger(__name__)

STAGED_BELOW = 16 * 1024  # larger batches go straight to the file: copying them costs more than a write
_RECENT = 1024  # appends whose positions are cached for readers near the end

# Called before a transactional batch is appended, with the log, the transaction that the request names,
# producer id and epoch. Raises AppendRefused if there is no such transaction.
TransactionsGate = Callable[["PartitionLog", RequestTransaction | None, int, int], None]


class PartitionLog(LogState):
    """The log of one partition. ``LogDirectory.open_log`` opens and recovers it."""

    def __init__(
        self,
        topic: str,
        partition: int,
        config: TopicConfig,
        *,
        path: str,
        pool: FilePool,
        clock: Clock,
        save_start_offset: Callable[[], None],
        retention_clock: RetentionClock,
    ) -> None:
        super().__init__(topic, partition, path=path, pool=pool, clock=clock)
        self._undone: LogFailed | None = None  # a failure that write_staged has yet to raise
        self.suspended: LogFailed | None = None  # records are refused for now
        self.refusal: LogFailed | None = None  # all client writes are refused: another broker leads
        self._stopped: LogFailed | None = None  # the first of these that is set: appends are refused
        self.ring: Ring | None = None  # set once the log was a ring; see set_config()
        self._open = self.transactions.open
        self.transactions_gate: TransactionsGate | None = None  # None: all transactional batches are taken
        # Called with the new start before the log's start moves there, while the old records are readable.
        self.start_moves: Callable[[PartitionLog, int], None] | None = None
        self._newest_abort = -1  # no aborted transaction has offsets above this
        self.retention = Retention(self, retention_clock, save_start_offset)
        self.compaction = Compaction(self, self.retention)
        self._staged = bytearray()
        self._recent_offsets: list[int] = []  # of the last appends, all in the last segment
        self._recent_positions: list[int] = []
        self._unsynced = Unsynced(pool.files, path)
        self._changed = False  # since the log was opened
        self.set_config(config)

    def set_config(self, config: TopicConfig) -> None:
        """Take over changed settings. They apply from the next append on."""
        self.config = config
        self._max_message_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._segment_bytes = config.segment_bytes
        if self.ring is not None or config.millstream_overload == "drop":
            self.ring = self.ring or Ring(self)
            self._segment_bytes = self.ring.set_config(config)
            if self.ring.is_bounded:
                self.retention.remove_now()  # files deleted before it was a ring count towards its bound
            self._max_message_bytes = min(self._max_message_bytes, self.ring.limit)
        self._stamps_time = config.message_timestamp_type == "LogAppendTime"
        self._needs_keys, self._before_ms, self._after_ms, _ = self.rules = rules_of(config)
        # The active segment is not compacted, so it must not stay active for longer than a record may wait.
        lag = config.max_compaction_lag_ms if self._needs_keys else config.segment_ms
        self._segment_ms = min(config.segment_ms, lag)
        self._interval = config.index_interval_bytes
        self._index_entries = max(config.segment_index_bytes // 12, 1)
        self.syncs_every_append = config.flush_messages == 1

    def refuse(self, reason: LogFailed | None) -> None:
        """Refuse clients' appends, because another broker's log is the authority. None accepts them again."""
        self.refusal = reason
        self.suspend(self.suspended)

    @property
    def damage(self) -> list[Damage]:
        """The damaged ranges found so far."""
        return [damage for segment in self.segments for damage in segment.damage]

    # Called by recovery, to set the log up

    def adopt(self, segments: list[Segment], start_offset: int, end_offset: int) -> None:
        """Take over the segments found on disk, oldest first. All of them are synced."""
        self.segments = Segments(segments)
        self.log_start_offset = start_offset
        self.end_offset = self.written_offset = self.synced_offset = end_offset
        self.leader_epoch = self.epochs.latest
        self.segments.last.largest_timestamp(end_offset)
        self._newest_abort = self.segments.newest_abort()
        self._commit()

    def start_at(self, offset: int, *, new_directory: bool = False) -> None:
        """Continue at ``offset`` in a new segment: the first one, or the one after missing records."""
        self.end_offset = self.written_offset = self.synced_offset = offset
        self.leader_epoch = self.epochs.latest
        self._start_segment()
        if self.producers.states:
            # Retention deletes snapshots along with their segments, so the existing ones may disappear.
            self.write_snapshot(offset, sync=True)
        self._unsynced.parent = new_directory

    def go_offline(self, why: LogOffline) -> None:
        """Serve nobody, as there are no files. Without offsets every read is out of range, and ``read``
        refuses those."""
        self.start_at(0)
        self.log_start_offset = self.end_offset = self.written_offset = self.synced_offset = -1
        self.stop_for_good(why)

    # Appending

    def append(
        self,
        records: bytearray | memoryview,
        now_ms: int,
        transaction: RequestTransaction | None = None,
        verdict: Verdict | None = None,
    ) -> Appended:
        """Check a batch, stamp it with its offset, in place, and stage or write it. ``transaction`` is
        the one that the request names.

        ``verdict`` is for a compressed batch whose records a thread has checked. Without one, a batch
        that is too large for this thread raises CheckApart. Raises AppendRefused, with nothing changed.
        Raises LogFailed if the disk refuses. If that undid batches that were staged before, the next
        ``write_staged`` raises it again, and no append is taken until then."""
        if self._stopped is not None:
            raise type(self._stopped)(str(self._stopped))
        size = len(records)
        if size < HEADER_SIZE:
            raise refusal(records, self.config)
        (base, length, _, magic, crc, attributes, delta, first_timestamp, max_timestamp, producer_id, epoch,
         sequence, count) = HEADER.unpack_from(records)  # fmt: skip
        if (
            magic != MAGIC
            or length + PREFIX_SIZE != size
            or size > self._max_message_bytes
            or base != 0
            or delta < 0
            or count != delta + 1
            or attributes not in FROM_PRODUCERS
            or (producer_id != -1 and (producer_id < 0 or sequence < 0 or epoch < 0))
            or first_timestamp < NO_TIMESTAMP
            or max_timestamp < NO_TIMESTAMP
        ):
            raise refusal(records, self.config)
        actual = crc32c(memoryview(records)[CHECKED_FROM:])
        if actual != crc:
            raise AppendRefused(
                CORRUPT_MESSAGE,
                f"the batch's checksum is {crc:#010x}, the bytes received give {actual:#010x}",
            )
        if attributes & CODEC_MASK:
            verdict = verdict or check_here(records, self.rules, now_ms)
        elif check(records, HEADER_SIZE, count, first_timestamp, max_timestamp, now_ms - self._before_ms,
                   now_ms + self._after_ms, self._needs_keys):  # fmt: skip
            verdict = verdict_of_plain(records, self.rules, now_ms)
        if verdict is not None:
            max_timestamp = abide_by(verdict, records)
        append_time = NO_TIMESTAMP
        if self._stamps_time:
            append_time = max_timestamp = now_ms
            stamp_time(records, 0, now_ms)
        if producer_id >= 0:
            first = self.producers.check(producer_id, epoch, sequence, delta)
            if first is not None:
                time = first.time_ms if self._stamps_time else NO_TIMESTAMP
                return Appended(first.base_offset, time, self.log_start_offset, True)
            if attributes > HIGHEST_CODEC:
                if self.transactions_gate is not None:
                    self.transactions_gate(self, transaction, producer_id, epoch)
                if (known := self.producers.states.get(producer_id)) is not None:
                    self.transactions.check_epoch(producer_id, epoch, known[0])
            elif self._open:
                self.transactions.check_plain(producer_id)
        elif attributes > HIGHEST_CODEC:
            raise refusal(records, self.config)

        offset = self.end_offset
        self._place(size, offset + delta, max_timestamp, now_ms)
        STAMP.pack_into(records, 0, offset, length, self.leader_epoch)
        if producer_id >= 0:
            self.producers.record(producer_id, epoch, sequence, delta, offset, now_ms)
            if attributes > HIGHEST_CODEC:
                self.transactions.wrote(producer_id, offset, now_ms)
        if size < STAGED_BELOW:
            self._staged += records
        else:
            self._write(records)
        return appended((offset, append_time, self.log_start_offset, False))

    def append_marker(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> int:
        """Stage the marker that ends a producer's transaction here; returns its offset. Readers see the
        outcome once the marker is written. Raises as ``append`` does."""
        # Suspended records don't stop markers: there are few of them, and they end transactions.
        if stopped := self.failed or self._undone or self.refusal:
            raise type(stopped)(str(stopped))
        self.producers.check_marker(producer_id, epoch)
        self.transactions.check_coordinator(producer_id, coordinator_epoch)
        offset = self.end_offset
        self._place(MARKER_SIZE, offset, now_ms, now_ms)
        marker = build_marker(
            Marker.COMMIT if commit else Marker.ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=now_ms,
            coordinator_epoch=coordinator_epoch,
        )
        if self._stamps_time:
            stamp_time(marker, 0, now_ms)
        stamp(marker, 0, offset, self.leader_epoch)
        self.producers.record_marker(producer_id, epoch, now_ms)
        self.transactions.ended(producer_id, offset, commit=commit, coordinator_epoch=coordinator_epoch)
        self._staged += marker
        return offset

    def _place(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> None:
        """Assign the next offsets to a batch and account for it, in a new segment if the last is full."""
        segment = self.segments.last
        position = segment.size
        first_ms = segment.first_timestamp
        if position + size > self._segment_bytes or (
            position
            and (
                last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
                or max_timestamp - (first_ms if first_ms and first_ms > 0 else segment.rolls_from(now_ms))
                > self._segment_ms - segment.jitter_ms
                or segment.index.count >= self._index_entries
                or segment.times.count >= self._index_entries
            )
        ):
            self.roll(size)
            segment = self.segments.last
            position = 0
        if size >= STAGED_BELOW and self._staged:
            self._write_staged_early()
        segment.added(position, size, last_offset, max_timestamp, self._interval)
        segment.size = position + size
        self._recent_offsets.append(self.end_offset)
        self._recent_positions.append(position)
        self.end_offset = last_offset + 1

    def roll(self, size: int = 0) -> None:
        sealed = self.segments.last
        self._write_staged_early()
        try:
            if sealed.size:
                sealed.write_indexes(final=True)
                self.write_snapshot(self.end_offset)
                # In this order, so that a concurrent sync finds the segment in one place or the other.
                self._unsynced.sealed.append(sealed)
                self._start_segment()
            if self.ring is not None:
                self.ring.make_room(size)
        except OSError as error:
            raise refused(self, "start a new segment", error) from error

    def roll_by_time(self, now_ms: int) -> None:
        """Start a new segment if segment.ms has passed."""
        last = self.segments.last
        if last.size and now_ms - last.rolls_from(now_ms) > self._segment_ms - last.jitter_ms:
            self.roll()

    def _start_segment(self) -> None:
        """Start a new last segment. Raises OSError, with nothing changed, if its file can't be created."""
        gaps = self.end_offset < self.compaction.gaps_below
        path = f"{self.path}/{file_name(self.end_offset)}"
        segment = Segment(self.pool, path, self.end_offset, gaps=gaps)
        segment.log.get(create=True).truncate(0)
        if self.config.segment_jitter_ms:
            segment.jitter_ms = random.randrange(self.config.segment_jitter_ms)
        self._unsynced.names = self._changed = True
        self.segments.append(segment)
        self._recent_offsets.clear()
        self._recent_positions.clear()
        self._commit()

    def write_snapshot(self, offset: int, *, sync: bool = False) -> None:
        """Save the producers' state, which is that at ``offset``. Everything before it is in the file."""
        snapshot = snapshot_of(self.producers, self.transactions)
        replace_file(self.pool.files, self.snapshot_path(offset), snapshot, sync=sync)

    # Writing and syncing

    def write_staged(self) -> None:
        """Write what is staged to the file. Raises LogFailed if the disk refuses: then everything
        appended since the last call is undone, except what ``written_offset`` covers."""
        if self._undone is not None:
            undone, self._undone = self._undone, None
            self._stopped = self.failed or self.refusal or self.suspended
            raise undone
        if self._staged:
            self._write(self._staged)
            self._staged.clear()

    def _write_staged_early(self) -> None:
        """Write what is staged before a large batch or a new segment. If that undoes batches,
        ``write_staged`` raises the failure too, because that is where those who appended them learn of it."""
        if not self._staged:
            return
        try:
            self._write(self._staged)
        except LogFailed as failure:
            self._undone = self._stopped = failure
            raise
        self._staged.clear()

    def _write(self, data: bytearray | memoryview) -> None:
        segment = self.segments.last
        try:
            segment.log.get().pwrite(data, segment.written)
        except OSError as error:
            self._undo()
            self._cut_file(segment)
            raise refused(self, "write", error) from error
        self.written_offset = self.end_offset
        self._changed = True
        if self._unsynced.oldest_ms is None:
            self._unsynced.oldest_ms = self.clock.now_ms()
        self._commit()
        if segment.index.page_waits or segment.aborted.page_waits:
            try:
                segment.write_indexes(final=False)
            except OSError as error:
                # The entries keep waiting. Indexes are derived data; the records are safe.
                _log.warning("can't write %s: %s", segment.index.path, error)

    def _commit(self) -> None:
        """Note that everything appended is in the file: a failed write goes back to this state."""
        segment = self.segments.last
        segment.commit()
        self.producers.commit()
        if self.transactions.unwritten:
            for aborted in self.transactions.commit():
                segment.aborted.append(aborted)
                self._newest_abort = aborted.last_offset
        if len(self._recent_offsets) > _RECENT:
            del self._recent_offsets[: -_RECENT // 2]
            del self._recent_positions[: -_RECENT // 2]

    def _undo(self) -> None:
        """Go back to the state after the last write."""
        self.segments.last.undo()
        self.end_offset = self.written_offset
        kept = bisect_right(self._recent_offsets, self.written_offset - 1)
        del self._recent_offsets[kept:]
        del self._recent_positions[kept:]
        self._staged.clear()
        self.producers.undo()
        self.transactions.undo()

    def _cut_file(self, segment: Segment) -> None:
        """Remove what a failed write left in the file. After a crash it would be taken for records, so if
        removing it fails too, the log takes no more writes."""
        try:
            segment.log.get().truncate(segment.written)
        except OSError as error:
            fail(self, f"can't undo a failed write to {segment.log.path}: {error.strerror or error}")

    def stop_for_good(self, failure: LogFailed) -> None:
        self.failed = self._stopped = failure

    def suspend(self, why: LogFailed | None) -> None:
        """Take no more records until this is called with None. Markers and reads continue."""
        self.suspended = why
        self._stopped = self.failed or self._undone or self.refusal or why

    def sync(self) -> int:
        """Block until everything written before this call is on the disk; returns its end offset. For a
        pool thread, one call at a time. Any error but a lack of descriptors stops the log for good."""
        if self.failed is not None:
            raise LogFailed(str(self.failed))
        upto = self.written_offset
        dropped = self.ring.dropped() if self.ring is not None else None
        try:
            self._unsynced.sync(self.segments)
            if dropped and self.ring is not None:
                self.ring.remove(dropped)
        except OSError as error:
            raise sync_failed(self, error) from error
        if upto > self.synced_offset:
            self.synced_offset = upto
        return upto

    def sync_names(self) -> None:
        try:
            self._unsynced.sync_names()
        except OSError as error:
            raise sync_failed(self, error) from error

    @property
    def wants_sync(self) -> bool:
        """True if enough was written for flush.messages, or a segment was sealed."""
        return (
            bool(self._unsynced.sealed)
            or self.written_offset - self.synced_offset >= self.config.flush_messages
        )

    def sync_due(self, now_ms: int) -> bool:
        """True if something written has waited for flush.ms."""
        return self._unsynced.has_waited(self.config.flush_ms, now_ms)

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, upto: int | None = None, at_least_one: bool = True
    ) -> LogSlice:
        """Batches, starting with the one that holds ``offset``; see LogSlice. Raises OffsetOutOfRange,
        OffsetArchived, or LogError with code 2 if the records are damaged."""
        limit = self.written_offset
        if upto is not None and upto < limit:
            limit = upto
        if offset >= limit or offset < self.log_start_offset:
            if self.log_start_offset <= offset <= self.end_offset:
                return NOTHING
            raise out_of_range(self, offset)
        recent = self._recent_offsets
        if recent and offset >= recent[0]:
            segment = self.segments.last
            positions = self._recent_positions
            number = bisect_right(recent, offset) - 1
            position = positions[number]
            end = segment.written if limit == self.written_offset else self._recent_position(limit)
            size = end - position
            if size > max_bytes:
                following = positions[number + 1] if number + 1 < len(positions) else segment.size
                first = following - position
                if max_bytes >= first:
                    size = max_bytes
                elif at_least_one:
                    size = first
                else:
                    return NOTHING
            return LogSlice(segment.log.get(), position, size)
        return self._read_older(offset, max_bytes, limit, at_least_one)

    def _read_older(self, offset: int, max_bytes: int, limit: int, at_least_one: bool) -> LogSlice:
        if offset < self.segments[0].base_offset and self.archive.segments:
            raise self.archive.referral(self.name, offset, self.segments[0].base_offset)
        recent = self._recent_offsets
        stop: int | None = None
        if recent and limit >= recent[0]:
            stop = self._recent_position(limit)
        return self.segments.read(offset, max_bytes, limit, at_least_one, end=self.written_offset, stop=stop)

    def _recent_position(self, offset: int) -> int:
        return self._recent_positions[bisect_right(self._recent_offsets, offset) - 1]

    def bytes_from(self, offset: int) -> int:
        """How many bytes the log has from ``offset`` on. From the index, so perhaps a few KB too many."""
        return self.segments.size_from(offset) if offset < self.end_offset else 0

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is not older, if any. For a thread, not for a loop."""
        return run_here(self.search_time(timestamp_ms))

    def search_time(self, timestamp_ms: int) -> Search[OffsetAndTimestamp | None]:
        return self.segments.first_at(timestamp_ms, self.log_start_offset, end=self.written_offset)

    def max_timestamp_offset(self) -> tuple[int, int]:
        """(offset, timestamp) of the first record with the largest timestamp; (-1, -1) if there is none."""
        return run_here(self.search_newest())

    def search_newest(self) -> Search[OffsetAndTimestamp]:
        return self.segments.newest(self.log_start_offset, end=self.written_offset)

    # Transactions

    def open_transactions(self) -> dict[int, OpenTransaction]:
        """Open transactions by producer id, oldest first. Staged batches and markers count."""
        return open_transactions(self.producers, self.transactions)

    def describe_producers(self) -> list[ProducerDescription]:
        return describe_producers(self.producers, self.transactions)

    def aborted(self, start_offset: int, upto: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions with offsets from ``start_offset`` up
        to ``upto``, exclusive."""
        return self.segments.aborted(start_offset, upto) if start_offset <= self._newest_abort else []

    def aborted_in(self, offset: int, part: LogSlice) -> list[tuple[int, int]]:
        """What readers of committed records leave out of ``part``, which was read from ``offset``."""
        if offset > self._newest_abort:
            return []
        recent = self._recent_offsets
        if recent and offset >= recent[0]:
            number = bisect_left(self._recent_positions, part.position + part.size)
            upto = recent[number] if number < len(recent) else self.written_offset
        else:
            upto = self.segments.offset_after(offset, part, end=self.written_offset)
        return self.aborted(offset, upto)

    # Deleting

    def announce_start(self, offset: int) -> None:
        if self.start_moves is not None:
            self.start_moves(self, offset)

    def delete_records(self, offset: int) -> int:
        """Move the start up to ``offset``, durably; -1 stands for everything written. Returns the start.
        Blocks for a sync. The next retention deletes segments that are entirely below."""
        return self.retention.trim(self.written_offset if offset == -1 else offset)

    def apply_retention(self, now_ms: int) -> list[Segment]:
        """Delete segments that are due, and roll by ``segment.ms``. Returns the segments deleted now."""
        if self.failed is not None:
            return []
        self.roll_by_time(now_ms)
        try:
            if self.ring is not None:
                self.ring.shrink()
            return self.retention.apply(now_ms, self.ring)
        except OSError as error:
            raise refused(self, "delete old segments", error) from error

    def expire_producers(self, now_ms: int, idle_ms: int) -> int:
        """Forget producers without an open transaction that were idle for ``idle_ms``. Returns how many."""
        gone = self.producers.expire(now_ms - idle_ms, keep=self.transactions.open)
        for producer_id in gone:
            self.transactions.coordinators.pop(producer_id, None)
        return len(gone)

    # Closing

    def abandon(self) -> None:
        """Stop appends and syncs: the files are about to be deleted. Slices can still be read."""
        self.stop_for_good(LogFailed(f"{self.name}: the log is deleted"))
        self._unsynced.names = self._unsynced.parent = False
        for segment in self.segments:
            segment.let_go()

    def close(self) -> None:
        """Write, sync and snapshot, so that the next start need not scan. A failed log is left as it is."""
        if self.failed is not None:
            return
        self._write_staged_early()
        last = self.segments.last
        try:
            if not self.epochs.is_written:
                self.epochs.write(sync=True)
            if not self._changed:
                return
            last.write_indexes(final=True)
            last.index.sync()
            last.times.sync()
            last.aborted.sync()
            self.write_snapshot(self.end_offset, sync=True)
        except OSError as error:
            raise refused(self, "close", error) from error
        self._unsynced.names = True
        self.sync()
        self._changed = False
