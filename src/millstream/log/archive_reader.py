"""Reading archived segments as if they were local ones.

An object's sections are given to ``Segment`` in place of its files, so that finding an offset, a time or an
aborted transaction, checking batches and reporting damage are the same code in both places. Only writing is
not possible: an index that turns out to be wrong can't be built anew there and is an ArchiveError.

For threads; calls block. A reader has segments of its own for each call, nothing but the blocks is shared.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from millstream.errors import ArchiveError
from millstream.log.archive_blocks import Blocks
from millstream.log.archive_object import ABORTED, INDEX, LOG, TIME_INDEX, ArchivedSegment, Section
from millstream.log.files import File, FilePool, Files
from millstream.log.scan import Damage
from millstream.log.segment import Segment
from millstream.log.segments import Segments
from millstream.log.time_search import run_here
from millstream.records.batch import Buffer

MOST = 8 * 1024 * 1024  # bytes read at once, whatever is asked for: they are in memory until they are sent
BELIEVED = 5.0  # seconds for which an object that was found damaged is not looked at again
_NONE = Section(0, 0, 0)


class ArchiveRead(NamedTuple):
    """Batches, and what readers of committed records have to leave out of them."""

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
    """Reads the archived segments of any log. ``clock`` is one that never goes back, in seconds."""

    def __init__(self, blocks: Blocks, clock: Callable[[], float] = time.monotonic) -> None:
        self.blocks = blocks
        self._clock = clock
        self._damage: dict[str, tuple[float, list[Damage]]] = {}  # by object: when it was found, and what

    @contextlib.contextmanager
    def _opened(self, archived: ArchivedSegment) -> Iterator[Segments]:
        """A segment to be read. What is wrong with its object is believed for a few seconds, so that it is
        downloaded and told of once for all readers that try again. Then it is looked at again: somebody may
        have repaired it."""
        found_at, damage = self._damage.get(archived.name, (0.0, []))
        if damage and self._clock() - found_at >= BELIEVED:
            damage = []
            self._damage.pop(archived.name, None)
            self.blocks.forget(archived.object)
        # The pool only opens files, which is all that a segment asks of it while it is read.
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
        """Batches from the one that holds ``offset``, which is in segment ``number``; one at least. Raises
        ArchiveError, or LogError with code 2 where they are damaged."""
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
        """As ``Segments.aborted``, over what is in the archive; the caller asks the local ones itself."""
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
        """(offset, timestamp) of the first record from ``start`` on with the largest timestamp of all."""
        best = (-1, -1)
        for archived in segments:
            if archived.max_timestamp > best[1] and archived.end_offset > start:
                with self._opened(archived) as opened:
                    found = run_here(opened.newest(start, end=archived.end_offset))
                best = max(best, found, key=lambda known: known[1])
        return best
