"""Walks over the batches of a segment's file, and over the damage in it.

``scan`` yields every batch in order. Where the bytes are not a batch, or not the batch that was written
(the checksum), it looks for the next complete, valid batch that fits: same segment, higher offsets, right
checksum. If there is one, the bytes between are **damage** in the middle: they are reported and skipped,
never deleted. If there is none, they are the **tail**: after a crash, a write that was cut off, which
recovery may truncate.

Each batch must start at the offset where the last one ended. This protects the offsets, which are not
under the checksum. Where compaction has left gaps, offsets can only be required to grow: a batch after a
gap counts as damaged if its last offset is not below the next batch's offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from millstream.log.storage.files import File
from millstream.records.batch import (
    CHECKED_FROM,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    PREFIX_SIZE,
    BatchHeader,
    read_header,
)

WINDOW = 1 << 20
MAX_RELATIVE_OFFSET = 0x7FFFFFFF
_KNOWN_ATTRIBUTES = 0x7F
_HIGHEST_CODEC = 4


class ScannedBatch(NamedTuple):
    """A batch and its position."""

    position: int
    header: BatchHeader


class Damage(NamedTuple):
    """Bytes that are not a valid batch."""

    path: str
    position: int
    size: int
    first_offset: int  # the offset expected here
    next_offset: int  # of the next good batch; the caller's ceiling if there is none in this file
    reason: str
    tail: bool  # no good batch follows in this file

    def __str__(self) -> str:
        return (
            f"{self.path} at byte {self.position} ({self.size} bytes, offsets {self.first_offset} to "
            f"{self.next_offset - 1}): {self.reason}"
        )


def is_cut_off(file: File, tail: Damage) -> bool:
    """True if the file ends before the batch that begins there. Otherwise all its bytes exist, and are
    damaged."""
    data = file.pread(HEADER_SIZE, tail.position)
    return len(data) < HEADER_SIZE or read_header(data).size > tail.size


class _Window:
    """The part of a file that is in memory."""

    __slots__ = ("_end", "_file", "_read", "_view", "at", "data")

    def __init__(self, file: File, end: int, read: int) -> None:
        self._file = file
        self._end = end
        self._read = read
        self.at = 0
        self.data = b""
        self._view = memoryview(b"")

    def have(self, position: int, size: int) -> bool:
        """Load ``size`` bytes from ``position`` if needed; False if the file does not contain them."""
        if self.at <= position and position + size <= self.at + len(self.data):
            return True
        return self.load(position, size)

    def load(self, position: int, size: int) -> bool:
        """Load ``size`` bytes, with ``position`` at the start of the window; False if the file does not
        contain them."""
        if position + size > self._end:
            return False
        self.data = self._file.pread(min(max(size, self._read), self._end - position), position)
        self._view = memoryview(self.data)
        self.at = position
        return len(self.data) >= size

    def overtakes(self, following: int, next_offset: int, last_offset: int) -> bool:
        """True if the batch at ``following`` begins at an offset that the batch before it would cover,
        which claims to reach ``last_offset``. Then that batch's offset is wrong."""
        if not self.have(following, HEADER_SIZE):
            return False
        header = read_header(self.data, following - self.at)
        return header.magic == MAGIC and next_offset <= header.base_offset <= last_offset

    def checksum(self, position: int, size: int) -> int:
        """CRC-32C over the checked part of a batch, in pieces if it is large."""
        at, end = position - self.at, position - self.at + size
        if at >= 0 and end <= len(self.data):
            whole: int = crc32c(self._view[at + CHECKED_FROM : end])
            return whole
        value = 0
        at, end = position + CHECKED_FROM, position + size
        while at < end:
            part = min(end - at, WINDOW)
            if not self.have(at, part):
                return -1
            start = at - self.at
            value = crc32c(self._view[start : start + part], value)
            at += part
        return value


