"""Opens a partition's log after a clean stop or a crash: restores what was written, and never more.

After a clean shutdown little is read: the directory's listing, the last index entry of the last segment
and the headers after it, and the newest producer snapshot. Otherwise every segment that is not entirely
below the recovery point (the offset up to which a sync is known to have finished) is read, and every
checksum is verified:

- If no valid batch follows the first bad one in the last segment, and its offset is at or above the
  recovery point, a write was cut off. The file is truncated there.
- Anything else that is bad is damage: it stays in the file, is reported with its position, and is never
  served.
- Indexes, producers' state, and open and aborted transactions are rebuilt from the batches and the
  producers' snapshots. A snapshot holds the first offset of a transaction that began before it.
- A log that is shorter than it is known to have been is not opened until a person has accepted that
  (``log.recovery.shortfall``). Offsets that may have been assigned before are not assigned again: the log
  then continues after them, in a new segment.
- What was kept is synced, so that a second crash can't take it away after it was served. After a failed
  sync it is first written once more (``log.disk_failures``).
"""

from __future__ import annotations

import logging
from bisect import bisect_right

from millstream.core.errors import LogOffline
from millstream.log.archive.journal import JOURNAL
from millstream.log.compaction.compaction import finish_swaps
from millstream.log.disk_failures import is_marked, synced_before_failure, unmark, write_again
from millstream.log.partition import PartitionLog
from millstream.log.producers import Producers
from millstream.log.recovery.replay import Replay
from millstream.log.recovery.shortfall import LogFacts, began_before, described
from millstream.log.segment.scan import Damage, ScannedBatch, is_cut_off
from millstream.log.segment.segment import (
    ABORTED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from millstream.log.snapshots import SNAPSHOT_SUFFIX, load_snapshot
from millstream.log.storage.files import TEMPORARY_SUFFIX, read_file
from millstream.log.transactions import PartitionTransactions
from millstream.records.batch import NO_TIMESTAMP, BatchHeader

_log = logging.getLogger(__name__)

NO_CEILING = (1 << 63) - 1


def open_partition(
    log: PartitionLog,
    known: LogFacts,
    *,
    new: bool,
    clean: bool,
    machine_stopped: bool = False,
    is_accepted: bool = False,
    is_copy: bool = False,
) -> None:
    """Bring ``log`` to the state that its directory holds. May raise OSError. Raises LogOffline if the
    log is shorter than ``known`` and that is not accepted. ``machine_stopped``: not only the process
    stopped. A copy of another broker's log assigns no offsets: it fetches what is missing at its end
    again, in the epochs of its leader."""
    opening = _Opening(log, known, is_copy=is_copy, machine_stopped=machine_stopped, is_accepted=is_accepted)
    finish_swaps(log.pool.files, log.path)
    log.compaction.load()
    opening.list_files()
    log.epochs.load()
    log.retention.trimmed_to = known.start_offset
    if opening.segments:
        opening.take(clean)
    else:
        opening.begin(new=new)


class _Opening:
    """The opening of one log."""

    def __init__(
        self, log: PartitionLog, known: LogFacts, *, is_copy: bool, machine_stopped: bool, is_accepted: bool
    ) -> None:
        self.log = log
        self.known = known
        self.is_copy = is_copy
        self.machine_stopped = machine_stopped
        self.is_accepted = is_accepted
        self.files = log.pool.files
        self.recovery_point = known.recovery_point
        self.snapshots: list[int] = []
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.end = NO_CEILING  # of the log, once it is known
        self.cut_off_at: int | None = None  # where the file ends in the middle of a batch that was synced
        self.now_ms = log.clock.now_ms()
        self.replay = Replay(log.producers, log.transactions, self.now_ms)
        self.unsynced_from: int | None = None  # set if a sync failed: where the unsynced records begin
        self.replay_from = 0  # producers' state is replayed from the batches from here on

    def begin(self, *, new: bool) -> None:
        """Begin a log that has no segments."""
        log, known = self.log, self.known
        self._check_length(max(log.archive.end_offset, 0))
        start = max(known.end_offset, log.archive.end_offset)
        is_lost = start > 0 and not self.is_copy  # readers may have seen the lost records
        log.epochs.begin(self._next_epoch() if is_lost else log.epochs.latest, start)
        log.epochs.write()
        log.log_start_offset = max(known.start_offset, log.archive.oldest_offset(start))
        log.start_at(start, new_directory=new)
        if start:
            # Otherwise the next power loss removes the file that says where the log continues.
            log.sync_names()

    def _check_length(self, end: int) -> None:
        """Raise LogOffline if the log is known to have been longer. If the machine's stop explains it,
        log that."""
        log, known = self.log, self.known
        if self.is_copy:
            return
        missing = known.missing(end, machine_stopped=self.machine_stopped)
        if missing and not self.is_accepted:
            raise LogOffline(described(log.name, log.path, end, missing, known), known.end_offset)
        if missing or known.end_offset > end:
            _log.error(
                "%s: offsets %d to %d are missing (%s); %s. The log continues at offset %d",
                log.path,
                end,
                known.end_offset - 1,
                missing or known.missing(end, machine_stopped=False),
                "the loss was accepted" if missing else "they were not synced when the machine stopped",
                known.end_offset,
            )

    def _check_start(self) -> None:
        """Log what is missing at the start of a log that was closed cleanly. Its epochs say where it
        began."""
        log, first = self.log, self.segments[0].base_offset
        has_archive = log.archive.is_known or log.config.remote_storage_enable
        if not self.is_copy and (began := began_before(log.epochs.entries, first, has_archive)):
            _log.error(
                "%s: offsets %d to %d are missing: the log began there, and its first segment begins at %d. "
                "To get them back, restore the files from a backup",
                log.path, began.start, began.stop - 1, first,
            )  # fmt: skip

    def take(self, clean: bool) -> None:
        """Take over the segments on disk."""
        log = self.log
        sync_failed = is_marked(self.files, log.path)
        if sync_failed:
            _log.warning("%s: a sync failed before the last stop; what it missed is written again", log.path)
        end = self._clean_end() if clean and not sync_failed else None
        if end is not None and end >= self.recovery_point:
            recovered = False
            self.end = end
            self._check_length(end)
            self._check_start()
            self._check_indexes(self.segments)
            self.replay_from = self._load_state(self.replay, newest=end, replay_to=end)
            self._drop_snapshots(end)
        else:
            recovered = True
            if clean and not sync_failed:
                _log.warning("%s differs from what the last shutdown left; recovering it", log.path)
            if sync_failed:
                self.unsynced_from = synced_before_failure(self.files, log.path)
            end = self._recover(write=sync_failed)
            self._check_length(end if self.cut_off_at is None else self.cut_off_at)
            if sync_failed:
                unmark(self.files, log.path)
        start = max(self.known.start_offset, log.archive.oldest_offset(self.segments[0].base_offset))
        go_on = max(end, start) if self.is_copy else max(end, self.known.end_offset, start)
        log.epochs.cut_start(start)
        if self.is_copy:
            log.epochs.cut_end(go_on)
        elif recovered:
            # Readers that saw more than what is left find out from where their epoch ended.
            log.epochs.cut_end(go_on)
            log.epochs.begin(self._next_epoch(), go_on)
            log.epochs.write()
        log.adopt(self.segments, start, end)
        if go_on > end or any(damage.tail for damage in self.segments[-1].damage):
            log.start_at(go_on)
            log.sync_names()

    def _next_epoch(self) -> int:
        """An epoch that no reader has seen: the checkpoint may be older than what readers committed under."""
        return max(self.log.epochs.latest, self.known.commits.leader_epoch) + 1

    def list_files(self) -> None:
        listing = self.files.listing(self.log.path)
        # At once: the log is about to write files of these names, and another thread must not remove those.
        for name in listing:
            if name.endswith(TEMPORARY_SUFFIX):
                self.files.remove(f"{self.log.path}/{name}")
        deleted = [f"{self.log.path}/{name}" for name in listing if name.endswith(DELETED_SUFFIX)]
        if deleted:
            self.files.discard(deleted)
        self.bases = sorted(
            offset_of(name) for name in listing if name.endswith(LOG_SUFFIX) and offset_of(name) >= 0
        )
        for base in self.bases:
            name = file_name(base)
            segment = Segment(
                self.log.pool,
                f"{self.log.path}/{name}",
                base,
                size=listing[name + LOG_SUFFIX],
                index_size=listing.get(name + INDEX_SUFFIX, 0),
                times_size=listing.get(name + TIME_INDEX_SUFFIX, 0),
                aborted_size=listing.get(name + ABORTED_SUFFIX, 0),
                gaps=base < self.log.compaction.gaps_below,
            )
            self.segments.append(segment)
        if JOURNAL in listing:
            self.log.archive.load()
        for name in listing:
            if name.endswith(SNAPSHOT_SUFFIX) and offset_of(name) >= 0:
                self.snapshots.append(offset_of(name))
            elif name.endswith(INDEX_SUFFIXES) and name.partition(".")[0] + LOG_SUFFIX not in listing:
                self.files.remove(f"{self.log.path}/{name}")  # an index without its log
        self.snapshots.sort()

    def _clean_end(self) -> int | None:
        """The end offset, from the headers after the last index entry. None if they don't lead to the end of
        the file, or the time index does not cover them: then the log is not as a clean shutdown leaves it."""
        segment = self.segments[-1]
        start, expected = 0, segment.base_offset
        if segment.index.count:
            relative, start = segment.index.entry(segment.index.count - 1)
            header = segment.header_at(start)
            if header is None or header.last_offset != segment.base_offset + relative:
                return None
            expected = header.base_offset
        times = segment.times.last()
        largest = times[0] if times else NO_TIMESTAMP
        for item in segment.scan(start, segment.size, expected, NO_CEILING, segment.size):
            if isinstance(item, Damage) or item.header.newest_ms > largest:
                return None
            expected = item.header.next_offset
        segment.bytes_since_index = segment.size - start
        return expected

    def _check_indexes(self, segments: list[Segment]) -> None:
        """Rebuild indexes that are missing or can't belong to their log. Errors inside an index are found
        by look-ups, which check every result."""
        for segment in segments:
            whole = segment.has_intact_index() and segment.times.intact(segment.size)
            if segment.size > 0 and not whole:
                if not segment.gaps or segment.times.count:  # else all records may be gone
                    _log.warning("%s or its time index is missing or damaged; rebuilt", segment.index.path)
                segment.rebuild_indexes(self._ceiling(segment))
            if not segment.aborted.intact(segment.base_offset, self._ceiling(segment)):
                _log.warning("%s is damaged; rebuilt", segment.aborted.path)
                self._rebuild_aborted(segment)

    def _rebuild_aborted(self, segment: Segment) -> None:
        replay = self._state_at(segment)
        segment.aborted.clear()
        for batch in segment.good_batches(segment.base_offset, self._ceiling(segment)):
            aborted = replay.show(segment, batch)
            if aborted is not None:
                segment.aborted.append(aborted)
        segment.aborted.write()
        segment.aborted.sync()
        self.files.sync_directory(self.log.path)

    def _ceiling(self, segment: Segment) -> int:
        number = bisect_right(self.bases, segment.base_offset)
        return self.bases[number] if number < len(self.bases) else self.end

    # After a crash

    def _recover(self, *, write: bool) -> int:
        """Read and check what is not known to be synced, and ``write`` it once more. Returns the end
        offset."""
        doubtful = [s for s in self.segments if self._ceiling(s) > self.recovery_point]
        synced = self.segments[: len(self.segments) - len(doubtful)]
        self._check_indexes(synced)
        end = doubtful[0].base_offset
        newest = max(end, self.recovery_point)
        self.replay_from = self._load_state(self.replay, newest=newest, replay_to=end)
        # Aborted transactions are rebuilt from the start of the segment, which may be before that.
        aborting = self._state_at(doubtful[0])
        for segment in doubtful:
            base = segment.base_offset
            if base > self.replay_from or (base == self.replay_from and base not in self.snapshots):
                self.log.write_snapshot(base)  # an existing one may be lost or damaged
                self.snapshots.append(base)
            # A snapshot that was just read is not replaced: it may be all that is known of records
            # deleted since, and its replacement would not be synced.
            end = self._recover_segment(segment, end, aborting)
            if write:
                write_again(segment.log.get())
            segment.sync_sealed()
            if self.segments[-1] is segment:
                break  # the segments after it were cut
        self.replay.commit()
        self._drop_snapshots(end)
        self.files.sync_directory(self.log.path)  # so that no removed snapshot comes back
        return end

    def _recover_segment(self, segment: Segment, end: int, aborting: Replay) -> int:
        ceiling = self._ceiling(segment)
        last = segment is self.segments[-1]
        segment.start_indexes()
        segment.aborted.clear()
        interval = self.log.config.index_interval_bytes
        end = max(end, segment.base_offset)
        for item in segment.scan(0, segment.size, segment.base_offset, ceiling, 0):
            if isinstance(item, ScannedBatch):
                header = item.header
                self._note_epoch(header)
                if header.base_offset >= self.replay_from:
                    self.replay.show(segment, item)
                aborted = aborting.show(segment, item)
                if aborted is not None:
                    segment.aborted.append(aborted)
                segment.added(item.position, header.size, header.last_offset, header.newest_ms, interval)
                if segment.index.page_waits or segment.aborted.page_waits:
                    segment.write_indexes(final=False)
                end = header.next_offset
            elif self._was_never_synced(item.first_offset):
                self._cut_unsynced(segment, item.position, item.reason)
                last = True
                break
            elif last and item.tail and (item.first_offset >= self.recovery_point or self.is_copy):
                self._cut_tail(segment, item)
            else:
                if item.tail and last:
                    if is_cut_off(segment.log.get(), item):
                        self.cut_off_at = item.first_offset
                    item = item._replace(next_offset=max(self.recovery_point, item.first_offset + 1))
                segment.report(item)
                end = item.next_offset
        if not last and end < ceiling:
            if self._was_never_synced(end):
                self._cut_unsynced(segment, segment.size, "the file ends before the next segment begins")
            else:
                segment.report_missing(end, ceiling)
                end = ceiling
        segment.trusted_from = 0
        segment.write_indexes(final=True)
        segment.commit()
        return end

    def _cut_tail(self, segment: Segment, tail: Damage) -> None:
        _log.warning(
            "%s: cut at byte %d: %d bytes of a write that a crash interrupted (%s)",
            segment.log.path,
            tail.position,
            tail.size,
            tail.reason,
        )
        segment.log.get().truncate(tail.position)
        segment.size = segment.written = tail.position

    def _was_never_synced(self, offset: int) -> bool:
        """True if a sync failed that would have covered the offset, and no earlier sync had covered it."""
        return self.unsynced_from is not None and offset >= self.unsynced_from

    def _cut_unsynced(self, segment: Segment, position: int, reason: str) -> None:
        """Cut the log where the disk does not have the right records, after a failed sync."""
        _log.warning(
            "%s: cut at byte %d, with everything after it: a sync failed before it reached the disk (%s)",
            segment.log.path,
            position,
            reason,
        )
        segment.log.get().truncate(position)
        segment.size = segment.written = position
        number = self.segments.index(segment) + 1
        for later in self.segments[number:]:
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                self.files.remove(later.path + suffix)
        del self.segments[number:]
        self.bases = [each.base_offset for each in self.segments]

    # Producers and transactions

    def _load_state(self, replay: Replay, *, newest: int, replay_to: int) -> int:
        """Bring a replay to ``replay_to``, from the newest snapshot that is not beyond ``newest`` and the
        batches after it. Returns the snapshot's offset, or the log's start if there is none."""
        replay_from = self.segments[0].base_offset
        for offset in sorted((o for o in self.snapshots if o <= newest), reverse=True):
            path = self.log.snapshot_path(offset)
            if load_snapshot(read_file(self.files, path), replay.producers, replay.transactions):
                replay_from = offset
                break
            _log.warning("%s is damaged; producers' state is read from the log instead", path)
            self.snapshots.remove(offset)
            self.files.remove(path)
        for segment in self.segments:
            ceiling = min(self._ceiling(segment), replay_to)
            if max(segment.base_offset, replay_from) < ceiling:
                for batch in segment.good_batches(replay_from, ceiling):
                    self._note_epoch(batch.header)
                    replay.show(segment, batch)
        replay.commit()
        return replay_from

    def _state_at(self, segment: Segment) -> Replay:
        """The state at the start of a segment, separate from the log's own."""
        replay = Replay(Producers(), PartitionTransactions(), self.now_ms)
        base = segment.base_offset
        self._load_state(replay, newest=base, replay_to=base)
        return replay

    def _drop_snapshots(self, end: int) -> None:
        """Remove all snapshots but the newest and those at a segment's start. Those beyond the end go
        too: their records no longer exist."""
        newest = max((offset for offset in self.snapshots if offset <= end), default=-1)
        kept = {newest, *self.bases}
        for offset in self.snapshots:
            if offset > end or offset not in kept:
                self.files.remove(self.log.snapshot_path(offset))

    def _note_epoch(self, header: BatchHeader) -> None:
        """Note the epoch of a batch: the checkpoint may have lost the newest one."""
        if header.leader_epoch > self.log.epochs.latest:
            self.log.epochs.begin(header.leader_epoch, header.base_offset)
