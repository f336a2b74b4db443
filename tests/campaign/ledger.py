"""Compare what idempotent producers sent, and was acknowledged, with what a partition holds. No I/O.

Every life of a producer numbers its records in each partition from 0, and a record's value begins with
``LIFE:NUMBER:``. A log is sound if it holds each life's numbers one after the other, and every acknowledged
record where the acknowledgement said. Records below the log's start are gone; ``bounds.py`` says whether
they may be.

- **hole**: offsets between the log's start and its end hold no record.
- **unknown record**: nobody sent it.
- **lost**: acknowledged and not there; or a number is missing between two of its life.
- **duplicate**, **reordered**: a number is there twice, or after a larger one.
- **misplaced**: another record is at the offset that was acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tests.campaign.findings import Finding

Place = tuple[str, int]  # topic, partition


@dataclass
class Account:
    """One life of a producer in one partition."""

    sent: int = 0
    """Numbers below this may have been sent."""
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Acknowledged runs: first number, count, first offset."""

    def acknowledge(self, number: int, count: int, offset: int) -> None:
        if self.runs:
            first, so_far, at = self.runs[-1]
            if first + so_far == number and at + so_far == offset:
                self.runs[-1] = (first, so_far + count, at)
                return
        self.runs.append((number, count, offset))

    @property
    def acknowledged(self) -> int:
        return sum(count for _, count, _ in self.runs)


class Accounts:
    """The accounts of all lives in all partitions."""

    def __init__(self) -> None:
        self.by_place: dict[Place, dict[str, Account]] = defaultdict(lambda: defaultdict(Account))

    def of(self, place: Place, life: str) -> Account:
        return self.by_place[place][life]

    @property
    def acknowledged(self) -> int:
        return sum(account.acknowledged for lives in self.by_place.values() for account in lives.values())

    @property
    def sent(self) -> int:
        return sum(account.sent for lives in self.by_place.values() for account in lives.values())


@dataclass
class Content:
    """What a partition held when it was read, from ``start`` to ``end``. Arrays have one entry per record."""

    start: int
    end: int
    offsets: NDArray[np.int64]
    lives: NDArray[np.int32]
    """Indexes into ``names``."""
    numbers: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    names: list[str]
    digests: dict[int, int] = field(default_factory=dict)
    """The checksum of each whole block of ``coverage.BLOCK`` offsets, by its number."""

    def since(self, offset: int) -> Content:
        """The part of it that begins at an offset."""
        first = int(np.searchsorted(self.offsets, offset))
        return replace(
            self,
            start=max(self.start, offset),
            offsets=self.offsets[first:],
            lives=self.lives[first:],
            numbers=self.numbers[first:],
            timestamps=self.timestamps[first:],
        )


def check(
    part: str, place: Place, content: Content, lives: Mapping[str, Account], base: int
) -> Iterator[Finding]:
    """Everything that is wrong with a partition. The records of the lives begin at ``base``."""
    where = f"{place[0]}-{place[1]}"
    yield from _holes(part, where, content)
    for index, name in enumerate(content.names):
        at = np.flatnonzero(content.lives == index)
        if len(at):
            account = lives.get(name)
            if account is None:
                first = int(content.offsets[at[0]])
                yield Finding(
                    part, "unknown record", f"{where}: {len(at)} records of {name!r}, first at {first}"
                )
                continue
            yield from _order(part, where, name, content, at, account, whole=content.start <= base)
    for name, account in lives.items():
        yield from _acknowledged(part, where, name, content, account)


def _holes(part: str, where: str, content: Content) -> Iterator[Finding]:
    expected = np.arange(content.start, content.end)
    if len(expected) == len(content.offsets) and np.array_equal(expected, content.offsets):
        return
    missing = np.setdiff1d(expected, content.offsets)
    if len(missing):
        some = ", ".join(str(offset) for offset in missing[:5])
        yield Finding(part, "hole", f"{where}: {len(missing)} offsets hold nothing: {some}, ...")
    if not np.all(np.diff(content.offsets) > 0):
        yield Finding(part, "reordered", f"{where}: offsets were read out of order, or twice")
    beyond = content.offsets[(content.offsets < content.start) | (content.offsets >= content.end)]
    if len(beyond):
        yield Finding(
            part, "unknown record", f"{where}: {len(beyond)} records outside of the log, at {beyond[0]}"
        )


