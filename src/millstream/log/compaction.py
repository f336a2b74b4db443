"""Compaction of one log: what is dirty, when it is due, and putting the new segments in the old ones' places.

A log is **clean** up to the offset that the last pass got to, and **dirty** from there on. What may be
cleaned are sealed segments that are synced, below the last stable offset, and older than
``min.compaction.lag.ms``. It is due when the share of dirty bytes is above ``min.cleanable.dirty.ratio``,
or a dirty record has waited for ``max.compaction.lag.ms``. The work is done elsewhere, by
``compaction_pass``.

A group of segments is replaced in steps, after each of which a crash leaves either all of the old or all of
the new:

1. The new segment's files are there, whole and synced, as ``.cleaned``.
2. Its indexes become ``.swap``, then, when the disk knows that, its log does: **from here on it counts**.
3. The old files become ``.deleted``, and readers are given the new one.
4. When the disk knows that, ``.swap`` is taken off.

``finish_swaps`` does the rest of it at the next start: a ``.log.swap`` is put in its place, and a
``.log.cleaned`` is thrown away with whatever belongs to it.

``compaction-checkpoint`` in the log's directory keeps, in one line, how far the log is clean, and below which
offset it may have gaps; the second is written before the first such segment counts.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from millstream.config import TopicConfig
from millstream.log.checkpoints import read_lines, write_lines
from millstream.log.compaction_pass import Finished, Group, Job
from millstream.log.files import FilePool, Files, rename_all, sync_if_there
from millstream.log.scan import Batch
from millstream.log.segment import (
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

if TYPE_CHECKING:
    from millstream.log.partition import PartitionLog

_log = logging.getLogger(__name__)

CHECKPOINT = "compaction-checkpoint"
EVERYWHERE = (1 << 63) - 1


class Dirt(NamedTuple):
    """How dirty a log is, of what may be cleaned now."""

    dirty_from: int
    dirty_to: int  # what comes after may not be cleaned yet
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # a record has waited for max.compaction.lag.ms

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


class Compaction:
    """What one log knows of its compaction. On the log's thread, but for ``commit`` and ``save``."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._path = f"{log.path}/{CHECKPOINT}"
        self.clean_to = 0
        self.gaps_below = 0
        self.is_swapping = False  # nothing else may take segments away
        self.dirt: Dirt | None = None  # as it was last looked at
        self.last: Finished | None = None  # the last pass since this process started
        self.last_ms = -1  # when that was
        self._refused: tuple[str, TopicConfig] | None = None
        self._saving = threading.Lock()  # two threads must not write one temporary file

    def load(self) -> None:
        """Read the checkpoint; before segments are looked at."""
        self.clean_to, self.gaps_below = read_checkpoint(self._log.pool.files, self._log.path)

    def save(self) -> None:
        """Write the checkpoint; durable once this returns. May raise OSError."""
        with self._saving:
            self._write(self.gaps_below)

    def allow_gaps(self, below: int) -> None:
        """There may be gaps below this offset; durable once this returns. May raise OSError, with nothing
        changed."""
        with self._saving:
            if below > self.gaps_below:
                self._write(below)
                self.gaps_below = below

    def _write(self, gaps_below: int) -> None:
        write_lines(self._log.pool.files, self._path, [f"{self.clean_to} {gaps_below}"])

    @property
    def uncleanable(self) -> str:
        """Why the log is not compacted any more, under the settings it has; empty if nothing is wrong."""
        reason, config = self._refused or ("", None)
        return reason if config is self._log.config else ""

    def give_up(self, reason: str) -> None:
        """Compact it no more, until its settings are changed or it is opened again."""
        self._refused = reason, self._log.config

    def expect_gaps(self) -> None:
        """There may be gaps anywhere from now on: this is a copy of a log that has some. Durable once this
        returns. May raise OSError."""
        self.allow_gaps(EVERYWHERE)
        self._log.segments.last.gaps = True

    # What is to be done

    def look(self, now_ms: int) -> Dirt:
        """How dirty the log is. May raise OSError."""
        log = self._log
        start, end = log.log_start_offset, log.end_offset
        if not start <= self.clean_to <= end:
            # Trimmed, or the end of it was lost: then nobody knows how far it is clean.
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
        self.dirt = Dirt(self.clean_to, max(dirty_to, self.clean_to), clean, dirty, is_overdue)
        return self.dirt

    def is_due(self, dirt: Dirt) -> bool:
        if dirt.dirty_bytes == 0:
            return False
        return dirt.is_overdue or dirt.ratio > self._log.config.min_cleanable_dirty_ratio

    def job(self, dirt: Dirt, now_ms: int, memory: int) -> Job | None:
        """What a pass over the log has to know; None if it is not the moment for one. May raise OSError."""
        log = self._log
        if log.written_offset != log.end_offset:
            return None  # what producers last wrote may be undone still
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
        return Job(
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

    def is_current(self, job: Job) -> bool:
        """Whether the log still has all segments that the pass was to read."""
        here = {segment.base_offset for segment in self._log.segments}
        return here.issuperset(job.bases)

    # Putting it in place

    def begin(self, group: Group) -> Swap | None:
        """Begin to replace a group; None if its segments are no longer those that were read."""
        log = self._log
        if log.failed is not None or "compact" not in log.config.cleanup_policy:
            return None
        wanted = set(group.bases)
        old = [segment for segment in log.segments if segment.base_offset in wanted]
        if [segment.base_offset for segment in old] != group.bases or old[-1] is log.segments.last:
            return None
        number = next(n for n, segment in enumerate(log.segments) if segment is old[-1])
        ceiling = log.segments.ceiling(number, log.end_offset)
        self.is_swapping = True
        return Swap(log, old, ceiling, group)

    def discard(self) -> None:
        """Remove what a pass that did not get to its end has written. May raise OSError."""
        files, path = self._log.pool.files, self._log.path
        for name in files.listing(path):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(f"{path}/{name}")

    def finished(self, finished: Finished, now_ms: int) -> None:
        """A pass is done, and all of it is in place; to be followed by ``save``."""
        self.clean_to = finished.clean_to
        self.last, self.last_ms = finished, now_ms


class Swap:
    """One group on its way; ``prepare``, ``commit``, ``swap``, a sync of the directory, ``settle``."""

    def __init__(self, log: PartitionLog, old: list[Segment], ceiling: int, group: Group) -> None:
        self._log = log
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
        """Write down what has to be on the disk before the new segment counts. Blocks for syncs; from any
        thread. May raise OSError: then ``cancel``, and the log is as it was."""
        self._log.compaction.allow_gaps(self._ceiling)
        # What producers did is not to be read from the segments any more, which lose most of it.
        sync_if_there(self._log.pool.files, self._log.snapshot_path(self._ceiling))

    def cancel(self) -> None:
        self._log.compaction.is_swapping = False

    def commit(self) -> None:
        """Have the new segment count, also after a crash. Blocks for syncs; from any thread. May raise
        OSError, and then nobody knows whether it counts."""
        log, files = self._log, self._log.pool.files
        path = self.segment.path
        for suffix in INDEX_SUFFIXES:
            files.rename(path + suffix + CLEANED_SUFFIX, path + suffix + SWAP_SUFFIX)
        files.sync_directory(log.path)
        files.rename(path + LOG_SUFFIX + CLEANED_SUFFIX, path + LOG_SUFFIX + SWAP_SUFFIX)
        files.sync_directory(log.path)

    def swap(self) -> None:
        """Give readers the new segment and take the old ones' files away. May raise OSError."""
        log, files = self._log, self._log.pool.files
        log.segments.replace(self._old, self.segment)
        names: list[str] = []
        for segment in self._old:
            names += segment.delete_log()
        for segment in self._old[1:]:
            names += segment.delete_indexes()
            names += rename_all(files, [log.snapshot_path(segment.base_offset)], DELETED_SUFFIX)
        log.retention.remove_later(names, log.clock.now_ms())

    def settle(self) -> None:
        """Take the suffix off, once the disk knows that the old files are gone. May raise OSError."""
        self.segment.move(SWAP_SUFFIX, "")
        self._log.compaction.is_swapping = False


def read_checkpoint(files: Files, path: str) -> tuple[int, int]:
    """Up to where the log in the directory ``path`` is clean, and below which offset it may have gaps."""
    name = f"{path}/{CHECKPOINT}"
    if not files.exists(name):
        return 0, 0
    lines = read_lines(files, name) or []
    if len(lines) == 1 and len(lines[0]) == 2 and all(word.isdigit() for word in lines[0]):
        return int(lines[0][0]), int(lines[0][1])
    return 0, EVERYWHERE  # damaged: then there may be gaps anywhere


def finish_swaps(files: Files, path: str) -> None:
    """Bring what a crash left of a swap to its end, or to what was before. May raise OSError."""
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
            _log.info("%s/%s was on its way when the last process ended; it is put in its place", path, name)
            for other in covered_by(files, path, listing, offset_of(name)):
                files.remove(f"{path}/{other}")
    files.sync_directory(path)  # before the mark is gone that tells they are to go
    for name in swapped:
        files.rename(f"{path}/{name}", f"{path}/{name.removesuffix(SWAP_SUFFIX)}")
    files.sync_directory(path)


def as_swapped(files: Files, path: str, listing: dict[str, int]) -> tuple[dict[str, int], dict[str, str]]:
    """The listing as ``finish_swaps`` would leave it, and the suffix that a file has until then."""
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
    """The files of the segments that the new one, which begins at ``base``, was made of, but for the first's:
    their places are taken by its own."""
    name = file_name(base) + LOG_SUFFIX + SWAP_SUFFIX
    segment = Segment(
        FilePool(files), f"{path}/{file_name(base)}", base, size=listing[name], gaps=True, stage=SWAP_SUFFIX
    )
    end = base
    for item in segment.scan(0, segment.size, base, EVERYWHERE, segment.size):
        end = item.header.next_offset if isinstance(item, Batch) else item.first_offset
    suffixes = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX)
    return [name for name in listing if name.endswith(suffixes) and base < offset_of(name) < end]
