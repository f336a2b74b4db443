"""What of a partition is in the archive: written down beside its log, in ``archived-segments``.

The file is a journal, a line for each step, with its checksum; a step counts once its line is synced:

    copying NAME      before the first byte goes to the archive: if no ``kept`` follows, what is there of it
                      is removed
    kept SEGMENT      it was read back and is whole: from here on the local segment may be deleted
    dropped NAME      it is not served any more: what is there of it is removed
    gone NAME         that was done

So a crash between any two steps leaves nothing in the archive that nobody knows of, and takes nothing away
that is not there. A line that was cut off by a crash is as if it had not been written. If the file is lost,
or damaged in the middle, it is built anew from what is in the archive (``archive_adoption``).

Segments in the archive stand in the order of their offsets. Where one is in both places the local one is
read. The list is replaced when it changes, never changed in place: readers in other threads go on with the
one they have. Writing to the journal blocks for a sync and is done by one thread at a time, between ``open``
and ``let_go``: a topic that is deleted meanwhile and created again has a journal of the same name.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from millstream.errors import LogError, OffsetArchived
from millstream.log.archive_object import ArchivedSegment
from millstream.log.files import File, Files, read_file, replace_file

_log = logging.getLogger(__name__)

CORRUPT_MESSAGE = 2
JOURNAL = "archived-segments"
_COPYING, _KEPT, _DROPPED, _GONE = "copying", "kept", "dropped", "gone"
_DEAD_LINES = 1000  # of segments that are gone, before the file is written anew at the next start


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
        self._file: File | None = None  # the journal, while it is written to
        self._end = 0  # of the journal
        self.is_known = False  # there is a journal, and it is sound
        self.segments: Sequence[ArchivedSegment] = ()
        self._bases: list[int] = []
        self.size = 0  # bytes of log
        self.newest_timestamp = -1  # of all of it
        self.leftovers: dict[str, None] = {}  # names of objects that are to be removed

    # What is there

    @property
    def end_offset(self) -> int:
        """All below is in the archive, as far as it was ever there; -1 if nothing is."""
        return self.segments[-1].end_offset if self.segments else -1

    def oldest_offset(self, local: int) -> int:
        """Where the log begins whose oldest local offset is ``local``."""
        return min(self.segments[0].base_offset, local) if self.segments else local

    def before(self, offset: int) -> Sequence[ArchivedSegment]:
        """The segments that begin before an offset: those that are not here, for the oldest local one."""
        return self.segments[: bisect_right(self._bases, offset - 1)]

    def number_of(self, offset: int) -> int:
        """The number of the segment that holds an offset, or of the last one before it; -1 if none is."""
        return bisect_right(self._bases, offset) - 1

    def referral(self, name: str, offset: int, local: int) -> LogError:
        """What to tell the reader of an offset below ``local``, the oldest one here: to look in the archive,
        or that it is nowhere."""
        if offset < self.end_offset:
            return OffsetArchived(f"{name}: offset {offset} is in the archive")
        return LogError(
            CORRUPT_MESSAGE,
            f"{name}: offsets {self.end_offset} to {local - 1} are missing, here and in the archive; go on "
            f"from offset {local}",
        )

    def _replace(self, segments: Sequence[ArchivedSegment]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.size = sum(segment.size for segment in segments)
        self.newest_timestamp = max((segment.max_timestamp for segment in segments), default=-1)

    def add(self, segment: ArchivedSegment) -> None:
        """It is kept: remember it."""
        self.leftovers.pop(segment.name, None)
        self._replace((*self.segments, segment))

    def remove_first(self, count: int) -> None:
        """The oldest are dropped: serve them no more."""
        self.leftovers.update(dict.fromkeys(segment.name for segment in self.segments[:count]))
        self._replace(tuple(self.segments[count:]))

    def forget_leftovers(self, names: Sequence[str]) -> None:
        for name in names:
            self.leftovers.pop(name, None)

    # The journal

    def create(self) -> None:
        """Begin with nothing in the archive."""
        if not self.is_known:
            replace_file(self._files, self._path, b"")
            self._end = 0
            self.is_known = True

    def open(self) -> None:
        """Before writing. Raises OSError."""
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
            file.truncate(self._end)  # a part of it must not stand before what comes next
            raise
        self._end += len(data)

    def load(self) -> None:
        """Read the journal, which is there."""
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
                    _log.error("%s is damaged in line %d; it is built anew", self._path, number + 1)
                    return
                break  # cut off by a crash: the next step takes its place
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
        """Take what was found in the archive itself; the others of its objects are to be removed."""
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