def _order(
    part: str,
    where: str,
    name: str,
    content: Content,
    at: NDArray[np.int64],
    account: Account,
    *,
    whole: bool,
) -> Iterator[Finding]:
    numbers, offsets = content.numbers[at], content.offsets[at]
    if whole and numbers[0] > 0:
        yield Finding(
            part, "lost", f"{where}: {name} begins with number {numbers[0]}, at offset {offsets[0]}"
        )
    steps = np.diff(numbers)
    for index in np.flatnonzero(steps != 1)[:5]:
        before, after = int(numbers[index]), int(numbers[index + 1])
        places = f"{where}: {name} number {before} at {offsets[index]}, then {after} at {offsets[index + 1]}"
        if after > before:
            yield Finding(part, "lost", places)
        else:
            kind = "duplicate" if np.count_nonzero(numbers == after) > 1 else "reordered"
            yield Finding(part, kind, places)
    if numbers.max() >= account.sent:
        yield Finding(
            part,
            "unknown record",
            f"{where}: {name} number {numbers.max()}; it sent up to {account.sent - 1}",
        )


def _acknowledged(part: str, where: str, name: str, content: Content, account: Account) -> Iterator[Finding]:
    index = content.names.index(name) if name in content.names else -1
    for number, count, offset in account.runs:
        skipped = max(0, content.start - offset)
        first, last = offset + skipped, offset + count
        if first >= last:
            continue  # below the log's start: see bounds.py
        if last > content.end:
            detail = f"acknowledged up to offset {last - 1}, the log ends at {content.end}"
            yield Finding(part, "lost", f"{where}: {name} number {number + count - 1} was {detail}")
            last = max(first, content.end)
        low, high = np.searchsorted(content.offsets, (first, last))
        expected = np.arange(number + skipped, number + skipped + last - first)
        if (
            high - low != last - first
            or np.any(content.lives[low:high] != index)
            or not np.array_equal(content.numbers[low:high], expected)
        ):
            yield _difference(part, where, name, content, index, first, expected)


def _difference(
    part: str, where: str, name: str, content: Content, index: int, first: int, expected: NDArray[np.int64]
) -> Finding:
    held = {
        int(o): (int(life), int(n))
        for o, life, n in zip(content.offsets, content.lives, content.numbers, strict=True)
        if first <= o < first + len(expected)
    }
    for offset, number in enumerate(expected, first):
        there = held.get(offset)
        if there is None:
            return Finding(
                part, "lost", f"{where}: {name} number {number} was acknowledged at {offset}: nothing there"
            )
        if there != (index, number):
            other = f"{content.names[there[0]]} number {there[1]}"
            detail = f"{name} number {number} was acknowledged at {offset}, which holds {other}"
            return Finding(part, "misplaced", f"{where}: {detail}")
    return Finding(
        part, "misplaced", f"{where}: offsets {first} to {first + len(expected) - 1} hold too many records"
    )


def check_kept(
    part: str, place: Place, content: Content, lives: Mapping[str, Account], base: int
) -> Iterator[Finding]:
    """Nothing may have left the log: it must still start at ``base``."""
    if content.start != base:
        count = sum(
            max(0, min(offset + n, content.start) - offset) for a in lives.values() for _, n, offset in a.runs
        )
        where = f"{place[0]}-{place[1]}"
        detail = f"starts at {content.start}, not at {base}: {count} acknowledged records are gone"
        yield Finding(part, "lost", f"{where} {detail}")


def check_volatile(
    part: str, place: Place, content: Content, fresh: Iterable[tuple[str, int, int, int]]
) -> Iterator[Finding]:
    """A log in memory, written by producers that are not idempotent. Whatever was acknowledged since the
    broker's last start (life, number, count, offset) must be there, unless the ring has dropped it."""
    where = f"{place[0]}-{place[1]}"
    yield from _holes(part, where, content)
    for life, number, count, offset in fresh:
        yield from _acknowledged(
            part, where, life, content, Account(number + count, [(number, count, offset)])
        )
