"""The format of an archived segment: one object with all its files, which shows whether it is complete.

    log           the batches, as they were in the .log file: positions are the same
    index         the offset index
    timeindex     the time index
    txnindex      the aborted transactions, if there are any
    snapshot      the producers' state at the segment's end
    epochs        leader-epoch-checkpoint, up to the segment's end
    manifest      JSON: what this is, and for each of the above its position, size and CRC-32C
     4            the manifest's size
     4            the manifest's CRC-32C
     8            "MSTREAM1"

The trailer comes last, so an object that was cut off has none. All sections but the log are files that a
local segment has beside it. An object alone is enough to serve its segment again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

from crc32c import crc32c

from millstream.core.errors import ArchiveError
from millstream.log.archive.store import ArchiveStore
from millstream.log.storage.files import File

OBJECT_SUFFIX = ".segment"
MAGIC = b"MSTREAM1"
_END = Struct(">II8s")
_CHUNK = 1 << 20
_VERSION = 1

LOG, INDEX, TIME_INDEX, ABORTED, SNAPSHOT, EPOCHS = (
    "log",
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "epochs",
)


class Section(NamedTuple):
    position: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """What is known about an archived segment without reading its object."""

    name: str  # of the object, without suffix
    base_offset: int
    end_offset: int
    newest_ms: int  # the time that retention uses
    first_timestamp: int  # of the first batch; -1 if its records carry no timestamps
    max_timestamp: int  # of all its records
    aborted: int  # number of transactions whose abort markers are in it
    object_size: int
    sections: dict[str, Section] = field(hash=False)

    @property
    def size(self) -> int:
        """The size of its log in bytes."""
        return self.sections[LOG].size

    @property
    def object(self) -> str:
        return self.name + OBJECT_SUFFIX

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "base_offset": self.base_offset,
            "end_offset": self.end_offset,
            "newest_ms": self.newest_ms,
            "first_timestamp": self.first_timestamp,
            "max_timestamp": self.max_timestamp,
            "aborted": self.aborted,
            "object_size": self.object_size,
            "sections": {name: list(section) for name, section in self.sections.items()},
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ArchivedSegment:
        """Raises KeyError, TypeError or ValueError if the fields are not a segment's."""
        sections = {name: Section(*section) for name, section in fields["sections"].items()}
        for name in (LOG, INDEX, TIME_INDEX):
            sections[name]
        return cls(
            str(fields["name"]),
            int(fields["base_offset"]),
            int(fields["end_offset"]),
            int(fields["newest_ms"]),
            int(fields["first_timestamp"]),
            int(fields["max_timestamp"]),
            int(fields["aborted"]),
            int(fields["object_size"]),
            sections,
        )


class SectionSource(NamedTuple):
    """Where a section's bytes come from."""

    section: str
    file: File
    size: int


class ObjectWriter:
    """Produces the bytes of an object in chunks. Its size and checksums are known after the last chunk."""

    def __init__(
        self, segment: ArchivedSegment, sources: list[SectionSource], identity: dict[str, Any]
    ) -> None:
        """``segment`` has no sections yet. ``identity`` says which log it belongs to, for people and for
        adoption."""
        self._segment = segment
        self._sources = sources
        self._identity = identity
        self.crc = 0
        self.size = 0
        self.written: ArchivedSegment | None = None

    def chunks(self) -> Iterator[bytes]:
        """Raises ArchiveError if a file is shorter than it should be."""
        sections: dict[str, Section] = {}
        for name, file, size in self._sources:
            start, crc = self.size, 0
            while (done := self.size - start) < size:
                chunk = file.pread(min(_CHUNK, size - done), done)
                if not chunk:
                    raise ArchiveError(f"the {name} of {self._segment.name} has {done} bytes, not {size}")
                crc = crc32c(chunk, crc)
                yield self._count(chunk)
            sections[name] = Section(start, size, crc)
        manifest = self._manifest(sections)
        yield self._count(manifest + _END.pack(len(manifest), crc32c(manifest), MAGIC))

    def _manifest(self, sections: dict[str, Section]) -> bytes:
        fields = self._segment.to_json()
        fields["sections"] = {name: list(section) for name, section in sections.items()}
        # The manifest contains the size of the object that it is part of, so repeat until the size settles.
        size = 0
        while True:
            fields["object_size"] = size
            manifest = json.dumps({"version": _VERSION, **self._identity, **fields}).encode()
            whole = self.size + len(manifest) + _END.size
            if whole == size:
                self.written = ArchivedSegment.from_json(fields)
                return manifest
            size = whole

    def _count(self, chunk: bytes) -> bytes:
        self.crc = crc32c(chunk, self.crc)
        self.size += len(chunk)
        return chunk


def check_written(store: ArchiveStore, writing: ObjectWriter) -> ArchivedSegment:
    """Read an object back, compare it, and return what was written. Raises ArchiveError."""
    written = writing.written
    assert written is not None
    crc = 0
    for start in range(0, writing.size, _CHUNK * 4):
        crc = crc32c(store.read(written.object, start, min(start + _CHUNK * 4, writing.size)), crc)
    size = store.size(written.object)
    if crc != writing.crc or size != writing.size:
        raise ArchiveError(
            f"{written.object} differs when it is read back from the archive: {size} bytes with CRC"
            f" {crc:#010x}, not {writing.size} with {writing.crc:#010x}"
        )
    return written


def read_manifest(store: ArchiveStore, name: str) -> tuple[ArchivedSegment, dict[str, Any]] | None:
    """The segment that an object holds, and all fields of its manifest; None if it is not complete."""
    size = store.size(name)
    if size < _END.size:
        return None
    length, crc, magic = _END.unpack(store.read(name, size - _END.size, size))
    if magic != MAGIC or length > size - _END.size:
        return None
    manifest = store.read(name, size - _END.size - length, size - _END.size)
    if crc32c(manifest) != crc:
        return None
    try:
        fields = json.loads(manifest)
        segment = ArchivedSegment.from_json(fields)
    except (ValueError, KeyError, TypeError):
        return None
    if fields.get("version") != _VERSION or segment.object != name or segment.object_size != size:
        return None
    return segment, fields