def scan(
    file: File,
    path: str,
    *,
    base_offset: int,
    start: int,
    end: int,
    next_offset: int,
    ceiling: int,
    verify_from: int = 0,
    gaps: bool = False,
    read: int = WINDOW,
) -> Iterator[ScannedBatch | Damage]:
    """The batches of ``file`` between the positions ``start`` and ``end``.

    ``next_offset`` is the first batch's offset. All offsets are below ``ceiling`` (the next segment's base).
    A batch that does not start where the last one ended is damaged, unless there may be ``gaps``. Checksums
    are verified for batches at position ``verify_from`` and after. ``read`` is the number of bytes per read.
    """
    window = _Window(file, end, read)
    unpack_from = HEADER.unpack_from
    highest = min(ceiling - 1, base_offset + MAX_RELATIVE_OFFSET)
    position = start
    while position < end:
        at = position - window.at
        if not 0 <= at <= len(window.data) - HEADER_SIZE:
            at = 0 if window.load(position, HEADER_SIZE) else -1
        if at >= 0:
            fields = unpack_from(window.data, at)
            (base, length, _, magic, crc, attributes, delta, _, _, _, _, _, count) = fields
            size = length + PREFIX_SIZE
            # The checks of implausible(), combined for speed.
            if (
                magic == MAGIC
                and (base == next_offset or (gaps and base > next_offset))
                and HEADER_SIZE <= size <= end - position
                and 0 <= delta <= highest - base
                and 0 <= count <= delta + 1
                and 0 <= attributes <= _KNOWN_ATTRIBUTES
                and attributes & CODEC_MASK <= _HIGHEST_CODEC
                and (position < verify_from or window.checksum(position, size) == crc)
                and (base == next_offset or not window.overtakes(position + size, next_offset, base + delta))
            ):
                yield ScannedBatch(position, BatchHeader._make(fields))
                position += size
                next_offset = base + delta + 1
                continue
        reason = _what_is_wrong(window, base_offset, position, end, next_offset, ceiling, gaps)
        found = _next_valid(window, base_offset, position, end, next_offset, ceiling)
        if found is None:
            yield Damage(path, position, end - position, next_offset, ceiling, reason, True)
            return
        following = found.header.base_offset
        yield Damage(path, position, found.position - position, next_offset, following, reason, False)
        position, next_offset = found.position, following


def _what_is_wrong(
    window: _Window, base_offset: int, position: int, end: int, next_offset: int, ceiling: int, gaps: bool
) -> str:
    if not window.have(position, HEADER_SIZE):
        return f"{end - position} bytes are left, but a batch has at least {HEADER_SIZE}"
    header = read_header(window.data, position - window.at)
    reason = implausible(header, base_offset, ceiling, end - position)
    if not reason and header.base_offset != next_offset and not (gaps and header.base_offset > next_offset):
        reason = f"the batch has offset {header.base_offset}, but {next_offset} is expected"
    if not reason:
        actual = window.checksum(position, header.size)
        if actual != header.crc:
            reason = f"the batch's checksum is {header.crc:#010x}, but its bytes give {actual:#010x}"
        else:
            reason = f"the batch has offset {header.base_offset}, but the next one has an earlier offset"
    return reason


def implausible(header: BatchHeader, base_offset: int, ceiling: int, room: int) -> str:
    """Why these can't be the first bytes of a batch of this segment; empty if they can."""
    if header.magic != MAGIC:
        return f"format {header.magic} where a batch of format {MAGIC} should start"
    if header.size < HEADER_SIZE:
        return f"the batch's length is {header.batch_length}, too small for one"
    if header.size > room:
        return f"the batch has {header.size} bytes, but {room} are left in the file"
    if header.last_offset_delta < 0 or not base_offset <= header.base_offset <= header.last_offset < ceiling:
        return f"the batch's offsets are {header.base_offset} to {header.last_offset}, outside this segment"
    if header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
        return f"offset {header.last_offset} is too far from the segment's first, {base_offset}"
    if header.attributes & ~_KNOWN_ATTRIBUTES or header.codec > _HIGHEST_CODEC:
        return f"the batch's attributes are {header.attributes:#06x}, which are not valid"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"the batch counts {header.record_count} records in {header.last_offset_delta + 1} offsets"
    return ""


def _next_valid(
    window: _Window, base_offset: int, bad: int, end: int, next_offset: int, ceiling: int
) -> ScannedBatch | None:
    """The first complete, valid batch after the bad bytes at ``bad``."""

    def valid_at(position: int) -> ScannedBatch | None:
        if not window.have(position, HEADER_SIZE):
            return None
        header = read_header(window.data, position - window.at)
        if header.base_offset < next_offset or implausible(header, base_offset, ceiling, end - position):
            return None
        if window.checksum(position, header.size) != header.crc:
            return None
        return ScannedBatch(position, header)

    # Try the batch's own length first. It is right unless the damage hit those very bytes. Using it
    # avoids mistaking a batch stored inside a record's value for one of the log's.
    if window.have(bad, HEADER_SIZE):
        header = read_header(window.data, bad - window.at)
        if header.magic == MAGIC and HEADER_SIZE <= header.size < end - bad:
            found = valid_at(bad + header.size)
            if found is not None:
                return found
    position = bad + 1
    while window.have(position, HEADER_SIZE):
        # The format number is at the same place in every batch: jump from one such byte to the next.
        magic = window.data.find(MAGIC, position - window.at + MAGIC_AT)
        if magic < 0:
            position = max(position + 1, window.at + len(window.data) - MAGIC_AT)
            continue
        position = window.at + magic - MAGIC_AT
        found = valid_at(position)
        if found is not None:
            return found
        position += 1
    return None
