"""Room on the disk: what the broker has to write goes on where producers have filled it.

Rules
-----
1. A *reserve* is a file of real blocks, which nobody else can take. It is there while there is room.
2. The disk is **full** from when it refuses a write, or has less than a quarter of the reserve left. Then the
   reserve is given back to it, and records are refused with what is wrong. Committed offsets, topics to be
   deleted, markers, checkpoints go on, in the room that the reserve left: none of them grows like records do.
3. It is full until twice the reserve is free: then the reserve is taken again, and records too. Nobody has to
   restart anything.

A look at the free space by itself would not do: between two looks a producer writes more than any reserve,
and another program than this one may fill the disk.
"""

from __future__ import annotations

import contextlib
import logging
import threading

from millstream.log.failing import NO_ROOM
from millstream.log.files import Files

_log = logging.getLogger(__name__)

RESERVE = ".reserve"
_SHARE = 20  # the reserve is at most this part of the disk
_LEAST = 1 << 20  # bytes that have to be free before records are taken again, however small the reserve


class Fullness:
    """Whether a disk counts as full. No I/O."""

    __slots__ = ("is_full", "reserve")

    def __init__(self, reserve: int) -> None:
        self.reserve = reserve
        self.is_full = False

    @property
    def enough(self) -> int:
        """What has to be free for a full disk to be one no longer."""
        return max(2 * self.reserve, _LEAST)

    def seen(self, free: int, *, refused: bool) -> bool:
        """``free`` bytes are left, and since the last time a write was ``refused``. Whether that changed
        anything."""
        before = self.is_full
        if refused or free < self.reserve // 4:
            self.is_full = True
        elif free >= self.enough:
            self.is_full = False
        return self.is_full != before


class DiskRoom:
    """The room of one directory. All of it belongs to one thread, but for ``refused``."""

    def __init__(self, files: Files, directory: str, reserve: int) -> None:
        """Take the reserve, or give it back if there is little room. May raise OSError."""
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{RESERVE}"
        free, total = files.space(directory)
        self._fullness = Fullness(min(reserve, total // _SHARE))
        self._was_refused = False
        self._lock = threading.Lock()
        self._has_reserve = files.exists(self._path)
        held = files.open(self._path).size() if self._has_reserve else 0
        # What an earlier process left may have another size than what is wanted now.
        self._fullness.is_full = free + held < self._fullness.enough or not self._take()
        if self.is_full:
            self._give_back()
            _log.error("%s", self.why)

    @property
    def is_full(self) -> bool:
        return self._fullness.is_full

    @property
    def why(self) -> str:
        """What a producer is told."""
        free, _ = self._files.space(self._directory)
        return (
            f"the disk is full: {free} bytes are free for {self._directory}. Records are refused until there "
            f"are {self._fullness.enough}, within any quota; reads go on. Make room, or have topics keep less"
        )

    def refused(self) -> bool:
        """The disk took no more. From any thread; whether there is more room than before now, for what the
        broker itself has to write."""
        self._was_refused = True
        with self._lock:
            return self._give_back()

    def look(self) -> bool:
        """See how much room there is; whether the disk became full, or has room again."""
        free, _ = self._files.space(self._directory)
        refused, self._was_refused = self._was_refused, False
        if not self._fullness.seen(free, refused=refused):
            return False
        with self._lock:
            if self.is_full:
                self._give_back()
                _log.error("%s", self.why)
            elif self._take():
                _log.info("there is room on the disk again, %d bytes: records are taken", free)
            else:
                self._fullness.is_full = True  # a quota, which is not seen in what is free
                return False
        return True

    def close(self) -> None:
        """The reserve is for a broker that runs."""
        if not self.is_full:
            self._give_back()

    def _take(self) -> bool:
        """Whether there is room for the reserve, after all."""
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
