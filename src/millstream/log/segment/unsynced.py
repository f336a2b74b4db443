"""What one log has written but not yet synced: sealed segments, file names, and since when they wait.

``sync`` may run in another thread than everything else, one call at a time. What happens during a sync is
left for the next one.
"""

from __future__ import annotations

from millstream.log.segment.segment import Segment
from millstream.log.segment.segments import Segments
from millstream.log.storage.files import Files


class Unsynced:
    """What one log has written but not yet synced."""

    __slots__ = ("_files", "_path", "names", "oldest_ms", "parent", "sealed")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.sealed: list[Segment] = []  # with unsynced writes; the last segment may always have some
        self.oldest_ms: int | None = None  # the time of the first such write
        self.names = False  # files were created in the directory since it was synced
        self.parent = False  # the directory itself was created since its parent was synced

    def sync(self, segments: Segments) -> None:
        """Block until everything written before this call is on the disk. May raise OSError."""
        oldest, self.oldest_ms = self.oldest_ms, None
        last = segments.last
        sealed = list(self.sealed)  # read after ``last``: roll() adds a segment here, then starts the next
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
        """Make every file name durable. May raise OSError."""
        if self.names:
            self.names = False  # cleared first: files may be created meanwhile
            try:
                self._files.sync_directory(self._path)
            except OSError:
                self.names = True
                raise
        if self.parent:
            self._files.sync_directory(self._path.rpartition("/")[0])
            self.parent = False

    def has_waited(self, most_ms: int, now_ms: int) -> bool:
        """True if something written has waited for that long."""
        if self.oldest_ms is not None and now_ms < self.oldest_ms:
            self.oldest_ms = now_ms  # the clock was set back
        return self.oldest_ms is not None and now_ms - self.oldest_ms >= most_ms
