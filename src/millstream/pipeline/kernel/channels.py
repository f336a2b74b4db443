"""The names of what comes out: channels and columns.

Of channels: the one that a stateful stream itself is, and those that the kernel adds for every input of an
operator, for rows that came too late and for rows from too far in the future. Of columns: those that a
window's result has beside its keys and aggregates.
"""

from __future__ import annotations

MAIN = ""
LATE, AHEAD = "late", "ahead"
FAILED, OVERFLOW = "failed", "overflow"  # of some: records that failed, partial matches that were dropped
COUNTED = (LATE, AHEAD, FAILED, OVERFLOW)  # what did not count as it should: in every line of a run
OUTSIDE = "outside"  # events of no session
HIDDEN = "millstream_"  # how columns begin that were worked out for the operator: no part of the row itself
WINDOW_START, WINDOW_END, TIME_BASIS = "window_start", "window_end", "time_basis"
CHANGE = "change"  # 1 for a result, -1 for what takes one back


def late_channel(number: int) -> str:
    return f"{LATE}.{number}"


def ahead_channel(number: int) -> str:
    return f"{AHEAD}.{number}"
