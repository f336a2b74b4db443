"""Copies a sealed segment to the archive: the server's loop decides what to copy, a thread copies it.

A segment is copied when all of it is decided (below the last stable offset) and synced, so the archive
never has records that the log could lose. The copy counts as archived once it was read back and the
journal says so (``archive``).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, NamedTuple

from millstream.core.clock import Clock
from millstream.core.errors import ArchiveError
from millstream.log.archive.journal import Archive
from millstream.log.archive.object import (
    ABORTED,
    EPOCHS,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    ArchivedSegment,
    ObjectWriter,
    SectionSource,
    check_written,
)
from millstream.log.archive.store import ArchiveStore
from millstream.log.partition import PartitionLog
from millstream.log.segment.segment import (
    ABORTED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
)
from millstream.log.storage.files import Files
from millstream.log.storage.memory import MemoryFile, MemoryFiles
from millstream.records.batch import NO_TIMESTAMP

_INDEXES = ((INDEX, INDEX_SUFFIX), (TIME_INDEX, TIME_INDEX_SUFFIX), (ABORTED, ABORTED_SUFFIX))


class Copy(NamedTuple):
    """One segment to copy."""

    archive: Archive
    files: Files
    path: str  # of the local segment, without a suffix
    log_size: int
    snapshot_path: str
    epochs: bytes
    identity: dict[str, Any]
    segment: ArchivedSegment  # as it will be archived, without its sections


def unarchived_bytes(log: PartitionLog) -> int:
    """How far archiving is behind: the bytes of sealed segments that are only local."""
    end = log.archive.end_offset
    return sum(s.size for s in log.segments if s is not log.segments.last and s.base_offset >= end)


def next_copy(log: PartitionLog, prefix: str, identity: dict[str, Any]) -> Copy | None:
    """The oldest segment that is not archived and can be copied now. For the loop."""
    upto = min(log.last_stable_offset, log.synced_offset)
    for number, segment in enumerate(log.segments):
        if segment is log.segments.last:
            break
        ceiling = log.segments.ceiling(number, log.end_offset)
        if segment.base_offset < log.archive.end_offset or ceiling <= log.log_start_offset:
            continue
        if ceiling > upto:
            break
        name = f"{prefix}/{log.partition}/{file_name(segment.base_offset)}-{uuid.uuid4().hex}"
        planned = ArchivedSegment(
            name,
            segment.base_offset,
            ceiling,
            segment.newest_ms(ceiling),
            segment.rolls_from(NO_TIMESTAMP),
            segment.largest_timestamp(ceiling)[0],
            segment.aborted.count,
            0,
            {},
        )
        return Copy(
            log.archive,
            log.pool.files,
            segment.path,
            segment.written,
            log.snapshot_path(ceiling),
            log.epochs.text_upto(ceiling),
            {**identity, "topic": log.topic, "partition": log.partition},
            planned,
        )
    return None


class Pace:
    """Limits how fast all copies together may go, and stops them at shutdown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock.monotonic()  # when the next bytes may go
        self._stopping = threading.Event()
        self.bytes_per_second: float = inf

    def stop(self) -> None:
        """Make all copies give up."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def take(self, size: int) -> float:
        """Account for ``size`` more bytes and return the seconds until they may go."""
        with self._lock:
            now = self._clock.monotonic()
            pause = max(0.0, self._next - now)
            self._next = now + pause + size / self.bytes_per_second
        return pause

    def wait(self, size: int) -> None:
        """Wait until ``size`` more bytes may go. Raises ArchiveError if copying has stopped."""
        if self._stopping.wait(self.take(size)):
            raise ArchiveError("the broker is shutting down")


def copy_segment(
    copy: Copy, store: ArchiveStore, pace: Pace, is_ours: Callable[[], None] = lambda: None
) -> ArchivedSegment:
    """Copy a segment, read it back and note it in the journal. For a thread. Raises ArchiveError, or
    OSError if the journal can't be written or the log was deleted meanwhile. After either error, the
    local segment remains the one that counts.

    ``is_ours`` raises ArchiveError if this is no longer the broker's archive. It is called between
    writing and reading back: an archive that was unmounted before the write fails this check, and one
    that was mounted again since then does not have the object."""
    files = copy.files
    sources = [SectionSource(LOG, files.open(copy.path + LOG_SUFFIX), copy.log_size)]
    for section, suffix in _INDEXES:
        if files.exists(copy.path + suffix):
            file = files.open(copy.path + suffix)
            sources.append(SectionSource(section, file, file.size()))
    if files.exists(copy.snapshot_path):
        file = files.open(copy.snapshot_path)
        sources.append(SectionSource(SNAPSHOT, file, file.size()))
    epochs = MemoryFile(MemoryFiles())
    epochs.pwrite(copy.epochs, 0)
    sources.append(SectionSource(EPOCHS, epochs, len(copy.epochs)))
    writing = ObjectWriter(copy.segment, sources, copy.identity)
    copy.archive.write_copying(copy.segment.name)
    store.put(copy.segment.object, _paced(pace, writing.chunks()))
    is_ours()
    written = check_written(store, writing)
    pace.wait(0)  # the journal is not written once the broker shuts down
    copy.archive.write_kept(written)
    return written


def _paced(pace: Pace, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        pace.wait(len(chunk))
        yield chunk
