"""Compaction of one log: measures what is dirty, decides when a pass is due, and swaps in the new segments.

A log is **clean** up to the offset that the last pass reached, and **dirty** from there on. A pass may clean
sealed segments that are synced, below the last stable offset, and older than ``min.compaction.lag.ms``. It
is due when the share of dirty bytes is above ``min.cleanable.dirty.ratio``, or a dirty record has waited for
``max.compaction.lag.ms``. The work itself is done elsewhere, by ``compaction_pass``.

A group of segments is replaced in steps. A crash after any of them leaves either all of the old segments
or all of the new one:

1. The new segment's files exist, complete and synced, as ``.cleaned``.
2. Its indexes become ``.swap``. Once that is durable, its log does too: **from here on it counts**.
3. The old files become ``.deleted``, and readers get the new segment.
4. Once that is durable, the suffix ``.swap`` is removed.

``finish_swaps`` completes these steps at the next start: a ``.log.swap`` replaces the old files, and a
``.log.cleaned`` is deleted with everything that belongs to it.

``compaction-checkpoint`` in the log's directory keeps, in one line, how far the log is clean, and the
offset below which it may have gaps. The latter is written before the first segment with gaps counts.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from millstream.core.topic_config import TopicConfig
from millstream.log.compaction.single_pass import PassInput, PassResult, SegmentGroup
from millstream.log.retention import Retention
from millstream.log.segment.scan import ScannedBatch
from millstream.log.segment.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from millstream.log.snapshots import SNAPSHOT_SUFFIX
from millstream.log.state import LogState
from millstream.log.storage.checkpoints import read_lines, write_lines
from millstream.log.storage.files import FilePool, Files, rename_all, sync_if_there

_log = logging.getLogger(__name__)

CHECKPOINT = "compaction-checkpoint"
EVERYWHERE = (1 << 63) - 1


class Dirtiness(NamedTuple):
    """How dirty a log is, counting only what may be cleaned now."""

    dirty_from: int
    dirty_to: int  # later offsets may not be cleaned yet
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # a record has waited for max.compaction.lag.ms

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


class Compaction:
    """The state of one log's compaction. For the log's thread, except ``save`` and ``allow_gaps``."""

    def __init__(self, log: LogState, retention: Retention) -> None:
        self._log = log
        self._retention = retention
        self._path = f"{log.path}/{CHECKPOINT}"
        self.clean_to = 0
        self.gaps_below = 0
        self.dirt: Dirtiness | None = None  # as of the last ``look``
        self.last: PassResult | None = None  # the last pass since this process started
        self.last_ms = -1  # when it finished
        self._refused: tuple[str, TopicConfig] | None = None
        self._saving = threading.Lock()  # two threads must not write the same temporary file

    def load(self) -> None:
        """Read the checkpoint. Must come before any segment is opened."""
        self.clean_to, self.gaps_below = read_checkpoint(self._log.pool.files, self._log.path)

    def save(self) -> None:
        """Write the checkpoint; durable once this returns. May raise OSError."""
        with self._saving:
            self._write(self.gaps_below)

    def allow_gaps(self, below: int) -> None:
        """Note that there may be gaps below this offset; durable once this returns. May raise OSError,
        with nothing changed."""
        with self._saving:
            if below > self.gaps_below:
                self._write(below)
                self.gaps_below = below

    def _write(self, gaps_below: int) -> None:
        write_lines(self._log.pool.files, self._path, [f"{self.clean_to} {gaps_below}"])

    @property
    def uncleanable(self) -> str:
        """Why the log is no longer compacted under its current settings; empty if nothing is wrong."""
        reason, config = self._refused or ("", None)
        return reason if config is self._log.config else ""

    def give_up(self, reason: str) -> None:
        """Stop compacting the log until its settings change or it is opened again."""
        self._refused = reason, self._log.config

    def expect_gaps(self) -> None:
        """Note that there may be gaps anywhere from now on, because this is a copy of a log that has
        some. Durable once this returns. May raise OSError."""
        self.allow_gaps(EVERYWHERE)
        self._log.segments.last.gaps = True

    # What is dirty, and what to clean

    def look(self, now_ms: int) -> Dirtiness:
        """Measure how dirty the log is. May raise OSError."""
        log = self._log
        start, end = log.log_start_offset, log.end_offset
        if not start <= self.clean_to <= end:
            # The log was trimmed, or lost its end: how far it is clean is no longer known.
            self.clean_to = start
        limit = min(log.last_stable_offset, log.segments.last.base_offset, log.synced_offset)
        overdue_ms = now_ms - log.config.max_compaction_lag_ms
        young_ms = now_ms - log.config.min_compaction_lag_ms
        clean = dirty = 0
        is_overdue = False
        dirty_to = start
        for number, segment in enumerate(log.segments):
            ceiling = log.segments.ceiling(number, end)
            if ceiling <= self.clean_to:
                clean += segment.size
            elif ceiling > limit:
                break
            else:
                lag = log.config.min_compaction_lag_ms
                if lag > 0 and segment.largest_timestamp(ceiling)[0] > young_ms:
                    break
                dirty += segment.size
                if segment.size and 0 < segment.rolls_from(EVERYWHERE) < overdue_ms:
                    is_overdue = True
            dirty_to = ceiling
        self.dirt = Dirtiness(self.clean_to, max(dirty_to, self.clean_to), clean, dirty, is_overdue)
        return self.dirt

    def is_due(self, dirt: Dirtiness) -> bool:
        if dirt.dirty_bytes == 0:
            return False
        return dirt.is_overdue or dirt.ratio > self._log.config.min_cleanable_dirty_ratio

    def job(self, dirt: Dirtiness, now_ms: int, memory: int) -> PassInput | None:
        """The input of a pass over the log; None if no pass is possible now. May raise OSError."""
        log = self._log
        if log.written_offset != log.end_offset:
            return None  # the producers' latest batches may still be undone
        segments = [
            (segment, log.segments.ceiling(number, log.end_offset))
            for number, segment in enumerate(log.segments)
            if segment.base_offset < dirt.dirty_to and segment.size
        ]
        if not segments:
            return None
        producers = {
            producer_id: (epoch, batches[-1][2] if batches else -1)
            for producer_id, (epoch, _, batches, _) in log.producers.states.items()
            if not batches or batches[-1][2] < dirt.dirty_to
        }
        later: list[tuple[int, int]] = []
        for segment in log.segments:
            if segment.base_offset >= dirt.dirty_to and segment.aborted.count:
                segment.aborted.collect(segment.base_offset, dirt.dirty_to, later)
        config = log.config
        return PassInput(
            path=log.path,
            bases=[segment.base_offset for segment, _ in segments],
            sizes=[segment.size for segment, _ in segments],
            ceilings=[ceiling for _, ceiling in segments],
            dirty_from=dirt.dirty_from,
            gaps_below=self.gaps_below,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            memory=memory,
            producers=producers,
            aborted=later,
        )

    def is_current(self, job: PassInput) -> bool:
        """True if the log still has all segments that the pass was to read."""
        here = {segment.base_offset for segment in self._log.segments}
        return here.issuperset(job.bases)

    # Swapping in the result

    def begin(self, group: SegmentGroup) -> Swap | None:
        """Begin to replace a group; None if the segments that were read are no longer there."""
        log = self._log
        if log.failed is not None or "compact" not in log.config.cleanup_policy:
            return None
        wanted = set(group.bases)
        old = [segment for segment in log.segments if segment.base_offset in wanted]
        if [segment.base_offset for segment in old] != group.bases or old[-1] is log.segments.last:
            return None
        number = next(n for n, segment in enumerate(log.segments) if segment is old[-1])
        ceiling = log.segments.ceiling(number, log.end_offset)
        log.is_swapping = True
        return Swap(log, self, self._retention, old, ceiling, group)

    def discard(self) -> None:
        """Remove the files of a pass that did not finish. May raise OSError."""
        files, path = self._log.pool.files, self._log.path
        for name in files.listing(path):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(f"{path}/{name}")

    def finished(self, finished: PassResult, now_ms: int) -> None:
        """Note that a pass is done and swapped in completely. The caller then calls ``save``."""
        self.clean_to = finished.clean_to
        self.last, self.last_ms = finished, now_ms


class Swap:
    """The replacement of one group: ``prepare``, ``commit``, ``swap``, a sync of the directory,
    ``settle``."""

    def __init__(
        self,
        log: LogState,
        compaction: Compaction,
        retention: Retention,
        old: list[Segment],
        ceiling: int,
        group: SegmentGroup,
    ) -> None:
        self._log = log
        self._compaction = compaction
        self._retention = retention
        self._old = old
        self._ceiling = ceiling
        self.segment = Segment(
            log.pool,
            old[0].path,
            old[0].base_offset,
            size=group.size,
            index_size=group.index_size,
            times_size=group.times_size,
            aborted_size=group.aborted_size,
            gaps=True,
            stage=SWAP_SUFFIX,
        )

    def prepare(self) -> None:
        """Write what has to be durable before the new segment counts. Blocks for syncs; from any thread.
        May raise OSError: then call ``cancel``, and the log is unchanged."""
        self._compaction.allow_gaps(self._ceiling)
        # The producers' state can't be rebuilt from the segments any more: they lose most of it.
        sync_if_there(self._log.pool.files, self._log.snapshot_path(self._ceiling))

    def cancel(self) -> None:
        self._log.is_swapping = False

    def commit(self) -> None:
        """Make the new segment count, even after a crash. Blocks for syncs; from any thread. May raise
        OSError, and then it is unknown whether it counts."""
        log, files = self._log, self._log.pool.files
        path = self.segment.path
        for suffix in INDEX_SUFFIXES:
            files.rename(path + suffix + CLEANED_SUFFIX, path + suffix + SWAP_SUFFIX)
        files.sync_directory(log.path)
        files.rename(path + LOG_SUFFIX + CLEANED_SUFFIX, path + LOG_SUFFIX + SWAP_SUFFIX)
        files.sync_directory(log.path)

    def swap(self) -> None:
        """Give readers the new segment and rename the old files for deletion. May raise OSError."""
        log, files = self._log, self._log.pool.files
        log.segments.replace(self._old, self.segment)
        names: list[str] = []
        for segment in self._old:
            names += segment.delete_log()
        for segment in self._old[1:]:
            names += segment.delete_indexes()
            names += rename_all(files, [log.snapshot_path(segment.base_offset)], DELETED_SUFFIX)
        self._retention.remove_later(names, log.clock.now_ms())

    def settle(self) -> None:
        """Remove the suffix, once the renaming of the old files is durable. May raise OSError."""
        self.segment.move(SWAP_SUFFIX, "")
        self._log.is_swapping = False


def read_checkpoint(files: Files, path: str) -> tuple[int, int]:
    """The offset up to which the log in the directory ``path`` is clean, and the one below which it may
    have gaps."""
    name = f"{path}/{CHECKPOINT}"
    if not files.exists(name):
        return 0, 0
    lines = read_lines(files, name) or []
    if len(lines) == 1 and len(lines[0]) == 2 and all(word.isdigit() for word in lines[0]):
        return int(lines[0][0]), int(lines[0][1])
    return 0, EVERYWHERE  # damaged, so there may be gaps anywhere


def finish_swaps(files: Files, path: str) -> None:
    """Complete a swap that a crash interrupted, or undo it. May raise OSError."""
    listing = files.listing(path)
    staged = [name for name in listing if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    if not staged:
        return
    started = {offset_of(name) for name in staged if name.endswith(LOG_SUFFIX + CLEANED_SUFFIX)}
    for name in staged:
        if name.endswith(CLEANED_SUFFIX) or (
            offset_of(name) in started and not name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
        ):
            files.remove(f"{path}/{name}")
    swapped = [name for name in staged if name.endswith(SWAP_SUFFIX) and files.exists(f"{path}/{name}")]
    for name in swapped:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _log.info(
                "%s/%s was being swapped in when the last process ended; the swap is completed", path, name
            )
            for other in covered_by(files, path, listing, offset_of(name)):
                files.remove(f"{path}/{other}")
    files.sync_directory(path)  # before the ``.swap`` suffix is removed: it says which files to delete
    for name in swapped:
        files.rename(f"{path}/{name}", f"{path}/{name.removesuffix(SWAP_SUFFIX)}")
    files.sync_directory(path)


def as_swapped(files: Files, path: str, listing: dict[str, int]) -> tuple[dict[str, int], dict[str, str]]:
    """The listing as ``finish_swaps`` would leave it, and the suffix that each file has until then."""
    swapped = {offset_of(name) for name in listing if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)}
    covered = {name for base in swapped for name in covered_by(files, path, listing, base)}
    after = {name: size for name, size in listing.items() if name not in covered}
    started = {offset_of(name) for name in listing if name.endswith(LOG_SUFFIX + CLEANED_SUFFIX)}
    stages = {
        name.removesuffix(SWAP_SUFFIX): SWAP_SUFFIX
        for name in listing
        if name.endswith(SWAP_SUFFIX) and offset_of(name) not in started - swapped
    }
    after |= {name: listing[name + SWAP_SUFFIX] for name in stages}
    return after, stages


def covered_by(files: Files, path: str, listing: dict[str, int], base: int) -> list[str]:
    """The files of the segments that the new segment at ``base`` replaces, except the first segment's:
    the new files take over their names."""
    name = file_name(base) + LOG_SUFFIX + SWAP_SUFFIX
    segment = Segment(
        FilePool(files), f"{path}/{file_name(base)}", base, size=listing[name], gaps=True, stage=SWAP_SUFFIX
    )
    end = base
    for item in segment.scan(0, segment.size, base, EVERYWHERE, segment.size):
        end = item.header.next_offset if isinstance(item, ScannedBatch) else item.first_offset
    suffixes = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX)
    return [name for name in listing if name.endswith(suffixes) and base < offset_of(name) < end]
