"""Rebuilds a partition's journal of archived segments from the contents of the archive.

This is needed if the journal beside the log is lost or damaged: the data directory was restored without
it, or the partition's directory is gone. Complete objects that follow one another are served again.
Duplicates and cut-off objects are left over from a crash and are removed. If the log has given the same
offsets to other records since, nothing is adopted and nothing is removed: a person has to decide.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from crc32c import crc32c

from millstream.log.archive.object import (
    EPOCHS,
    OBJECT_SUFFIX,
    SNAPSHOT,
    ArchivedSegment,
    Section,
    read_manifest,
)
from millstream.log.archive.store import ArchiveStore
from millstream.log.partition import PartitionLog
from millstream.log.snapshots import load_snapshot

_log = logging.getLogger(__name__)
_NONE = Section(0, 0, 0)


class Found(NamedTuple):
    segments: list[ArchivedSegment]  # consecutive, without a gap
    leftovers: list[str]
    epochs: bytes = b""  # the leader epochs, as stored in the last segment
    snapshot: bytes = b""  # the producers' state, as stored in the last segment


def find_archived(store: ArchiveStore, prefix: str) -> Found:
    """Find what the archive holds of a partition. Blocks; raises ArchiveError."""
    whole: list[ArchivedSegment] = []
    leftovers: list[str] = []
    for name in store.names(prefix):
        found = read_manifest(store, name) if name.endswith(OBJECT_SUFFIX) else None
        if found is None:
            leftovers.append(name.removesuffix(OBJECT_SUFFIX))
        else:
            whole.append(found[0])
    whole.sort(key=lambda segment: (segment.base_offset, -segment.end_offset))
    chain: list[ArchivedSegment] = []
    for segment in whole:
        if chain and segment.base_offset < chain[-1].end_offset:
            leftovers.append(segment.name)
            continue
        if chain and segment.base_offset > chain[-1].end_offset:
            # Retention deletes the oldest segments first: those before a gap were being deleted.
            leftovers += [older.name for older in chain]
            chain.clear()
        chain.append(segment)
    if not chain:
        return Found(chain, leftovers)
    return Found(chain, leftovers, *(_section(store, chain[-1], name) for name in (EPOCHS, SNAPSHOT)))


def _section(store: ArchiveStore, segment: ArchivedSegment, name: str) -> bytes:
    position, size, crc = segment.sections.get(name, _NONE)
    data = store.read(segment.object, position, position + size) if size else b""
    return data if crc32c(data) == crc else b""


def adopt(log: PartitionLog, found: Found) -> bool:
    """Serve what was found. False, with nothing changed, if it does not fit the log."""
    segments = found.segments
    end = segments[-1].end_offset if segments else -1
    local = log.segments[0].base_offset
    if found.snapshot and end >= log.end_offset and not log.size_bytes:
        load_snapshot(found.snapshot, log.producers, log.transactions)
    if end > log.end_offset:
        if log.size_bytes:
            _log.error(
                "%s: the archive has records up to offset %d of this partition, and the log here has others, "
                "from %d to %d. Nothing is archived until one of them is removed: delete the topic, or "
                "restore the partition's directory from a backup",
                log.path,
                end - 1,
                log.log_start_offset,
                log.end_offset - 1,
            )
            return False
        log.epochs.put_before(found.epochs)
        log.epochs.begin(log.epochs.latest + 1, end)  # records after the archive's end are lost
        log.epochs.write(sync=True)
        log.start_at(end)
        (empty,) = log.segments.remove_first(1)
        log.pool.files.discard([*empty.delete_log(), *empty.delete_indexes()])
        local = end
    if segments:
        log.epochs.put_before(found.epochs)
        if end < local:
            _log.error(
                "%s: records %d to %d are missing, both here and in the archive", log.path, end, local - 1
            )
        if log.log_start_offset <= local:
            log.log_start_offset = max(segments[0].base_offset, log.retention.trimmed_to)
        _log.warning(
            "%s: the journal of the archive was lost; found in the archive: offsets %d to %d",
            log.path,
            segments[0].base_offset,
            end - 1,
        )
    log.archive.adopt(segments, found.leftovers)
    return True
