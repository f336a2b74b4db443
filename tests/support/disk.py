"""Simulates a disk that can fail on demand, and that loses everything not synced when the power fails.

``SimulatedDisk`` keeps what a machine would have in memory (``files``, what a process sees) apart from what
is on the platter. The bytes of a file get there by ``File.sync``, and names by ``sync_directory``. After a
power loss only the platter is left, plus what a seeded generator lets through: some of the unsynced writes,
whole or torn, in any order; files that grew without their bytes; names created, renamed or removed.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.log.storage.files import DIRECTORY, File
from millstream.records.batch import Buffer

PAGE = 512


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def bad_disk() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


@dataclass(eq=False)
class Content:
    """The bytes of a file: as processes see them, and as they are on the platter."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)  # position and bytes; None: cut

    def sync(self) -> None:
        """Copy exactly what was written since the last sync to the platter."""
        synced = bytearray(self.synced)
        for position, written in self.unsynced:
            if written is None:
                del synced[position:]
            else:
                synced.extend(bytes(max(0, position - len(synced))))
                synced[position : position + len(written)] = written
        self.synced = bytes(synced)
        self.unsynced.clear()

    def evict(self, chance: random.Random) -> None:
        """Evict some pages from memory, as when memory is short. Pages that count as written are read from
        the platter next time, in whatever state they are there.
        """
        kept = bytearray(self.synced[: len(self.data)]).ljust(len(self.data), b"\0")
        for at in range(0, len(self.data), PAGE):
            if chance.random() < 0.3 and not self.unsynced:
                self.data[at : at + PAGE] = kept[at : at + PAGE]

    def after_power_loss(self, chance: random.Random) -> Content:
        data = bytearray(self.synced)
        for position, written in self.unsynced:
            fate = chance.choice(("kept", "kept", "torn", "zeros", "lost"))
            if fate == "lost":
                continue
            if written is None:
                del data[position:]
                continue
            if fate == "torn":
                written = written[: chance.randrange(len(written) + 1)]
            if fate == "zeros":
                written = bytes(len(written))
            if len(data) < position:
                data.extend(bytes(position - len(data)))
            data[position : position + len(written)] = written
        return Content(data, bytes(data))


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: str, content: Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._content.data[position : position + size])

    def pwrite(self, data: Buffer, position: int) -> None:
        data = bytes(data)
        room = self._disk.room_for(self._path, len(data))
        self._put(data[:room], position)
        if room < len(data):
            raise self._disk.write_error()

    def _put(self, data: bytes, position: int) -> None:
        content = self._content
        if len(content.data) < position:
            content.data.extend(bytes(position - len(content.data)))
        content.data[position : position + len(data)] = data
        content.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        if self._disk.fail_truncate:
            raise bad_disk()
        if size < len(self._content.data):
            del self._content.data[size:]
            self._content.unsynced.append((size, None))

    def allocate(self, size: int) -> None:
        self.pwrite(bytes(size), 0)

    def sync(self) -> None:
        try:
            self._disk.maybe_fail_sync(self._path)
        except OSError:
            # As in operating systems, what could not be written stays in memory and counts as written.
            self._content.unsynced.clear()
            raise
        self._content.sync()

    def size(self) -> int:
        return len(self._content.data)

    def fileno(self) -> int:
        return -1


NameChange = Callable[[dict[str, Content]], None]


