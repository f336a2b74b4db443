"""The names of an operator's channels, and of the columns that the kernel adds to results.

The main channel is the stateful stream itself. For every input of an operator the kernel adds a channel
for rows that came too late, and one for rows too far in the future. The columns are those that a window's
result has beside its keys and aggregates.
"""

from __future__ import annotations

MAIN = ""
LATE, AHEAD = "late", "ahead"
FAILED, OVERFLOW = "failed", "overflow"  # of some operators: failed records, dropped partial matches
DUPLICATES = "duplicates"  # of some operators: events that came again
# Rows that did not count normally: shown in every line of a run.
COUNTED = (LATE, AHEAD, FAILED, OVERFLOW, DUPLICATES)
OUTSIDE = "outside"  # events that belong to no session
HIDDEN = "millstream_"  # prefix of columns computed for the operator, which are not part of the row itself
WINDOW_START, WINDOW_END, TIME_BASIS = "window_start", "window_end", "time_basis"
CHANGE = "change"  # 1 for a result, -1 for a row that retracts one


def late_channel(number: int) -> str:
    return f"{LATE}.{number}"


def ahead_channel(number: int) -> str:
    return f"{AHEAD}.{number}"
