"""Recognise the content of a file after its name, its inode or its compression has changed.

A log file is renamed, copied, truncated and compressed while it is being read. What stays is its content.
The part that was read is recognised by its first bytes, by the last bytes before the position, and by
samples in between: the bytes before every power of two. Two contents that begin with the same banner differ
in a sample. Only contents that are equal line by line can't be told apart this way. The last bytes are
checked after every read too. So what was read is known to be from that content, even if the file was
truncated and grew again at that very moment.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import zlib
from typing import Any, NamedTuple, Protocol

HEAD = 256  # bytes that tell contents apart
_SKIP = 1 << 20
_SAMPLE = 64  # bytes of a sample, right before a power of two
_FIRST_SAMPLE = 2 * HEAD


class FileStat(NamedTuple):
    """Where a file is, as the filesystem reports it."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int = 0  # of the inode: also set by a rename, or by copying the times

    @classmethod
    def of(cls, path: str) -> FileStat | None:
        """None if there is no file of that name, or it can't be read."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        if not os.path.isfile(path):
            return None
        return cls(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def file(self) -> tuple[int, int]:
        return self.device, self.inode

    @property
    def compressed(self) -> bool:
        return self.path.endswith(".gz")


class Mark(NamedTuple):
    """How far a content was read (``offset`` in bytes, after decompression), and how to recognise it."""

    offset: int
    head: bytes
    near: bytes  # a hash of the bytes before the offset
    samples: tuple[bytes, ...] = ()  # hashes of the bytes before _FIRST_SAMPLE, twice that, ...

    def moved(self, taken: bytes, before: bytes) -> Mark:
        """The mark after ``taken`` was read from here on; ``before`` are the bytes before ``taken``."""
        offset = self.offset + len(taken)
        head = self.head if len(self.head) >= HEAD else (self.head + taken)[: min(offset, HEAD)]
        samples = self.samples
        while (at := _FIRST_SAMPLE << len(samples)) <= offset:
            known = before[-_SAMPLE:] + taken
            end = at - self.offset + len(known) - len(taken)
            samples = (*samples, fingerprint(known[max(0, end - _SAMPLE) : end]))
        return Mark(offset, head, fingerprint((before + taken)[-HEAD:]), samples)

    def as_fields(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "head": base64.b64encode(self.head).decode("ascii"),
            "near": self.near.hex(),
            "samples": [sample.hex() for sample in self.samples],
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Mark:
        samples = tuple(bytes.fromhex(sample) for sample in fields["samples"])
        return cls(
            int(fields["offset"]), base64.b64decode(fields["head"]), bytes.fromhex(fields["near"]), samples
        )


def fingerprint(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=12).digest()


START = Mark(0, b"", fingerprint(b""))


class Content(Protocol):
    """A file open for reading, plain or compressed."""

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at an offset; fewer than ``size`` at the end. Raises OSError."""

    def close(self) -> None: ...


class PlainContent:
    """A plain file. It stays readable here after it is renamed or deleted."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def place(self) -> FileStat:
        found = os.fstat(self._descriptor)
        return FileStat("", found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def close(self) -> None:
        os.close(self._descriptor)


class BrokenContent(OSError):
    """A compressed file that is not complete, for now or for good."""


class GzipContent:
    """A compressed file, read forward. Going back by more than a little starts over."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = gzip.open(path)  # noqa: SIM115
        self._last = b""  # the bytes before the position, which are read again to check them
        self._position = 0

    def read(self, offset: int, size: int) -> bytes:
        try:
            if self._position - len(self._last) <= offset < self._position:
                kept = self._last[offset - self._position :][:size]
                return kept + (self._forward(size - len(kept)) if len(kept) < size else b"")
            if offset < self._position:
                self._file.close()
                self._file, self._position, self._last = gzip.open(self._path), 0, b""  # noqa: SIM115
            while self._position < offset:
                if not self._forward(min(_SKIP, offset - self._position)):
                    return b""
            return self._forward(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BrokenContent(f"{self._path} is not a whole gzip file: {error}") from None

    def _forward(self, size: int) -> bytes:
        data = self._file.read(size)
        self._position += len(data)
        self._last = (self._last + data)[-HEAD:] if len(data) < HEAD else data[-HEAD:]
        return data

    def close(self) -> None:
        self._file.close()


def open_content(place: FileStat) -> Content:
    return GzipContent(place.path) if place.compressed else PlainContent(place.path)


def still_holds(content: Content, mark: Mark) -> bool:
    """True if this is the content that was read up to the mark."""
    if mark.offset == 0:
        return True
    size = min(mark.offset, HEAD)
    return _begins_like(content, mark) and fingerprint(content.read(mark.offset - size, size)) == mark.near


def ends_within(content: Content, mark: Mark) -> bool:
    """True if this content is shorter than the mark, and the same as far as it goes."""
    return not content.read(mark.offset - 1, 1) and _begins_like(content, mark)


def _begins_like(content: Content, mark: Mark) -> bool:
    head = content.read(0, len(mark.head))
    if head != mark.head[: len(head)]:
        return False
    for number, sample in enumerate(mark.samples):
        at = _FIRST_SAMPLE << number
        found = content.read(at - _SAMPLE, _SAMPLE)
        if len(found) < _SAMPLE:
            return True  # it ends before that; the caller decides whether it may
        if fingerprint(found) != sample:
            return False
    return True


def mark_at(content: Content, offset: int) -> Mark:
    """The mark of a content that was read up to an offset, which must exist."""
    size = min(offset, HEAD)
    samples: list[bytes] = []
    while (at := _FIRST_SAMPLE << len(samples)) <= offset:
        samples.append(fingerprint(content.read(at - _SAMPLE, _SAMPLE)))
    near = fingerprint(content.read(offset - size, size))
    return Mark(offset, content.read(0, size), near, tuple(samples))


def begins_with(whole: Content, size: int, part: Content, *, quick: bool) -> bool:
    """True if the first ``size`` bytes of a content are those of another one. ``quick``: compare only the
    first and the last of them."""
    places = [0, max(0, size - _SKIP)] if quick else range(0, size, _SKIP)
    for at in places:
        length = min(_SKIP, size - at)
        found = part.read(at, length)
        if len(found) < length or found != whole.read(at, length):
            return False
    return True
