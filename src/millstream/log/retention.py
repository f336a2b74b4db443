"""Deleting old segments: by time, by size, and below the log's start.

The last segment is never deleted; when its records are due, another one is started after it. A segment goes in two
steps: its files get the suffix ``.deleted`` at once, and are removed after ``file.delete.delay.ms``. Readers that hold
a slice of it go on.

Time is what the segment's newest record says against the wall clock, and wall clocks jump. One that jumps back
deletes nothing. One that jumps ahead would delete everything at a stroke, so such a jump is not believed for an hour:
whoever set the clock has that long to set it right.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.log.segment import Segment
    from millstream.log.segments import Segments

_log = logging.getLogger(__name__)

BELIEVED_AFTER_S = 3600.0
JUMP_MS = 5 * 60 * 1000


class RetentionClock:
    """The wall clock, with jumps ahead held back until they have lasted. Pure state; both clocks are passed in."""

    __slots__ = ("_doubted_since", "_monotonic", "_wall_ms")

    def __init__(self) -> None:
        self._wall_ms: float | None = None  # the wall clock as last believed, at _monotonic
        self._monotonic = 0.0
        self._doubted_since: float | None = None

    def now_ms(self, wall_ms: int, monotonic: float) -> int:
        """The time to go by."""
        if self._wall_ms is None:
            return self._believe(wall_ms, monotonic)
        expected = self._wall_ms + (monotonic - self._monotonic) * 1000
        if wall_ms <= expected + JUMP_MS:
            return self._believe(wall_ms, monotonic)
        if self._doubted_since is None:
            self._doubted_since = monotonic
            _log.warning(
                "the clock jumped ahead by %d s; retention goes by the old time for an hour, "
                "in case it is set back",
                (wall_ms - expected) // 1000,
            )
        if monotonic - self._doubted_since >= BELIEVED_AFTER_S:
            return self._believe(wall_ms, monotonic)
        return int(expected)

    def _believe(self, wall_ms: int, monotonic: float) -> int:
        self._wall_ms, self._monotonic, self._doubted_since = wall_ms, monotonic, None
        return wall_ms


def due(
    segments: Segments, *, start_offset: int, now_ms: int, retention_ms: int, retention_bytes: int, end: int
) -> int:
    """How many of the oldest segments are to be deleted. All of them: the caller starts a new one first."""
    surplus = segments.size - retention_bytes if retention_bytes >= 0 else 0
    count = 0
    for number, segment in enumerate(segments):
        if segment.size == 0 and segment is segments.last:
            break
        below_start = segments.ceiling(number, end) <= start_offset and segment is not segments.last
        too_old = retention_ms >= 0 and now_ms - newest_ms(segment) > retention_ms
        too_large = surplus - segment.size >= 0 and retention_bytes >= 0
        if not (below_start or too_old or too_large):
            break
        surplus -= segment.size
        count += 1
    return count


def newest_ms(segment: Segment) -> int:
    """The time of a segment's newest record; when the file was last written, if its records carry none."""
    largest = segment.largest_timestamp()[0]
    return largest if largest >= 0 else segment.modified_ms()
