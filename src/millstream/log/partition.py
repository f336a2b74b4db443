"""A partition's log: appends, reads, and what of it has reached the file and the disk.

    log_start_offset <= synced_offset <= written_offset <= end_offset

``append`` gives offsets and stages small batches in memory; ``write_staged`` puts what is staged into the file with
one write, and from then on it is read; ``sync`` makes it survive the machine. If a write fails, all that was staged is
undone: offsets, index entries, producers' sequences, as if it had never been appended. If a sync fails the log takes
no more writes, for good: after a failed sync nobody knows what is on the disk (fail-stop).

All methods belong to one thread, but for ``sync``, which may run in another, one at a time.
"""

from __future__ import annotations

import errno
import logging
import random
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from millstream.clock import Clock
from millstream.config import TopicConfig
from millstream.errors import AppendRefused, LogFailed, OffsetOutOfRange
from millstream.log.epochs import LeaderEpochs
from millstream.log.files import File, FilePool, replace_file
from millstream.log.producers import Producers
from millstream.log.refusal import CORRUPT_MESSAGE, HIGHEST_CODEC, refusal
from millstream.log.retention import RetentionClock, due
from millstream.log.scan import Damage
from millstream.log.segment import DELETED_SUFFIX, Segment, file_name, offset_of
from millstream.log.segments import NOTHING, Segments, Slice
from millstream.records.batch import (
    CHECKED_FROM,
    CRC,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    STAMP,
)

_log = logging.getLogger(__name__)

STAGED_BELOW = 16 * 1024  # larger batches go straight to the file: copying them costs more than a write
SNAPSHOT_SUFFIX = ".snapshot"
_RECENT = 1024  # appends whose positions are remembered for readers near the end
_MAX_RELATIVE_OFFSET = 0x7FFFFFFF
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_COMES_BACK = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Appended(NamedTuple):
    """What a producer is told."""

    base_offset: int
    log_append_time: int  # -1 for CreateTime
    log_start_offset: int
    duplicate: bool


class _Mark(NamedTuple):
    """The state of the last segment when all was in the file, to go back to if a write fails."""

    size: int
    bytes_since_index: int
    index_count: int
    times_count: int
    max_timestamp: int | None
    max_timestamp_offset: int
    first_timestamp: int | None


