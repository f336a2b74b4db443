"""The journal of what a partition has in the archive: the file ``archived-segments`` beside its log.

Each line of the journal is one step, with a checksum. A step counts once its line is synced:

    copying NAME      before the first byte is written to it: if no ``kept`` follows, any part of
                      the object is removed
    kept SEGMENT      it was read back and is complete: from here on the local segment may be deleted
    dropped NAME      it is no longer served: the object is removed
    gone NAME         the object has been removed

So a crash between any two steps leaves no unknown object in the archive, and loses no object that is
listed as kept. A line that a crash cut off is treated as if it had not been written. If the file is lost,
or damaged in the middle, it is rebuilt from the contents of the archive (``archive_adoption``).

Archived segments are listed in the order of their offsets. A segment that is in both places is read locally.
The list is replaced when it changes, never changed in place: readers in other threads continue with the list
they have. A write to the journal blocks for a sync. One thread at a time writes, between ``open`` and
``let_go``, because a topic that is deleted and created again meanwhile has a journal of the same name.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from millstream.core.errors import LogError, OffsetArchived
from millstream.core.kafka_errors import CORRUPT_MESSAGE
from millstream.log.archive.object import ArchivedSegment
from millstream.log.storage.files import File, Files, read_file, replace_file

_log = logging.getLogger(__name__)

JOURNAL = "archived-segments"
_COPYING, _KEPT, _DROPPED, _GONE = "copying", "kept", "dropped", "gone"
_DEAD_LINES = 1000  # lines about segments that are gone, before the next start rewrites the file


class Archive:
    """The archived segments of one partition."""

    __slots__ = (
        "_bases",
        "_end",
        "_file",
        "_files",
        "_path",
        "is_known",
        "leftovers",
        "newest_timestamp",
        "segments",
        "size",
    )

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{JOURNAL}"
        self._file: File | None = None  # the journal, while it is open for writing
        self._end = 0  # of the journal
        self.is_known = False  # the journal exists and is sound
        self.segments: Sequence[ArchivedSegment] = ()
        self._bases: list[int] = []
        self.size = 0  # bytes of log in the archive
        self.newest_timestamp = -1  # of all archived segments
        self.leftovers: dict[str, None] = {}  # names of objects to be removed

    # The archived segments

    @property
    def end_offset(self) -> int:
        """The offset after the last archived record; -1 if nothing is archived. Older records that are
        not in the archive are not copied any more."""
        return self.segments[-1].end_offset if self.segments else -1

    def oldest_offset(self, local: int) -> int:
        """Where the whole log begins if its oldest local offset is ``local``."""
        return min(self.segments[0].base_offset, local) if self.segments else local

    def before(self, offset: int) -> Sequence[ArchivedSegment]:
        """The segments that begin before an offset. For the oldest local offset: those that are only in
        the archive."""
        return self.segments[: bisect_right(self._bases, offset - 1)]

    def number_of(self, offset: int) -> int:
        """The number of the segment that holds an offset, or of the last one before it; -1 if there is
        none."""
        return bisect_right(self._bases, offset) - 1

    def referral(self, name: str, offset: int, local: int) -> LogError:
        """The error for a read below ``local``, the oldest local offset: either the offset is in the
        archive, or it is missing in both places."""
        if offset < self.end_offset:
            return OffsetArchived(f"{name}: offset {offset} is in the archive")
        return LogError(
            CORRUPT_MESSAGE,
            f"{name}: offsets {self.end_offset} to {local - 1} are missing, both here and in the "
            f"archive; continue at offset {local}",
        )

    def _replace(self, segments: Sequence[ArchivedSegment]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.size = sum(segment.size for segment in segments)
        self.newest_timestamp = max((segment.max_timestamp for segment in segments), default=-1)

    def add(self, segment: ArchivedSegment) -> None:
        """Add a segment that is kept."""
        self.leftovers.pop(segment.name, None)
        self._replace((*self.segments, segment))

    def remove_first(self, count: int) -> None:
        """Stop serving the oldest segments, which were dropped."""
        self.leftovers.update(dict.fromkeys(segment.name for segment in self.segments[:count]))
        self._replace(tuple(self.segments[count:]))

    def forget_leftovers(self, names: Sequence[str]) -> None:
        for name in names:
            self.leftovers.pop(name, None)

    # The journal

    def create(self) -> None:
        """Start a journal with nothing in the archive."""
        if not self.is_known:
            replace_file(self._files, self._path, b"")
            self._end = 0
            self.is_known = True

    def open(self) -> None:
        """Open the journal for writing. Raises OSError."""
        self._file = self._files.open(self._path)

    def let_go(self) -> None:
        self._file = None

    def write_copying(self, name: str) -> None:
        self._write([(_COPYING, name)])

    def write_kept(self, segment: ArchivedSegment) -> None:
        self._write([(_KEPT, segment.to_json())])

    def write_dropped(self, names: Sequence[str]) -> None:
        self._write([(_DROPPED, name) for name in names])

    def write_gone(self, names: Sequence[str]) -> None:
        self._write([(_GONE, name) for name in names])

    def _write(self, steps: list[tuple[str, Any]]) -> None:
        data = b"".join(map(_line, steps))
        file = self._file
        assert file is not None
        try:
            file.pwrite(data, self._end)
            file.sync()
        except OSError:
            file.truncate(self._end)  # a partial line must not precede the next step
            raise
        self._end += len(data)

    def load(self) -> None:
        """Read the journal, which must exist."""
        data = read_file(self._files, self._path)
        kept: dict[str, ArchivedSegment] = {}
        leftovers: dict[str, None] = {}
        lines = data.splitlines(keepends=True)
        for number, line in enumerate(lines):
            try:
                kind, what = _step(line)
                if kind == _KEPT:
                    segment = ArchivedSegment.from_json(what)
                    leftovers.pop(segment.name, None)
                    kept[segment.name] = segment
                elif kind == _GONE:
                    leftovers.pop(what, None)
                else:
                    kept.pop(what, None)
                    leftovers[what] = None
            except (ValueError, KeyError, TypeError):
                if number < len(lines) - 1:
                    _log.error("%s is damaged in line %d; it is rebuilt", self._path, number + 1)
                    return
                break  # a crash cut it off: the next step overwrites it
            self._end += len(line)
        self.is_known = True
        self.leftovers = leftovers
        self._replace(tuple(sorted(kept.values(), key=lambda segment: segment.base_offset)))
        if len(lines) - len(kept) > max(_DEAD_LINES, len(kept)):
            self._rewrite()
        elif self._end < len(data):
            self._files.open(self._path).truncate(self._end)

    def _rewrite(self) -> None:
        steps: list[tuple[str, Any]] = [(_DROPPED, name) for name in self.leftovers]
        steps += [(_KEPT, segment.to_json()) for segment in self.segments]
        data = b"".join(map(_line, steps))
        replace_file(self._files, self._path, data)
        self._end = len(data)

    def adopt(self, segments: Sequence[ArchivedSegment], leftovers: Sequence[str]) -> None:
        """Take over what was found in the archive itself. The objects in ``leftovers`` are to be removed."""
        self._replace(tuple(segments))
        self.leftovers = dict.fromkeys(leftovers)
        self._rewrite()
        self.is_known = True


def _line(step: tuple[str, Any]) -> bytes:
    body = json.dumps(step).encode()
    return b"%08x %s\n" % (crc32c(body), body)


def _step(line: bytes) -> tuple[str, Any]:
    body = line[9:-1]
    if not line.endswith(b"\n") or int(line[:8], 16) != crc32c(body):
        raise ValueError("not a step")
    kind, what = json.loads(body)
    if kind not in (_COPYING, _KEPT, _DROPPED, _GONE):
        raise ValueError(f"no step is called {kind}")
    return kind, what
