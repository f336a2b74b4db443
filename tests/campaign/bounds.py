"""Check whether records that left a log may have left it: by a trim, by size, by age, by a ring. No I/O.

- **left too early**: the log's start moved further than its rule allows.
- **left too late**: something that had to go is still there, or takes more room than promised.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from tests.campaign.coverage import Sighting
from tests.campaign.findings import Finding
from tests.campaign.ledger import Place


def check_trims(
    part: str, place: Place, start: int, base: int, asked: Sequence[int], done: Sequence[int]
) -> Iterator[Finding]:
    """``asked`` are trims that may have happened, ``done`` those that were acknowledged."""
    where = f"{place[0]}-{place[1]} starts at {start}"
    if start < max(done, default=base):
        yield Finding(part, "left too late", f"{where}, and was trimmed to {max(done)}")
    if start not in (base, *asked):
        yield Finding(part, "left too early", f"{where}; it began at {base} and nobody trimmed it to that")


def check_size(
    part: str, place: Place, size: int, least: int, most: int, *, something_left: bool
) -> Iterator[Finding]:
    """For ``retention.bytes`` or a ring: if anything left, ``least`` bytes stay; never more than ``most``."""
    where = f"{place[0]}-{place[1]}: {size:,} bytes"
    if something_left and size < least:
        yield Finding(part, "left too early", f"{where} are left, and {least:,} were to stay")
    if size > most:
        yield Finding(part, "left too late", f"{where}, and the bound is {most:,}")


def check_age(
    part: str,
    place: Place,
    starts: Iterable[Sighting],
    newest: Sequence[tuple[int, int]],
    retention_ms: int,
    base: int,
) -> Iterator[Finding]:
    """For ``retention.ms``: when a start was seen, everything below it was older than that.

    ``newest`` has the offset and timestamp of the records that are known, by offset."""
    offsets = [offset for offset, _ in newest]
    for seen in starts:
        if seen.value <= base:
            continue
        index = bisect_right(offsets, seen.value - 1) - 1
        if index < 0:
            continue  # no record below it is known
        offset, timestamp = newest[index]
        age = seen.at_ms - timestamp
        if age < retention_ms:
            detail = f"starts at {seen.value}, and offset {offset} was {age} ms old, of {retention_ms}"
            yield Finding(part, "left too early", f"{place[0]}-{place[1]} {detail}")