class PartitionLog:
    """One partition. Opened by ``LogDirectory.open_log``, which also recovers it."""

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
        self.topic = topic
        self.partition = partition
        self.path = path
        self.pool = pool
        self.clock = clock
        self.failed: LogFailed | None = None  # for good
        self._undone: LogFailed | None = None  # what write_staged has yet to tell
        self._stopped: LogFailed | None = None  # either of them: appends are refused
        self.log_start_offset = 0
        self.end_offset = 0
        self.written_offset = 0
        self.synced_offset = 0
        self.leader_epoch = 0
        self.epochs = LeaderEpochs(pool.files, path)
        self.producers = Producers()
        self.segments = Segments()
        self._save_start_offset = save_start_offset
        self._retention_clock = retention_clock
        self._deleted: list[tuple[int, list[str]]] = []  # when the files may go, and which
        self._staged = bytearray()
        self._recent_offsets: list[int] = []
        self._recent_positions: list[int] = []
        self._unsynced: list[File] = []  # sealed segments' files, with writes that no sync has covered
        self._active_file: File | None = None  # held while it has such writes, so that a sync hears of errors
        self._names_unsynced = True  # files were created in this directory since it was synced
        self.parent_unsynced = False
        self._oldest_unsynced_ms: int | None = None
        self.set_config(config)

    # Configuration

    def set_config(self, config: TopicConfig) -> None:
        """Settings may change while the log is in use; they count from the next append on."""
        self.config = config
        self._max_message_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._stamps_time = config.message_timestamp_type == "LogAppendTime"
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.segment_ms
        self._interval = config.index_interval_bytes
        self._index_entries = min(config.segment_index_bytes // 8, config.segment_index_bytes // 12)

    @property
    def last_stable_offset(self) -> int:
        return self.written_offset

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return self.segments.size

    @property
    def damage(self) -> list[Damage]:
        """The damaged stretches found so far."""
        return [damage for segment in self.segments for damage in segment.damage]

    # Opening: what the directory and recovery call

    def adopt(self, segments: list[Segment], end_offset: int) -> None:
        """Take the segments found on disk, oldest first."""
        self.segments = Segments(segments)
        self.end_offset = self.written_offset = end_offset
        self.leader_epoch = self.epochs.latest
        self._commit()

    def recovered(self, segments: list[Segment], *, synced_offset: int) -> None:
        """What the disk is known to hold. ``segments`` were read after a crash, and may be in the operating
        system's cache alone: the next sync covers them."""
        self.synced_offset = synced_offset
        self._unsynced = [segment.log.get() for segment in segments]

    def start_segment(self, base_offset: int) -> None:
        """A new last segment; raises OSError, with nothing changed, if its file can't be made."""
        path = f"{self.path}/{file_name(base_offset)}"
        segment = Segment(self.pool, path, base_offset)
        segment.log.get(create=True).truncate(0)
        segment.jitter_ms = (
            random.randrange(self.config.segment_jitter_ms) if self.config.segment_jitter_ms else 0
        )
        self._names_unsynced = True
        self.segments.append(segment)
        self._recent_offsets.clear()
        self._recent_positions.clear()
        self._active_file = None
        self._commit()

    # Appending

    def append(self, records: bytearray | memoryview, now_ms: int) -> Appended:
        """Check a batch, stamp it with its offset, in place, and stage or write it.

        Raises AppendRefused, with nothing changed. Raises LogFailed if the disk refuses; if that undid what
        was staged before, the next ``write_staged`` raises it again, and no append is taken until then."""
        if self._stopped is not None:
            raise LogFailed(str(self._stopped))
        size = len(records)
        if size < HEADER_SIZE:
            raise refusal(records, self.config, now_ms)
        (base, length, _, magic, crc, attributes, delta, first_timestamp, max_timestamp, producer_id, epoch,
         sequence, count) = HEADER.unpack_from(records)  # fmt: skip
        if (
            magic != MAGIC
            or length + PREFIX_SIZE != size
            or size > self._max_message_bytes
            or base != 0
            or delta < 0
            or count != delta + 1
            or not 0 <= attributes <= HIGHEST_CODEC
            or (producer_id != -1 and (sequence < 0 or epoch < 0))
            or first_timestamp < NO_TIMESTAMP
            or max_timestamp < NO_TIMESTAMP
        ):
            raise refusal(records, self.config, now_ms)
        actual = crc32c(memoryview(records)[CHECKED_FROM:])
        if actual != crc:
            raise AppendRefused(
                CORRUPT_MESSAGE,
                f"the batch's checksum is {crc:#010x}, the bytes that came give {actual:#010x}",
            )
        if producer_id >= 0:
            first = self.producers.check(producer_id, epoch, sequence, delta)
            if first is not None:
                time = first.time_ms if self._stamps_time else NO_TIMESTAMP
                return Appended(first.base_offset, time, self.log_start_offset, True)
        append_time = NO_TIMESTAMP
        if self._stamps_time:
            append_time = max_timestamp = now_ms
            _stamp_time(records, attributes, now_ms)
        elif max_timestamp - now_ms > self._after_max_ms or (
            now_ms - first_timestamp > self._before_max_ms and first_timestamp != NO_TIMESTAMP
        ):
            raise refusal(records, self.config, now_ms)

        offset = self.end_offset
        last_offset = offset + delta
        segment = self.segments.last
        position = segment.size
        if position and (
            position + size > self._segment_bytes
            or last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET
            or max_timestamp - self._rolls_from(segment, now_ms) > self._segment_ms - segment.jitter_ms
            or segment.index.count >= self._index_entries
            or segment.times.count >= self._index_entries
        ):
            self.roll()
            segment = self.segments.last
            position = 0

        STAMP.pack_into(records, 0, offset, length, self.leader_epoch)
        if size >= STAGED_BELOW and self._staged:
            self._write_staged_early()
        segment.added(position, size, last_offset, max_timestamp, self._interval)
        segment.size = position + size
        if producer_id >= 0:
            self.producers.record(producer_id, epoch, sequence, delta, offset, now_ms)
        self.end_offset = last_offset + 1
        self._recent_offsets.append(offset)
        self._recent_positions.append(position)
        if size < STAGED_BELOW:
            self._staged += records
        else:
            self._write(records)
        return Appended(offset, append_time, self.log_start_offset, False)

    def _rolls_from(self, segment: Segment, now_ms: int) -> int:
        """The time that segment.ms counts from: of the segment's first batch, as Kafka does it."""
        if segment.first_timestamp is None:
            segment.first_timestamp = HEADER.unpack(segment.log.get().pread(HEADER_SIZE, 0))[8]
        return segment.first_timestamp if segment.first_timestamp >= 0 else now_ms

    def roll(self) -> None:
        """Seal the last segment and start another one at the end offset."""
        self._write_staged_early()
        sealed = self.segments.last
        file = self._active_file
        try:
            sealed.write_indexes(final=True)
            self.write_snapshot()
            self.start_segment(self.end_offset)
        except OSError as error:
            raise self._refused("start a new segment", error) from error
        if file is not None:
            self._unsynced.append(file)

    def write_snapshot(self, *, sync: bool = False) -> None:
        """Keep the producers' state as of the end offset, all of which is in the file."""
        path = f"{self.path}/{file_name(self.end_offset)}{SNAPSHOT_SUFFIX}"
        replace_file(self.pool.files, path, self.producers.snapshot(), sync=sync)

    # Writing and syncing

    def write_staged(self) -> None:
        """Put what is staged into the file. Raises LogFailed if the disk refuses: then everything appended
        since the last call of this is undone."""
        if self._undone is not None:
            undone, self._undone, self._stopped = self._undone, None, self.failed
            raise undone
        if self._staged:
            self._write(self._staged)
            self._staged.clear()

    def _write_staged_early(self) -> None:
        """Before a large batch or a new segment. Whoever appended what is undone here hears of it from
        ``write_staged``, which is where they look."""
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
            file = self._active_file
            if file is None:
                file = self._active_file = segment.log.get()
            file.pwrite(data, segment.written)
        except OSError as error:
            self._undo()
            self._cut_file(segment)
            raise self._refused("write", error) from error
        segment.written = segment.size
        self.written_offset = self.end_offset
        if self._oldest_unsynced_ms is None:
            self._oldest_unsynced_ms = self.clock.now_ms()
        if segment.index.page_waits:
            try:
                segment.write_indexes(final=False)
            except OSError as error:
                # The entries wait on; indexes are derived data, the records are safe.
                _log.warning("can't write %s: %s", segment.index.path, error)
        self._commit()

    def _commit(self) -> None:
        """All that was appended is in the file: this is what a failed write goes back to."""
        segment = self.segments.last
        self._mark = _Mark(
            segment.size,
            segment.bytes_since_index,
            segment.index.count,
            segment.times.count,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            segment.first_timestamp,
        )
        self.producers.commit()
        if len(self._recent_offsets) > _RECENT:
            del self._recent_offsets[: -_RECENT // 2]
            del self._recent_positions[: -_RECENT // 2]

    def _undo(self) -> None:
        """As if nothing had been appended since the last write."""
        segment, mark = self.segments.last, self._mark
        segment.index.forget(mark.index_count)
        segment.times.forget(mark.times_count)
        (segment.size, segment.bytes_since_index, _, _, segment.max_timestamp, segment.max_timestamp_offset,
         segment.first_timestamp) = mark  # fmt: skip
        self.end_offset = self.written_offset
        kept = bisect_right(self._recent_offsets, self.written_offset - 1)
        del self._recent_offsets[kept:]
        del self._recent_positions[kept:]
        self._staged.clear()
        self.producers.undo()

    def _cut_file(self, segment: Segment) -> None:
        """Remove the part of a failed write that did get into the file. What stayed would be taken for
        records after a crash, so if this fails too the log takes no more writes."""
        try:
            segment.log.get().truncate(segment.written)
        except OSError as error:
            self._fail(LogFailed(f"{self.name}: can't undo a failed write to {segment.log.path}: {error}"))

    def _fail(self, failure: LogFailed) -> None:
        """No more writes, for good."""
        self.failed = self._stopped = failure

    def _refused(self, action: str, error: OSError) -> LogFailed:
        failure = LogFailed(f"{self.name}: can't {action}: {error.strerror or error}")
        if error.errno not in _COMES_BACK and self.failed is None:
            self._fail(failure)
        _log.error("%s", failure)
        return failure

    def sync(self) -> int:
        """Block until all that was written when this was called is on the disk; the offset below which all
        is. For a pool thread; one call at a time. An error fails the log for good."""
        if self.failed is not None:
            raise LogFailed(str(self.failed))
        upto = self.written_offset
        sealed = list(self._unsynced)
        active = self._active_file
        oldest = self._oldest_unsynced_ms
        self._oldest_unsynced_ms = None
        files = self.pool.files
        try:
            for file in sealed:
                file.sync()
            if active is not None and active not in sealed:
                active.sync()
            if self._names_unsynced:
                self._names_unsynced = False
                files.sync_directory(self.path)
            if self.parent_unsynced:
                self.parent_unsynced = False
                files.sync_directory(self.path.rpartition("/")[0])
        except OSError as error:
            self._oldest_unsynced_ms = oldest
            failure = LogFailed(
                f"{self.name}: the disk failed to sync ({error.strerror or error}): no more writes are taken, "
                "because what it holds is unknown. Check the disk, then restart the broker."
            )
            self._fail(failure)
            _log.error("%s", failure)
            raise failure from error
        del self._unsynced[: len(sealed)]
        if upto > self.synced_offset:
            self.synced_offset = upto
        return upto

    @property
    def wants_sync(self) -> bool:
        """Enough was written for flush.messages, or a segment was sealed."""
        return bool(self._unsynced) or self.written_offset - self.synced_offset >= self.config.flush_messages

    def sync_due(self, now_ms: int) -> bool:
        """Something written has waited for flush.ms."""
        oldest = self._oldest_unsynced_ms
        return oldest is not None and now_ms - oldest >= self.config.flush_ms

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, upto: int | None = None, at_least_one: bool = True
    ) -> Slice:
        """Batches from the one that holds ``offset``; see Slice. Raises OffsetOutOfRange, or LogError with
        code 2 where the records are damaged."""
        limit = self.written_offset
        if upto is not None and upto < limit:
            limit = upto
        if offset >= limit or offset < self.log_start_offset:
            if self.log_start_offset <= offset <= self.end_offset:
                return NOTHING
            raise OffsetOutOfRange(
                f"{self.name} has offsets {self.log_start_offset} to {self.end_offset}, not {offset}"
            )
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
            return Slice(segment.log.get(), position, size)
        return self._read_older(offset, max_bytes, limit, at_least_one)

    def _read_older(self, offset: int, max_bytes: int, limit: int, at_least_one: bool) -> Slice:
        recent = self._recent_offsets
        stop: int | None = None
        if recent and limit >= recent[0]:
            stop = self._recent_position(limit)
        return self.segments.read(offset, max_bytes, limit, at_least_one, end=self.written_offset, stop=stop)

    def _recent_position(self, offset: int) -> int:
        return self._recent_positions[bisect_right(self._recent_offsets, offset) - 1]

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is not older than ``timestamp_ms``; None if all are."""
        return self.segments.first_at(timestamp_ms, self.log_start_offset, end=self.written_offset)

    def max_timestamp_offset(self) -> tuple[int, int]:
        """(offset, timestamp) of the first record with the largest timestamp; (-1, -1) if there is none."""
        return self.segments.newest(self.log_start_offset, end=self.written_offset)

    # Deleting

    def delete_records(self, offset: int) -> int:
        """Records below ``offset`` are no more, also after a crash; the new start. -1 stands for all that is
        written. Blocks for a sync. Segments that are wholly below go with the next retention."""
        if offset == -1:
            offset = self.written_offset
        if not 0 <= offset <= self.written_offset:
            raise OffsetOutOfRange(
                f"{self.name} has offsets up to {self.written_offset}; it can't be trimmed to {offset}"
            )
        if offset > self.log_start_offset:
            before, self.log_start_offset = self.log_start_offset, offset
            try:
                self._save_start_offset()
            except OSError as error:
                self.log_start_offset = before
                raise self._refused("delete records", error) from error
        return self.log_start_offset

    def apply_retention(self, now_ms: int) -> list[Segment]:
        """Delete the segments that are due, and remove the files of those deleted long enough ago; start a new
        segment where segment.ms has passed. Returns the segments deleted now."""
        self._remove_deleted(now_ms)
        if self.failed is not None:
            return []
        self.write_staged()
        last = self.segments.last
        if last.size and now_ms - self._rolls_from(last, now_ms) > self._segment_ms - last.jitter_ms:
            self.roll()
        config = self.config
        by_policy = "delete" in config.cleanup_policy
        count = due(
            self.segments,
            start_offset=self.log_start_offset,
            now_ms=self._retention_clock.now_ms(now_ms, self.clock.monotonic()),
            retention_ms=config.retention_ms if by_policy else -1,
            retention_bytes=config.retention_bytes if by_policy else -1,
            end=self.written_offset,
        )
        if count == 0:
            return []
        if count == len(self.segments):
            self.roll()
        return self._delete_first(count, now_ms)

    def _delete_first(self, count: int, now_ms: int) -> list[Segment]:
        files = self.pool.files
        try:
            # The file that is left names the end offset: it has to be on the disk before the others go.
            if self._names_unsynced:
                files.sync_directory(self.path)
                self._names_unsynced = False
            start = self.segments[count].base_offset
            removed = self.segments.remove_first(count)
            self.log_start_offset = max(self.log_start_offset, start)
            self.epochs.cut_start(self.log_start_offset)
            names = [name for segment in removed for name in segment.rename(DELETED_SUFFIX)]
            names += self._old_snapshots(start)
            self._deleted.append((now_ms + self.config.file_delete_delay_ms, names))
        except OSError as error:
            raise self._refused("delete old segments", error) from error
        _log.info("%s: %d segments deleted, the log starts at %d", self.name, count, self.log_start_offset)
        return removed

    def _old_snapshots(self, start: int) -> list[str]:
        """Producers' snapshots from before the log's start, renamed like its segments."""
        files = self.pool.files
        old = [
            f"{self.path}/{name}"
            for name in files.listing(self.path)
            if name.endswith(SNAPSHOT_SUFFIX) and 0 <= offset_of(name) < start
        ]
        for name in old:
            files.rename(name, name + DELETED_SUFFIX)
        return [name + DELETED_SUFFIX for name in old]

    def _remove_deleted(self, now_ms: int) -> None:
        waiting = []
        for due_ms, names in self._deleted:
            # A clock that was set back must not keep them for years.
            if now_ms >= due_ms or due_ms - now_ms > self.config.file_delete_delay_ms:
                self.pool.files.discard(names)
            else:
                waiting.append((due_ms, names))
        self._deleted = waiting

    def expire_producers(self, now_ms: int, idle_ms: int) -> int:
        """Forget producers that have not written for ``idle_ms``; how many."""
        return self.producers.expire(now_ms - idle_ms)

    # Closing

    def close(self) -> None:
        """Write, sync and snapshot, so that the next start need not scan. A failed log is left as it is."""
        if self.failed is not None:
            return
        self.write_staged()
        active = self.segments.last
        try:
            active.write_indexes(final=True)
            active.index.sync()
            active.times.sync()
            self.write_snapshot(sync=True)
            self.epochs.write(sync=True)
        except OSError as error:
            raise self._refused("close", error) from error
        self._active_file = self._active_file or active.log.get()
        self.sync()


def _stamp_time(records: bytearray | memoryview, attributes: int, now_ms: int) -> None:
    """Make the time of arrival the batch's timestamp, which is under the checksum."""
    records[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2] = (attributes | LOG_APPEND_TIME).to_bytes(2, "big")
    records[_MAX_TIMESTAMP_AT : _MAX_TIMESTAMP_AT + 8] = now_ms.to_bytes(8, "big")
    CRC.pack_into(records, CRC_AT, crc32c(memoryview(records)[CHECKED_FROM:]))
