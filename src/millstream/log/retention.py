"""Deletes old segments by time, by size, and below the log start offset, locally and in the archive.

An archived topic has two retentions. ``local.retention.*`` covers this disk, and deletes only what is
safely in the archive. ``retention.*`` covers the whole log, and deletes from the archive.

The last segment is never deleted. When its records are due, another one is started after it. Deletion
takes two steps: the segment's files get the suffix ``.deleted`` at once, and are removed after
``file.delete.delay.ms``. Readers that hold a slice of the segment continue.

A segment's age is its newest record's timestamp against the wall clock, and wall clocks jump. A jump back
deletes nothing. A jump ahead would delete everything at once, so it is ignored for an hour, which leaves
time to correct the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.core.errors import IndexRebuilding, OffsetOutOfRange
from millstream.log.disk_failures import refused
from millstream.log.ring import Ring
from millstream.log.segment.segment import DELETED_SUFFIX, Segment, offset_of
from millstream.log.snapshots import SNAPSHOT_SUFFIX
from millstream.log.state import LogState
from millstream.log.storage.files import rename_all, sync_if_there

_log = logging.getLogger(__name__)

AS_RETENTION = -2  # of local.retention.*: the same as retention.*
BELIEVED_AFTER_S = 3600.0
JUMP_MS = 5 * 60 * 1000


class RetentionClock:
    """The wall clock, with jumps ahead ignored until they have lasted. Both clocks are passed in."""

    __slots__ = ("_doubted_since", "_monotonic", "_wall_ms")

    def __init__(self) -> None:
        self._wall_ms: float | None = None  # the wall clock as last trusted, at _monotonic
        self._monotonic = 0.0
        self._doubted_since: float | None = None

    def now_ms(self, wall_ms: int, monotonic: float) -> int:
        """The time that retention uses."""
        if self._wall_ms is None:
            return self._believe(wall_ms, monotonic)
        expected = self._wall_ms + (monotonic - self._monotonic) * 1000
        if wall_ms <= expected + JUMP_MS:
            return self._believe(wall_ms, monotonic)
        if self._doubted_since is None:
            self._doubted_since = monotonic
            _log.warning(
                "the clock jumped ahead by %d s; retention uses the old time for an hour, "
                "in case the clock is set back",
                (wall_ms - expected) // 1000,
            )
        if monotonic - self._doubted_since >= BELIEVED_AFTER_S:
            return self._believe(wall_ms, monotonic)
        return int(expected)

    def _believe(self, wall_ms: int, monotonic: float) -> int:
        self._wall_ms, self._monotonic, self._doubted_since = wall_ms, monotonic, None
        return wall_ms


class Retention:
    """Deletes old segments of one log."""

    __slots__ = ("_clock", "_deleted", "_log", "_save_start_offset", "trimmed_to")

    def __init__(self, log: LogState, clock: RetentionClock, save_start_offset: Callable[[], None]) -> None:
        self._log = log
        self._clock = clock
        self._save_start_offset = save_start_offset
        self._deleted: list[tuple[int, list[str]]] = []  # when the files may be removed, and their names
        self.trimmed_to = 0  # from the checkpoint, when the log was opened

    def trim(self, offset: int) -> int:
        """Make the records below ``offset`` unreadable; returns the new start."""
        log = self._log
        if not 0 <= offset <= log.written_offset:
            raise OffsetOutOfRange(
                f"{log.name} has offsets up to {log.written_offset}; it can't be trimmed to {offset}"
            )
        if offset > log.log_start_offset:
            log.sync_names()  # a start offset is useless if the log itself is gone
            log.announce_start(offset)
            before, log.log_start_offset = log.log_start_offset, offset
            try:
                self._save_start_offset()
            except OSError as error:
                log.log_start_offset = before
                raise refused(log, "delete records", error) from error
        return log.log_start_offset

    def apply(self, now_ms: int, ring: Ring | None) -> list[Segment]:
        """Delete what is due and remove what was deleted; ``ring`` is the log's, if it has one. Returns the
        segments deleted now. May raise OSError."""
        log = self._log
        self._remove(now_ms)
        if log.is_swapping:
            return []  # the swap would bring deleted records back
        count = self._due(self._clock.now_ms(now_ms, log.clock.monotonic()))
        if count == 0:
            return []
        start = log.segments.ceiling(count - 1, log.end_offset)
        if count == len(log.segments):
            log.roll()
        if ring is not None and ring.is_bounded:
            return ring.retire(start)
        # What remains must be durable before segments are deleted: a file that shows the end offset, and
        # the state of the producers of the deleted records.
        sync_if_there(log.pool.files, log.snapshot_path(log.segments[count].base_offset))
        log.sync_names()
        moved = log.archive.oldest_offset(start)
        if moved > log.log_start_offset:
            log.announce_start(moved)
        removed = log.segments.remove_first(count)
        log.log_start_offset = max(log.log_start_offset, moved)
        log.epochs.cut_start(log.log_start_offset)
        names: list[str] = []
        self.remove_later(names, now_ms)
        for segment in removed:
            names += segment.delete_log()
        if any(segment.aborted.count for segment in removed):
            # Otherwise a crash could restore the log's file without the index of its aborted transactions.
            log.pool.files.sync_directory(log.path)
        for segment in removed:
            names += segment.delete_indexes()
        names += self._delete_snapshots(start)
        _log.info("%s: %d segments deleted, the log starts at %d", log.name, count, log.local_start_offset)
        return removed

    def _due(self, now_ms: int) -> int:
        """How many of the oldest segments to delete; all of them if even the last one is due."""
        log, config = self._log, self._log.config
        by_policy = "delete" in config.cleanup_policy
        retention_ms = config.retention_ms if by_policy else -1
        retention_bytes = config.retention_bytes if by_policy else -1
        safe_upto = log.end_offset
        if config.remote_storage_enable and not config.remote_log_copy_disable:
            if config.local_retention_ms != AS_RETENTION:
                retention_ms = config.local_retention_ms
            if config.local_retention_bytes != AS_RETENTION:
                retention_bytes = config.local_retention_bytes
            safe_upto = log.archive.end_offset  # no segment is deleted before it is archived
        surplus = log.size_bytes - retention_bytes
        count = 0
        for number, segment in enumerate(log.segments):
            last = segment is log.segments.last
            if last and segment.size == 0:
                break
            ceiling = log.segments.ceiling(number, log.end_offset)
            trimmed = not last and ceiling <= log.log_start_offset
            try:
                too_old = retention_ms >= 0 and now_ms - segment.newest_ms(ceiling) > retention_ms
            except IndexRebuilding:
                break  # its age is known in the next round
            too_large = retention_bytes >= 0 and surplus >= segment.size
            if not (trimmed or ((too_old or too_large) and ceiling <= safe_upto)):
                break
            surplus -= segment.size
            count += 1
        return count

    @property
    def start_to_remember(self) -> int:
        """The start offset that the checkpoint has to name, because the files suggest an older one; 0 if
        the files suggest the right one."""
        log, archive = self._log, self._log.archive
        local = log.segments[0].base_offset
        if log.config.remote_storage_enable or archive.segments:
            # If the archive's journal is lost, objects that are due for removal may be found again, so
            # the start is always saved. Until the archive is known, that is the checkpoint's start.
            is_known = archive.is_known or log.log_start_offset > local
            return log.log_start_offset if is_known else self.trimmed_to
        return log.log_start_offset if log.log_start_offset > local else 0

    @property
    def total_bytes(self) -> int:
        """Bytes in the log and in the archive. What is in both counts once."""
        archive = self._log.archive
        return archive.size + sum(s.size for s in self._log.segments if s.base_offset >= archive.end_offset)

    def due_in_archive(self, now_ms: int) -> int:
        """How many of the oldest archived segments to delete. Segments that are not yet in the archive
        are ignored: they are copied first."""
        log, config, archive = self._log, self._log.config, self._log.archive
        if not config.remote_storage_enable:
            return len(archive.segments)
        now_ms = self._clock.now_ms(now_ms, log.clock.monotonic())
        surplus = self.total_bytes - config.retention_bytes
        count = 0
        for segment in archive.segments:
            trimmed = segment.end_offset <= log.log_start_offset
            too_old = config.retention_ms >= 0 and now_ms - segment.newest_ms > config.retention_ms
            too_large = config.retention_bytes >= 0 and surplus >= segment.size
            if not (trimmed or too_old or too_large):
                break
            surplus -= segment.size
            count += 1
        return count

    def _delete_snapshots(self, start: int) -> list[str]:
        """Delete the producers' snapshots from before the log's start in the same way as segments."""
        log = self._log
        old = [
            f"{log.path}/{name}"
            for name in log.pool.files.listing(log.path)
            if name.endswith(SNAPSHOT_SUFFIX) and 0 <= offset_of(name) < start
        ]
        return rename_all(log.pool.files, old, DELETED_SUFFIX)

    def remove_later(self, names: list[str], now_ms: int) -> None:
        """Remove files that were renamed as deleted, once readers have had time to finish."""
        self._deleted.append((now_ms + self._log.config.file_delete_delay_ms, names))

    def remove_now(self) -> None:
        """Remove the waiting files at once."""
        for _, names in self._deleted:
            self._log.pool.files.discard(names)
        self._deleted = []

    def _remove(self, now_ms: int) -> None:
        delay = self._log.config.file_delete_delay_ms
        waiting = []
        for due_ms, names in self._deleted:
            # A clock that was set back must not keep them for years.
            if now_ms >= due_ms or due_ms - now_ms > delay:
                self._log.pool.files.discard(names)
            else:
                waiting.append((due_ms, names))
        self._deleted = waiting
