"""Files in memory under one common bound, for topics with ``millstream.storage=memory``.

How it works:

- Every byte of every file counts, and a write that would exceed the bound first asks for room.
- The owner of the topics makes room (``make_room``). It may *spill*: the oldest bytes of a file move to
  an unnamed file in the data directory, which disappears with the process, and are read from there.
- If no room can be made, the write is refused as on a full disk, and the log undoes it.

A lock guards everything: compaction writes from its own thread.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

from millstream.log.storage.files import DIRECTORY, File
from millstream.records.batch import Buffer

NO_LIMIT = 1 << 62


class MemoryFile:
    """A file's bytes in this process. A holder can still use it after its name is gone. Its first
    ``spilled`` bytes may be on the disk."""

    __slots__ = ("_disk", "_files", "_lock", "counted", "data", "modified_ms", "spilled")

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._lock = files.lock_all
        self._disk: IO[bytes] | None = None
        self.data = bytearray()
        self.spilled = 0
        self.modified_ms = 0
        self.counted = True  # has a name

    def pread(self, size: int, position: int) -> bytes:
        with self._lock:
            at = position - self.spilled
            if at >= 0:
                return bytes(memoryview(self.data)[at : at + size])
            assert self._disk is not None
            found = os.pread(self._disk.fileno(), min(size, -at), position)
            return found + bytes(memoryview(self.data)[: max(0, size + at)])

    def pwrite(self, data: Buffer, position: int) -> None:
        with self._lock:
            grows = position + len(data) - self.size()
            if grows > 0 and self.counted:
                self._files.take(grows)
            if position < self.spilled:
                assert self._disk is not None
                below = self.spilled - position
                os.pwrite(self._disk.fileno(), memoryview(data)[:below], position)
                data = memoryview(data)[below:]
                position = self.spilled
            at = position - self.spilled
            have = len(self.data)
            if at > have:
                self.data.extend(bytes(at - have))
            if at >= have:
                self.data += data
            else:
                self.data[at : at + len(data)] = data
            self.modified_ms = time.time_ns() // 1_000_000

    def truncate(self, size: int) -> None:
        with self._lock:
            before = len(self.data)
            if size < self.spilled:
                self.spilled = size
                self.data.clear()
            elif size < self.size():
                del self.data[size - self.spilled :]
            else:
                self.data.extend(bytes(size - self.size()))
            if self.counted:
                self._files.used += len(self.data) - before

    allocate = truncate

    def spill(self, most: int, directory: str) -> int:
        """Move up to ``most`` of the oldest bytes in memory to a disk; returns how many. May raise
        OSError."""
        with self._lock:
            if self._disk is None:
                self._disk = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
            with memoryview(self.data)[:most] as piece:
                count = os.pwrite(self._disk.fileno(), piece, self.spilled)
            del self.data[:count]
            self.spilled += count
            self._files.used -= count
            return count

    def sync(self) -> None:
        pass

    def size(self) -> int:
        return self.spilled + len(self.data)

    def fileno(self) -> int:
        return -1


class MemoryFiles:
    """A file system that lives as long as the process."""

    def __init__(self, limit: int = NO_LIMIT) -> None:
        self.limit = limit
        self.used = 0  # bytes in memory, of files that have a name
        self.lock_all = threading.RLock()
        # Called when a write needs this many more bytes than there is room for.
        self.make_room: Callable[[int], None] = lambda size: None
        # The contents of each directory, by name; None stands for a directory.
        self._directories: dict[str, dict[str, MemoryFile | None]] = {"": {}}
        self._locks: set[str] = set()

    def take(self, size: int) -> None:
        """Count ``size`` more bytes. Raises OSError if there is no room for them."""
        if self.used + size > self.limit:
            self.make_room(size)
            if self.used + size > self.limit:
                raise OSError(errno.ENOSPC, f"the memory for topics is full, {self.limit} bytes")
        self.used += size

    def files_in(self, path: str, suffix: str) -> Iterator[MemoryFile]:
        """The files in a directory whose names end with ``suffix``, sorted by name."""
        for name, file in sorted(self._directories.get(path, {}).items()):
            if file is not None and name.endswith(suffix):
                yield file

    def _forget(self, file: MemoryFile | None) -> None:
        """Stop counting a file that no longer has a name."""
        if file is not None and file.counted:
            with self.lock_all:
                file.counted = False
                self.used -= len(file.data)

    def _place(self, path: str) -> tuple[dict[str, MemoryFile | None], str]:
        directory, _, name = path.rpartition("/")
        try:
            return self._directories[directory], name
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def open(self, path: str, *, create: bool = False) -> File:
        names, name = self._place(path)
        file = names.get(name)
        if file is None:
            if not create or name in names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            file = names[name] = MemoryFile(self)
        return file

    def listing(self, path: str) -> dict[str, int]:
        names, _ = self._place(path + "/")
        return {name: DIRECTORY if file is None else file.size() for name, file in names.items()}

    def exists(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        return name in self._directories.get(directory, ())

    def make_directory(self, path: str) -> None:
        if path not in self._directories:
            parent, _, name = path.rpartition("/")
            self.make_directory(parent)
            self._directories[parent][name] = None
            self._directories[path] = {}

    def rename(self, old: str, new: str) -> None:
        names, name = self._place(old)
        if name not in names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        moved = names.pop(name)
        new_names, new_name = self._place(new)
        self._forget(new_names.get(new_name))
        new_names[new_name] = moved
        if moved is None:
            for path in self._tree(old):
                self._directories[new + path[len(old) :]] = self._directories.pop(path)

    def remove(self, path: str) -> None:
        names, name = self._place(path)
        self._forget(names.pop(name, None))

    def discard(self, paths: list[str]) -> None:
        for path in paths:
            self.remove(path)
            for gone in self._tree(path):
                for file in self._directories.pop(gone).values():
                    self._forget(file)

    def _tree(self, path: str) -> list[str]:
        """A directory and all directories below it; empty if ``path`` is not a directory."""
        here = self._directories.get(path)
        if here is None:
            return []
        inner = [name for name, file in here.items() if file is None]
        return [path, *(each for name in inner for each in self._tree(f"{path}/{name}"))]

    def sync_directory(self, path: str) -> None:
        pass

    def modified_ms(self, path: str) -> int:
        names, name = self._place(path)
        file = names[name]
        return 0 if file is None else file.modified_ms

    def space(self, path: str) -> tuple[int, int]:
        return NO_LIMIT, NO_LIMIT

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    def is_locked(self, path: str) -> bool:
        return path in self._locks

    def boot_id(self) -> str:
        return "memory"
