"""The names of channels: the one that a stateful stream itself is, and those that the kernel adds for every
input of an operator, for rows that came too late and for rows from too far in the future."""

from __future__ import annotations

MAIN = ""
LATE, AHEAD = "late", "ahead"


def late_channel(number: int) -> str:
    return f"{LATE}.{number}"


def ahead_channel(number: int) -> str:
    return f"{AHEAD}.{number}"