class SimulatedDisk:
    """A ``Files`` for tests."""

    def __init__(self) -> None:
        self.files: dict[str, Content] = {}
        self.directories: set[str] = set()
        self._synced_names: dict[str, Content] = {}
        self._synced_directories: set[str] = set()
        self._changes: list[tuple[str, NameChange]] = []  # directory, and a change there since its last sync
        self._locked: set[str] = set()
        self._boot = 0
        self.size = 1 << 40
        self.room: int | None = None  # bytes that may still be written; None: no limit
        self.write_error = no_space
        self.fail_sync: Callable[[str], bool] = lambda path: False
        self.fail_truncate = False
        self.fail_open: Callable[[str], bool] = lambda path: False

    # The faults

    def room_for(self, path: str, size: int) -> int:
        if self.room is None:
            return size
        taken = min(size, self.room)
        self.room -= taken
        return taken

    def maybe_fail_sync(self, path: str) -> None:
        if self.fail_sync(path):
            raise bad_disk()

    def evict(self, seed: int) -> None:
        """Evict some pages that count as written from memory."""
        chance = random.Random(seed)
        for _, content in sorted(self.files.items()):
            content.evict(chance)

    def process_killed(self) -> SimulatedDisk:
        """The same disk for the next process: everything written is still there."""
        self._locked.clear()
        return self

    def power_loss(self, seed: int) -> SimulatedDisk:
        """The disk as the next process finds it after the machine lost power."""
        chance = random.Random(seed)
        after = SimulatedDisk()
        after._boot = self._boot + 1
        after.directories = set(self._synced_directories)
        # A directory that was not synced may still exist.
        after.directories |= {d for d in self.directories - self._synced_directories if chance.random() < 0.5}
        names = dict(self._synced_names)
        for _, change in self._changes:
            if chance.random() < 0.5:
                change(names)
        names = {
            name: content for name, content in names.items() if os.path.dirname(name) in after.directories
        }
        # A file may have two names here, the old and the new one. It stays one file.
        survived = {id(c): c.after_power_loss(chance) for c in names.values()}
        after.files = {name: survived[id(content)] for name, content in names.items()}
        after._synced_names = dict(after.files)
        after._synced_directories = set(after.directories)
        return after

    # Files

    def open(self, path: str, *, create: bool = False) -> File:
        if self.fail_open(path):
            raise no_space()
        content = self.files.get(path)
        if content is None:
            if not create or os.path.dirname(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            content = Content()
            self._change(path, lambda names, made=content: names.__setitem__(path, made))
        return SimulatedFile(self, path, content)

    def _change(self, path: str, change: NameChange) -> None:
        change(self.files)
        self._changes.append((os.path.dirname(path), change))

    def listing(self, path: str) -> dict[str, int]:
        inside = path + "/"
        here = {d[len(inside) :]: DIRECTORY for d in self.directories if os.path.dirname(d) == path}
        here |= {n[len(inside) :]: len(c.data) for n, c in self.files.items() if os.path.dirname(n) == path}
        return here

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def make_directory(self, path: str) -> None:
        while path != "/":
            self.directories.add(path)
            path = os.path.dirname(path)

    def rename(self, old: str, new: str) -> None:
        if old in self.directories:
            # A log's directory is renamed to delete it or set it aside. Here that is durable at once, which
            # is enough for tests.
            self.directories = {new if d == old else d for d in self.directories}
            self._synced_directories = {new if d == old else d for d in self._synced_directories}
            for name in [name for name in self.files if name.startswith(old + "/")]:
                self.files[new + name[len(old) :]] = self.files.pop(name)
            self._synced_names = dict(self.files)
            return
        if old not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        content = self.files[old]

        def change(names: dict[str, Content]) -> None:
            names.pop(old, None)
            names[new] = content

        self._change(new, change)

    def remove(self, path: str) -> None:
        self._change(path, lambda names: names.pop(path, None))

    def discard(self, paths: list[str]) -> None:
        for path in paths:
            for name in [name for name in self.files if name == path or name.startswith(path + "/")]:
                self.remove(name)
            self.directories.discard(path)

    def sync_directory(self, path: str) -> None:
        self.maybe_fail_sync(path)
        self._synced_directories |= {d for d in self.directories if os.path.dirname(d) == path}
        self._synced_directories.add(path)
        for directory, change in self._changes:
            if directory == path:
                change(self._synced_names)
        self._changes = [entry for entry in self._changes if entry[0] != path]

    def modified_ms(self, path: str) -> int:
        return 0

    def space(self, path: str) -> tuple[int, int]:
        return (self.size, self.size) if self.room is None else (self.room, self.size)

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    def is_locked(self, path: str) -> bool:
        return path in self._locked

    def boot_id(self) -> str:
        return f"boot {self._boot}"
