"""The time of the record at an offset: one small read of its batch's header, for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.core.errors import LogError, OffsetArchived
from millstream.records.batch import HEADER_SIZE, LOG_APPEND_TIME, NO_TIMESTAMP, read_header

if TYPE_CHECKING:
    from millstream.log.partition import PartitionLog


class Times(NamedTuple):
    """The time of a batch's first record, and the largest in the batch, in ms; -1 if its records carry
    none."""

    first_ms: int
    last_ms: int


UNKNOWN = Times(NO_TIMESTAMP, NO_TIMESTAMP)


def times_at(log: PartitionLog, offset: int) -> Times:
    """The times of the batch that holds ``offset``, or of the next batch. Unknown if there is none, or if
    it can't be read at once."""
    try:
        found = log.read(offset, 1)
        if found.file is None:
            return UNKNOWN
        batch = read_header(found.file.pread(HEADER_SIZE, found.position))
    except OffsetArchived:
        # The archive is not read for this. The segment's own times must do; the first may be too early.
        archived = log.archive.segments[log.archive.number_of(offset)]
        return Times(archived.first_timestamp, archived.max_timestamp)
    except (LogError, OSError):
        return UNKNOWN
    by_arrival = batch.attributes & LOG_APPEND_TIME or batch.base_timestamp < 0
    return Times(batch.max_timestamp if by_arrival else batch.base_timestamp, batch.max_timestamp)
