"""Real disks for tests: a small one that fills up, and one that fails.

Both need root, for a loop device.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

_MB = 1 << 20


class Ballast:
    """A file that takes up room on a disk, and gives it back."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take_all(self) -> None:
        """Take all the room there is."""
        with self._path.open("ab", buffering=0) as file:
            for size in (_MB, 4096):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def take_free(self) -> None:
        """Take at once what is free now. Room that others free later is left to them."""
        with self._path.open("ab") as file:
            disk = os.statvfs(self._path.parent)
            size = disk.f_bavail * disk.f_frsize
            while size > 0:
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                    return
                except OSError:  # others took some in the meantime, and the file system needs some itself
                    file.truncate(0)
                    size -= _MB

    def take(self, size: int) -> None:
        with self._path.open("ab") as file:
            file.write(bytes(size))

    def give_back(self) -> None:
        self._path.unlink()


@contextmanager
def small_disk(scratch: Path, megabytes: int) -> Iterator[Path]:
    """The directory of an ext4 file system of that size, without blocks reserved for root."""
    image = scratch / "disk.img"
    with image.open("wb") as file:
        file.truncate(megabytes * _MB)
    with _mounted(image, scratch / "disk") as directory:
        yield directory


@contextmanager
def failing_disk(scratch: Path, megabytes: int) -> Iterator[tuple[Path, Ballast]]:
    """The directory of a file system whose disk fails once the ballast takes all room. Its blocks are
    allocated as they are written, from a smaller file system. So it believes that it has room, and its syncs
    fail.

    Not every sync that should fail does. Linux's loop device counts a write as done even if only its first
    page had room, so the first sync after the ballast succeeds although its pages are only in memory. Tests
    must not make the operating system drop those pages; ``SimulatedDisk.evict`` is for that.
    """
    backing = scratch / "backing"
    backing.mkdir()
    with ExitStack() as stack:
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(backing))
        stack.callback(_unmount, backing)
        image = backing / "disk.img"
        with image.open("wb") as file:
            file.truncate(4 * megabytes * _MB)
        directory = stack.enter_context(_mounted(image, scratch / "disk"))
        yield directory, Ballast(backing / "ballast")


@contextmanager
def _mounted(image: Path, directory: Path) -> Iterator[Path]:
    # Without a journal: if writing it fails, the file system turns read-only, which would be a second fault.
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image))
    directory.mkdir()
    _run("mount", "-o", "loop", str(image), str(directory))
    try:
        yield directory
    finally:
        _unmount(directory)


def _run(*command: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a file as a disk")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"needs {command[0]}")
    if done.returncode != 0:
        pytest.skip(f"can't mount a file as a disk here: {done.stderr.strip()}")


def _unmount(directory: Path) -> None:
    subprocess.run(["umount", "--lazy", str(directory)], check=True)
