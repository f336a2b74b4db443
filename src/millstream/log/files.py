"""The seam to the operating system: every byte that the log reads or writes passes through here.

Two implementations: ``OsFiles`` (the real thing) and ``MemoryFiles`` (memory-only topics, and brokers
without a directory). Tests bring their own, which fail, tear writes, or forget what was not synced.

What an implementation promises:

- ``pwrite`` writes all of it or raises OSError; after an error any part may have been written.
- What was written survives the process at once, and the machine only after ``File.sync``. A file that was
  created or renamed survives the machine only after ``sync_directory`` of its directory.
- A removed or renamed file stays readable through a ``File`` that was open before.
- A ``File`` has no ``close``: its descriptor is closed when nobody holds the object any more. A slice on its
  way to a socket, or a sync in another thread, therefore never sees its descriptor closed or reused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import resource
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from millstream.records.batch import Buffer

_log = logging.getLogger(__name__)

_NO_END = 1 << 62
DIRECTORY = -1  # the "size" of a directory in a listing


class File(Protocol):
    """An open file."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Have exactly so many bytes, in blocks of its own."""

    def sync(self) -> None:
        """Block until everything written to this file, through any descriptor, is on the disk."""

    def size(self) -> int: ...

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none."""


class Files(Protocol):
    """What is done with files by name."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def listing(self, path: str) -> dict[str, int]:
        """Names and sizes of what is in a directory; ``DIRECTORY`` for directories."""

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """With its parents; nothing happens if it is there."""

    def rename(self, old: str, new: str) -> None:
        """Replaces ``new`` if it is there."""

    def remove(self, path: str) -> None:
        """Nothing happens if it is not there."""

    def discard(self, paths: list[str]) -> None:
        """Remove files and whole directories, without making the caller wait for large ones."""

    def sync_directory(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def space(self, path: str) -> tuple[int, int]:
        """How many bytes are free on the disk of a directory, and how many it has."""

    def lock(self, path: str) -> Callable[[], None]:
        """Take the lock file, for this process alone, and return what releases it. Raises
        BlockingIOError if somebody else holds it."""

    def is_locked(self, path: str) -> bool:
        """Does somebody hold the lock file? It is not taken."""


def read_file(files: Files, path: str) -> bytes:
    file = files.open(path)
    return file.pread(file.size(), 0)


def replace_file(files: Files, path: str, data: bytes, *, sync: bool = True) -> None:
    """Put ``data`` in place of a file: whatever happens meanwhile, the old or the new is there, whole.
    With ``sync`` the new one survives the machine once this returns."""
    temporary = path + ".tmp"
    file = files.open(temporary, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    if sync:
        file.sync()
    files.rename(temporary, path)
    if sync:
        files.sync_directory(os.path.dirname(path))


class OsFile:
    """A descriptor of the operating system's."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written == len(data):
            return
        with memoryview(data) as view:
            while written < len(view):
                count = os.pwrite(self._fd, view[written:], position + written)
                if count == 0:
                    raise OSError(errno.EIO, "the file takes no more bytes")
                written += count

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        if size:
            os.posix_fallocate(self._fd, 0, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd


class OsFiles:
    """The machine's own file system."""

    def __init__(self, *, read_only: bool = False) -> None:
        self._flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC

    def open(self, path: str, *, create: bool = False) -> File:
        return OsFile(os.open(path, self._flags | (os.O_CREAT if create else 0), 0o644))

    def listing(self, path: str) -> dict[str, int]:
        with os.scandir(path) as entries:
            return {e.name: DIRECTORY if e.is_dir() else e.stat().st_size for e in entries}

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def discard(self, paths: list[str]) -> None:
        # Unlinking a gigabyte holds the caller for tens of milliseconds: not in a server's loop.
        threading.Thread(target=_remove_all, args=(paths,), name="millstream-discard").start()

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            with contextlib.suppress(OSError):  # of a full disk: the lock is what counts, not whose it is
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        return lambda: os.close(fd)

    def is_locked(self, path: str) -> bool:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


def _remove_all(paths: list[str]) -> None:
    for path in paths:
        try:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("can't remove %s: %s; remove it by hand", path, error)


class MemoryFile:
    """A file's bytes in this process; those who hold it keep it, also when its name is gone."""

    __slots__ = ("data", "modified_ms")

    def __init__(self) -> None:
        self.data = bytearray()
        self.modified_ms = 0

    def pread(self, size: int, position: int) -> bytes:
        return bytes(memoryview(self.data)[position : position + size])

    def pwrite(self, data: Buffer, position: int) -> None:
        have = len(self.data)
        if position > have:
            self.data.extend(bytes(position - have))
        if position >= have:
            self.data += data
        else:
            self.data[position : position + len(data)] = data
        self.modified_ms = time.time_ns() // 1_000_000

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    allocate = truncate

    def sync(self) -> None:
        pass

    def size(self) -> int:
        return len(self.data)

    def fileno(self) -> int:
        return -1


class MemoryFiles:
    """A file system that lives and dies with the process."""

    def __init__(self) -> None:
        # What is in each directory, by name; None stands for a directory.
        self._directories: dict[str, dict[str, MemoryFile | None]] = {"": {}}
        self._locks: set[str] = set()

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
            file = names[name] = MemoryFile()
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
        new_names[new_name] = moved
        if moved is None:
            for path in [path for path in self._directories if path == old or path.startswith(old + "/")]:
                self._directories[new + path[len(old) :]] = self._directories.pop(path)

    def remove(self, path: str) -> None:
        names, name = self._place(path)
        names.pop(name, None)

    def discard(self, paths: list[str]) -> None:
        for path in paths:
            self.remove(path)
            for gone in [name for name in self._directories if name == path or name.startswith(path + "/")]:
                del self._directories[gone]

    def sync_directory(self, path: str) -> None:
        pass

    def modified_ms(self, path: str) -> int:
        names, name = self._place(path)
        file = names[name]
        return 0 if file is None else file.modified_ms

    def space(self, path: str) -> tuple[int, int]:
        return _NO_END, _NO_END

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    def is_locked(self, path: str) -> bool:
        return path in self._locks


class LazyFile:
    """A file that is opened when it is first needed, and let go when its pool needs the descriptor."""

    __slots__ = ("_pool", "file", "page", "path", "used")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self.path = path
        self.file: File | None = None
        self.page = b""  # what its owner remembers of it, let go with it
        self.used = False

    def let_go(self) -> None:
        self.file = None
        self.page = b""

    def get(self, *, create: bool = False) -> File:
        self.used = True
        return self.file or self._pool.open(self, create=create)


def _nobody_watches() -> None:
    """The log says so itself."""


class FilePool:
    """Bounds how many files of a directory are open at once, however many segments there are.

    The one let go is one that was not used since the pool last came round to it. Letting go only drops
    the pool's hold: who still uses the file keeps its descriptor open.
    """

    def __init__(self, files: Files, limit: int | None = None) -> None:
        self.files = files
        # What to call where the disk took no more; whoever watches over its space sets it.
        self.out_of_room: Callable[[], None] = _nobody_watches
        # Half of what the process may have: the other half is for connections.
        self.limit = limit or min(max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 16), 4096)
        self._open: deque[LazyFile] = deque()
        self._lock = threading.Lock()  # a closing directory closes its logs in several threads

    def open(self, lazy: LazyFile, *, create: bool = False) -> File:
        with self._lock:
            try:
                file = self.files.open(lazy.path, create=create)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                self._let_go(len(self._open) // 2)
                file = self.files.open(lazy.path, create=create)
            lazy.file = file
            lazy.used = True
            self._let_go(self.limit - 1)
            self._open.append(lazy)
        return file

    def _let_go(self, limit: int) -> None:
        while len(self._open) > limit:
            candidate = self._open.popleft()
            if candidate.used and candidate.file is not None:
                candidate.used = False
                self._open.append(candidate)
            else:
                candidate.let_go()
