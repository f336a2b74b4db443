"""Check what a group's members processed, what live readers saw, and numbers that only grow. No I/O.

- **not processed**: no member processed an offset, though the group was to process the whole log.
- **committed too much**: a group's offset is beyond what its members processed.
- **went back**: an offset that may only grow got smaller: a group's, a log's start, a log's end.
- **contradiction**: at some offsets, a live reader saw other records than the log holds at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.campaign.findings import Finding
from tests.campaign.ledger import Content, Place

BLOCK = 1000  # how many offsets a reader puts into one checksum

Range = tuple[int, int]  # first, last + 1


@dataclass(frozen=True)
class Sighting:
    """A number that only grows, as it was seen. Sightings are kept in the order in which they were made."""

    name: str
    place: Place
    value: int
    at_ms: int


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in as few ranges as possible."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def uncovered(ranges: Iterable[Range], first: int, last: int) -> list[Range]:
    """The parts of ``first`` to ``last`` that are in none of the ranges."""
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
    """The log from ``base`` to ``end`` had to be processed; the group's offset is ``committed``."""
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
    """Compare what live readers saw, by block, with the log at the end."""
    for digests in seen:
        for block, digest in digests.items():
            if content.digests.get(block, digest) != digest:
                first = block * BLOCK
                detail = f"offsets {first} to {first + BLOCK - 1} were other records to a live reader"
                yield Finding(part, "contradiction", f"{place[0]}-{place[1]}: {detail}")
