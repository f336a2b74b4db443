"""Room on a full disk: keeps the broker's own writes going where producers have filled the disk.

Rules:

1. A *reserve* is a file of allocated blocks, which no other program can take. It exists while there is room.
2. The disk is **full** once it refuses a write, or once less than a quarter of the reserve's size is
   free. Then the reserve is released, and records are refused with an error that says so. Committed
   offsets, deletions of topics, markers and checkpoints continue in the space that the reserve freed:
   none of them grows as records do.
3. It stays full until twice the reserve is free. Then the reserve is taken again, and records are
   accepted. No restart is needed.

Watching the free space would not be enough: between two checks a producer can write more than any
reserve, and another program may fill the disk.
"""

from __future__ import annotations

import contextlib
import logging
import threading

from millstream.log.disk_failures import NO_ROOM
from millstream.log.storage.files import Files

_log = logging.getLogger(__name__)

RESERVE = ".reserve"
_SHARE = 20  # the reserve is at most one part in this many of the disk
_LEAST = 1 << 20  # bytes that must be free before records are accepted again, however small the reserve


class Fullness:
    """Decides whether a disk counts as full. No I/O."""

    __slots__ = ("is_full", "reserve")

    def __init__(self, reserve: int) -> None:
        self.reserve = reserve
        self.is_full = False

    @property
    def enough(self) -> int:
        """The bytes that must be free before a full disk counts as usable again."""
        return max(2 * self.reserve, _LEAST)

    def seen(self, free: int, *, refused: bool) -> bool:
        """Note that ``free`` bytes are left, and whether a write was ``refused`` since the last call.
        True if ``is_full`` changed."""
        before = self.is_full
        if refused or free < self.reserve // 4:
            self.is_full = True
        elif free >= self.enough:
            self.is_full = False
        return self.is_full != before


class DiskRoom:
    """The room in one directory. Everything belongs to one thread, except ``refused``."""

    def __init__(self, files: Files, directory: str, reserve: int) -> None:
        """Take the reserve, or release it if there is little room. May raise OSError."""
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{RESERVE}"
        free, total = files.space(directory)
        self._fullness = Fullness(min(reserve, total // _SHARE))
        self._was_refused = False
        self._lock = threading.Lock()
        self._has_reserve = files.exists(self._path)
        held = files.open(self._path).size() if self._has_reserve else 0
        # A reserve left by an earlier process may have a different size.
        self._fullness.is_full = free + held < self._fullness.enough or not self._take()
        if self.is_full:
            self._give_back()
            _log.error("%s", self.why)

    @property
    def is_full(self) -> bool:
        return self._fullness.is_full

    @property
    def why(self) -> str:
        """The message for producers."""
        free, _ = self._files.space(self._directory)
        return (
            f"the disk is full: {free} bytes are free for {self._directory}. Records are refused until there "
            f"are {self._fullness.enough}, within any quota; reads continue. Free some space, or"
            " have topics keep less"
        )

    def refused(self) -> bool:
        """Note that the disk refused a write. From any thread. True if releasing the reserve made room
        for the broker's own writes."""
        self._was_refused = True
        with self._lock:
            return self._give_back()

    def look(self) -> bool:
        """Check the free space. True if the disk became full, or has room again."""
        free, _ = self._files.space(self._directory)
        refused, self._was_refused = self._was_refused, False
        if not self._fullness.seen(free, refused=refused):
            return False
        with self._lock:
            if self.is_full:
                self._give_back()
                _log.error("%s", self.why)
            elif self._take():
                _log.info("there is room on the disk again, %d bytes: records are accepted", free)
            else:
                self._fullness.is_full = True  # a quota, which the free space does not show
                return False
        return True

    def close(self) -> None:
        """Release the reserve: only a running broker needs it."""
        if not self.is_full:
            self._give_back()

    def _take(self) -> bool:
        """Take the reserve. False if there is no room for it after all."""
        self._has_reserve = True
        try:
            self._files.open(self._path, create=True).allocate(self._fullness.reserve)
        except OSError as error:
            self._give_back()
            if error.errno in NO_ROOM:
                return False
            _log.warning("can't keep a reserve of %d bytes: %s", self._fullness.reserve, error)
        return True

    def _give_back(self) -> bool:
        had, self._has_reserve = self._has_reserve, False
        if had:
            with contextlib.suppress(OSError):
                self._files.remove(self._path)
        return had
