"""Reads archived segments with the same code as local ones.

``Segment`` gets an object's sections in place of its files. So the same code finds an offset, a time or
an aborted transaction, checks batches and reports damage in both places. Only writing is impossible: an
index that turns out to be wrong can't be rebuilt in the archive, and raises ArchiveError.

For threads; calls block. Each call has its own segments; calls share the blocks, and what is known about
damage.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from millstream.core.errors import ArchiveError
from millstream.log.archive.blocks import Blocks
from millstream.log.archive.object import ABORTED, INDEX, LOG, TIME_INDEX, ArchivedSegment, Section
from millstream.log.segment.scan import Damage
from millstream.log.segment.segment import Segment
from millstream.log.segment.segments import Segments
from millstream.log.segment.time_search import run_here
from millstream.log.storage.files import File, FilePool, Files
from millstream.records.batch import Buffer

MOST = 8 * 1024 * 1024  # bytes per read, however many are asked for: they stay in memory until they are sent
BELIEVED = 5.0  # seconds before an object that was found damaged is checked again
_NONE = Section(0, 0, 0)


class ArchiveRead(NamedTuple):
    """Batches, and the aborted transactions that readers of committed records leave out."""

    data: bytes
    aborted: list[tuple[int, int]]
    upto: int  # an offset that the batches don't reach


class _SectionFile:
    """A section of an object, as a file."""

    __slots__ = ("_blocks", "_section", "_segment")

    def __init__(self, blocks: Blocks, segment: ArchivedSegment, section: Section) -> None:
        self._blocks = blocks
        self._segment = segment
        self._section = section

    def pread(self, size: int, position: int) -> bytes:
        start, length, _ = self._section
        size = min(size, length - position)
        if size <= 0:
            return b""
        return self._blocks.read(self._segment.object, self._segment.object_size, start + position, size)

    def pwrite(self, data: Buffer, position: int) -> None:
        raise self._read_only()

    def truncate(self, size: int) -> None:
        raise self._read_only()

    def allocate(self, size: int) -> None:
        raise self._read_only()

    def sync(self) -> None:
        raise self._read_only()

    def _read_only(self) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), self._segment.object)

    def size(self) -> int:
        return self._section.size

    def fileno(self) -> int:
        return -1


class _ObjectFiles:
    """Opens the sections of one object by the names that a segment gives its files."""

    def __init__(self, blocks: Blocks, segment: ArchivedSegment) -> None:
        self._blocks = blocks
        self._segment = segment

    def open(self, path: str, *, create: bool = False) -> File:
        section = self._segment.sections.get(path.rpartition(".")[2], _NONE)
        return _SectionFile(self._blocks, self._segment, section)


class ArchiveReader:
    """Reads the archived segments of any log. ``clock`` is a monotonic clock, in seconds."""

    def __init__(self, blocks: Blocks, clock: Callable[[], float] = time.monotonic) -> None:
        self.blocks = blocks
        self._clock = clock
        self._damage: dict[str, tuple[float, list[Damage]]] = {}  # by object: when it was found, and what

    @contextlib.contextmanager
    def _opened(self, archived: ArchivedSegment) -> Iterator[Segments]:
        """Open a segment for reading. Damage in its object is remembered for a few seconds, so it is
        downloaded and reported once for all readers that retry. Then the object is checked again: a
        person may have repaired it."""
        found_at, damage = self._damage.get(archived.name, (0.0, []))
        if damage and self._clock() - found_at >= BELIEVED:
            damage = []
            self._damage.pop(archived.name, None)
            self.blocks.forget(archived.object)
        # The pool only opens files, and a segment that is only read needs nothing else from it.
        pool = FilePool(cast(Files, _ObjectFiles(self.blocks, archived)), limit=16)
        sections = archived.sections
        segment = Segment(
            pool,
            archived.name,
            archived.base_offset,
            size=sections[LOG].size,
            index_size=sections[INDEX].size,
            times_size=sections[TIME_INDEX].size,
            aborted_size=sections.get(ABORTED, _NONE).size,
        )
        segment.damage = list(damage)
        try:
            yield Segments([segment])
        except OSError as error:
            self.blocks.forget(archived.object)
            raise ArchiveError(f"{archived.object} can't be read: {error}") from error
        finally:
            if len(segment.damage) > len(damage):
                self._damage[archived.name] = (self._clock(), segment.damage)

    def read(
        self,
        segments: Sequence[ArchivedSegment],
        number: int,
        offset: int,
        max_bytes: int,
        *,
        committed: bool,
    ) -> ArchiveRead:
        """Read batches, starting with the one that holds ``offset``, which is in segment ``number``; at
        least one. Raises ArchiveError, or LogError with code 2 if they are damaged."""
        archived = segments[number]
        end = archived.end_offset
        with self._opened(archived) as opened:
            part = opened.read(offset, min(max_bytes, MOST), end, True, end=end, stop=None)
            data = part.bytes()
            after = part.position + part.size
            if after < archived.size:
                self.blocks.read_ahead(archived.object, archived.object_size, after)
            elif number + 1 < len(segments):
                following = segments[number + 1]
                self.blocks.read_ahead(following.object, following.object_size, 0)
            upto = opened.offset_after(offset, part, end=end) if data else offset
        return ArchiveRead(data, self._aborted(segments[number:], offset, upto) if committed else [], upto)

    def _aborted(self, segments: Iterable[ArchivedSegment], start: int, upto: int) -> list[tuple[int, int]]:
        """Like ``Segments.aborted``, over the archived segments. The caller asks the local ones itself."""
        found: list[tuple[int, int]] = []
        for archived in segments:
            if archived.aborted:
                with self._opened(archived) as opened:
                    is_all = opened[0].aborted.collect(start, upto, found)
                if is_all:
                    break
        return found

    def first_at(
        self, segments: Iterable[ArchivedSegment], timestamp: int, start: int
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record from ``start`` on with that timestamp or a later one."""
        for archived in segments:
            if archived.max_timestamp >= timestamp and archived.end_offset > start:
                with self._opened(archived) as opened:
                    found = run_here(opened.first_at(timestamp, start, end=archived.end_offset))
                if found is not None:
                    return found
        return None

    def newest(self, segments: Iterable[ArchivedSegment], start: int) -> tuple[int, int]:
        """(offset, timestamp) of the first record from ``start`` on that has the largest timestamp."""
        best = (-1, -1)
        for archived in segments:
            if archived.max_timestamp > best[1] and archived.end_offset > start:
                with self._opened(archived) as opened:
                    found = run_here(opened.newest(start, end=archived.end_offset))
                best = max(best, found, key=lambda known: known[1])
        return best
