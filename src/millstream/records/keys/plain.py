"""Finds the newest offset of each key if there is no compiler: the same as ``_keys``, see ``keys``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from millstream.core.errors import CorruptBatch
from millstream.records.batch import Buffer
from millstream.records.build import RecordCursor, write_varint

SLOT_BYTES = 200  # bytes per dictionary entry, roughly: the entry, 16 bytes of hash and a number


class _Entry(NamedTuple):
    """A record: its position in the body, where the part after its timestamp begins, and the fields
    needed."""

    start: int
    rest: int
    end: int
    time_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


class LatestOffsets:
    """The newest offset of each key; see ``keys``."""

    def __init__(self, keys: int) -> None:
        self.limit = max(keys, 1)
        self._secret = os.urandom(16)
        self._offsets: dict[bytes, int] = {}

    @property
    def count(self) -> int:
        return len(self._offsets)

    def _hashed(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()

    def note(self, body: Buffer, count: int, base_offset: int, last_delta: int, start: int) -> bool:
        if self.count + count > self.limit:
            return False
        for entry in _entries(body, count, last_delta):
            offset = base_offset + entry.offset_delta
            if entry.key is not None and offset >= start:
                hashed = self._hashed(entry.key)
                self._offsets[hashed] = max(offset, self._offsets.get(hashed, -1))
        return True

    def kept(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        last_delta: int,
        base_timestamp: int,
        latest: int,
        tombstones: bool,
        horizon: int | None,
        room: int,
    ) -> tuple[bytearray | None, int, int, bool, int]:
        kept: list[_Entry] = []
        keyless = 0
        for entry in _entries(body, count, last_delta):
            offset = base_offset + entry.offset_delta
            if offset > latest:
                kept.append(entry)
            elif entry.key is None:
                keyless += 1
            elif offset >= self._offsets.get(self._hashed(entry.key), -1) and (entry.has_value or tombstones):
                kept.append(entry)
        newest = max((base_timestamp + entry.time_delta for entry in kept), default=-(2**63))
        rebased = horizon is not None and not all(entry.has_value for entry in kept)
        if len(kept) == count and not rebased:
            return None, count, newest, False, keyless
        out = bytearray(room)
        for entry in kept:
            if rebased:
                assert horizon is not None
                record = bytearray(1)  # attributes
                write_varint(record, base_timestamp + entry.time_delta - horizon)
                record += body[entry.rest : entry.end]
                write_varint(out, len(record))
                out += record
            else:
                out += body[entry.start : entry.end]
        return out, len(kept), newest, rebased, keyless


def _entries(body: Buffer, count: int, last_delta: int) -> Iterator[_Entry]:
    reader = RecordCursor(memoryview(body))
    previous = -1
    for _ in range(count):
        start = reader.position
        reader.begin()
        time_delta = reader.varint(10)
        rest = reader.position
        offset_delta = reader.varint()
        if not previous < offset_delta <= last_delta:
            raise CorruptBatch("offsets that do not grow, or pass the batch's last")
        previous = offset_delta
        key, value = reader.data(), reader.data()
        reader.position = reader.end
        yield _Entry(start, rest, reader.end, time_delta, offset_delta, key, value is not None)
    if reader.position != len(body):
        raise CorruptBatch(f"{len(body) - reader.position} bytes after the last record")
