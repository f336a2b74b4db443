"""What of a log no sync has covered: sealed segments, names of files, and since when.

``sync`` may run in another thread than everything else, one at a time; what happens meanwhile is left for the
next one.
"""

from __future__ import annotations

from millstream.log.files import Files
from millstream.log.segment import Segment
from millstream.log.segments import Segments


class Unsynced:
    """Of one log."""

    __slots__ = ("_files", "_path", "names", "oldest_ms", "parent", "sealed")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.sealed: list[Segment] = []  # with writes that no sync has covered; the last one always may
        self.oldest_ms: int | None = None  # when the first such write was
        self.names = False  # files were created in the directory since it was synced
        self.parent = False  # the directory itself was

    def sync(self, segments: Segments) -> None:
        """Block until all that was written when this was called is on the disk. May raise OSError."""
        oldest, self.oldest_ms = self.oldest_ms, None
        last = segments.last
        sealed = list(self.sealed)  # after the last one: a segment is put here before another one is the last
        try:
            for segment in sealed:
                segment.sync_sealed()
            last.sync()
            self.sync_names()
        except OSError:
            self.oldest_ms = oldest
            raise
        del self.sealed[: len(sealed)]

    def sync_names(self) -> None:
        """Make sure the disk knows every file by name. May raise OSError."""
        if self.names:
            self.names = False  # before it: files may be created meanwhile
            try:
                self._files.sync_directory(self._path)
            except OSError:
                self.names = True
                raise
        if self.parent:
            self._files.sync_directory(self._path.rpartition("/")[0])
            self.parent = False

    def has_waited(self, most_ms: int, now_ms: int) -> bool:
        """Something written has waited for that long."""
        if self.oldest_ms is not None and now_ms < self.oldest_ms:
            self.oldest_ms = now_ms  # the clock was set back
        return self.oldest_ms is not None and now_ms - self.oldest_ms >= most_ms
