"""The interface to the operating system: every byte that the log reads or writes passes through here.

There are two implementations: ``OsFiles`` (the real one) and ``memory.MemoryFiles`` (topics in memory,
and brokers without a directory). Tests use their own, which fail, tear writes, or lose what was not synced.

An implementation promises:

- ``pwrite`` writes everything or raises OSError. After an error, any part may have been written.
- Written data survives the process at once. It survives the machine only after ``File.sync``. A file that
  was created or renamed survives the machine only after ``sync_directory`` of its directory.
- A removed or renamed file stays readable through a ``File`` that was opened before.
- Other threads may remove files at any moment. It is no error to remove, rename as deleted or list a file
  that is gone. It is an error to read one.
- A ``File`` has no ``close``: its descriptor is closed when the last reference to the object is gone. So
  a slice on its way to a socket, or a sync in another thread, never sees its descriptor closed or reused.
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
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from millstream.records.batch import Buffer

_log = logging.getLogger(__name__)

DIRECTORY = -1  # the "size" of a directory in a listing
TEMPORARY_SUFFIX = ".tmp"  # of a file that is about to replace another one


class File(Protocol):
    """An open file."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make the file exactly this long, with all its blocks allocated."""

    def sync(self) -> None:
        """Block until everything written to this file, through any descriptor, is on the disk."""

    def size(self) -> int: ...

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 if there is none."""


class Files(Protocol):
    """Operations on files by name."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def listing(self, path: str) -> dict[str, int]:
        """Names and sizes of a directory's entries; ``DIRECTORY`` for directories. A file that is removed
        meanwhile may be missing."""

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents. Does nothing if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Replaces ``new`` if it exists. Raises FileNotFoundError if ``old`` does not."""

    def remove(self, path: str) -> None:
        """Does nothing if the file does not exist."""

    def discard(self, paths: list[str]) -> None:
        """Remove files and whole directories without making the caller wait for large ones. Missing ones
        are ignored."""

    def sync_directory(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def space(self, path: str) -> tuple[int, int]:
        """The free bytes and the total bytes of the disk that holds a directory."""

    def lock(self, path: str) -> Callable[[], None]:
        """Lock the file for this process and return a function that releases it. Raises BlockingIOError
        if another process holds it."""

    def is_locked(self, path: str) -> bool:
        """True if a process holds the lock file. Does not take the lock."""

    def boot_id(self) -> str:
        """Different each time the machine boots, when unsynced data may be gone. Empty if unknown."""


def read_file(files: Files, path: str) -> bytes:
    file = files.open(path)
    return file.pread(file.size(), 0)


def replace_file(files: Files, path: str, data: bytes, *, sync: bool = True) -> None:
    """Replace a file's contents with ``data``. At any moment either the old or the new file exists,
    complete. With ``sync``, the new one survives the machine once this returns."""
    temporary = path + TEMPORARY_SUFFIX
    file = files.open(temporary, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    if sync:
        file.sync()
    files.rename(temporary, path)
    if sync:
        files.sync_directory(os.path.dirname(path))


def rename_all(files: Files, paths: Iterable[str], suffix: str) -> list[str]:
    """Add ``suffix`` to the names of files. Returns the new names of those that existed."""
    renamed = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            files.rename(path, path + suffix)
            renamed.append(path + suffix)
    return renamed


def sync_if_there(files: Files, path: str) -> None:
    """Sync a file that may have been removed."""
    with contextlib.suppress(FileNotFoundError):
        files.open(path).sync()


class OsFile:
    """A file descriptor of the operating system."""

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
        self._discarded: deque[str] = deque()
        self._discarder: threading.Thread | None = None
        self._discarding = threading.Lock()

    def open(self, path: str, *, create: bool = False) -> File:
        return OsFile(os.open(path, self._flags | (os.O_CREAT if create else 0), 0o644))

    def listing(self, path: str) -> dict[str, int]:
        found = {}
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found[entry.name] = DIRECTORY if entry.is_dir() else entry.stat().st_size
        return found

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
        # Unlinking a gigabyte takes tens of milliseconds, too long for a server's loop. One thread
        # removes everything. Nothing waits for it at shutdown: the next process finds the rest by name.
        with self._discarding:
            self._discarded += paths
            if self._discarder is None:
                self._discarder = threading.Thread(
                    target=self._discard_all, name="millstream-discard", daemon=True
                )
                self._discarder.start()

    def _discard_all(self) -> None:
        while True:
            with self._discarding:
                if not self._discarded:
                    self._discarder = None
                    return
                path = self._discarded.popleft()
            _remove(path)

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
            with contextlib.suppress(OSError):  # a full disk: only the lock itself counts
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

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""  # not Linux


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("can't remove %s: %s; remove it by hand", path, error)


class LazyFile:
    """A file that is opened on first use, and closed when its pool needs the descriptor."""

    __slots__ = ("_pool", "file", "page", "path", "used")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self.path = path
        self.file: File | None = None
        self.page = b""  # a part that its owner caches, dropped together with the file
        self.used = False

    def let_go(self) -> None:
        self.file = None
        self.page = b""

    def get(self, *, create: bool = False) -> File:
        self.used = True
        return self.file or self._pool.open(self, create=create)


def _nobody_watches() -> None:
    """Do nothing: the log itself reports a full disk."""


RunOnThread = Callable[[Callable[[], Any], Callable[[Any], None]], None]


def _at_once(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    done(work())


class FilePool:
    """Bounds how many files of a directory are open at once, however many segments there are.

    It evicts a file that was not used since its last turn. Evicting only drops the pool's reference: a
    user of the file keeps the descriptor open.
    """

    def __init__(self, files: Files, limit: int | None = None) -> None:
        self.files = files
        # Called when the disk is full; set by the owner of the disk's space.
        self.out_of_room: Callable[[], None] = _nobody_watches
        # Runs work that reads a whole file, and calls back on the log's thread with the result, or None
        # if it failed. By default at once; a server sets a function that keeps its loop free.
        self.aside: RunOnThread = _at_once
        # Half of the process's limit: the other half is for connections.
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
