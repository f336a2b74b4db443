"""What the members of a group processed together, what live readers saw, and numbers that only grow. No I/O.

- **not processed**: an offset that no member processed, though the group committed past it.
- **committed too much**: a group's offset lies beyond what its members processed.
- **went back**: an offset that only grows got smaller: a group's, a log's start, a log's end.
- **contradiction**: a live reader saw other records at some offsets than the log holds at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.campaign.findings import Finding
from tests.campaign.ledger import Content, Place

BLOCK = 1000  # offsets that a reader makes one checksum of

Range = tuple[int, int]  # first, last + 1


@dataclass(frozen=True)
class Sighting:
    """A number that only grows, as it was seen, in the order it was seen."""

    name: str
    place: Place
    value: int
    at_ms: int


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in as few ranges as it takes."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def uncovered(ranges: Iterable[Range], first: int, last: int) -> list[Range]:
    """What of ``first`` to ``last`` is in none of the ranges."""
    gaps = []
    at = first
    for low, high in joined(ranges):
        if low > at:
            gaps.append((at, min(low, last)))
        at = max(at, high)
        if at >= last:
            break
    if at < last:
        gaps.append((at, last))
    return [gap for gap in gaps if gap[0] < gap[1]]


def check_processed(
    part: str, group: str, place: Place, ranges: Iterable[Range], base: int, end: int, committed: int
) -> Iterator[Finding]:
    """The log from ``base`` to ``end`` was to be processed; the group's offset is ``committed``."""
    where = f"group {group}, {place[0]}-{place[1]}"
    kept = list(ranges)
    for first, last in uncovered(kept, base, end):
        yield Finding(part, "not processed", f"{where}: offsets {first} to {last - 1}")
    highest = max((high for _, high in kept), default=base)
    if committed > highest:
        yield Finding(part, "committed too much", f"{where}: {committed}, processed up to {highest - 1}")


def check_growing(part: str, sightings: Iterable[Sighting]) -> Iterator[Finding]:
    highest: dict[tuple[str, Place], int] = {}
    for seen in sightings:
        key = seen.name, seen.place
        before = highest.get(key, seen.value)
        if seen.value < before:
            where = f"{seen.place[0]}-{seen.place[1]}"
            yield Finding(part, "went back", f"{seen.name} of {where}: {seen.value} after {before}")
        highest[key] = max(before, seen.value)


def check_digests(
    part: str, place: Place, content: Content, seen: Iterable[Mapping[int, int]]
) -> Iterator[Finding]:
    """What live readers saw, by block, against the log at the end."""
    for digests in seen:
        for block, digest in digests.items():
            if content.digests.get(block, digest) != digest:
                first = block * BLOCK
                detail = f"offsets {first} to {first + BLOCK - 1} were other records to a live reader"
                yield Finding(part, "contradiction", f"{place[0]}-{place[1]}: {detail}")
