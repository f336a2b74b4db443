"""What a standby lacks: the one account behind its status, its metrics and its promotion.

A standby that is promoted leads from its last complete replication point (``broker.standby.followers``). So
it lacks everything that the leader is known to have beyond that point, whether it was copied since or not:

- the point that is being copied, as the leader described it;
- the leader's **latest report**: what it has taken since that point.

What the leader took after its latest report is not in the account, and only the leader can know it. The
numbers here are a lower bound unless the leader said that it takes no more.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

TopicIdPartition = tuple[bytes, int]  # topic id and partition


class MissingRecords(NamedTuple):
    """Records that the leader is known to have had and this copy lacks."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int

    @property
    def records(self) -> int:
        return self.end_offset - self.first_offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: offsets {self.first_offset} to {self.end_offset - 1}"


class LeaderReport(NamedTuple):
    """What the leader said about one partition."""

    partition_id: TopicIdPartition
    topic: str
    end: int
    bytes: int  # since the previous report


class LagAccount:
    """The account of one standby. ``ends``: how far its last complete point goes."""

    def __init__(self, ends: Mapping[TopicIdPartition, int]) -> None:
        self._ends = dict(ends)
        self._announced: dict[TopicIdPartition, LeaderReport] = {}  # from the point being copied
        self._reported: dict[
            TopicIdPartition, tuple[int, LeaderReport]
        ] = {}  # with the point that it goes beyond
        self._made = self._number = 0  # the catalogue's commits: applied here, and known at the leader
        self._is_new = False  # the point being copied is its session's first: its commits were never counted

    def begin(self, number: int, reports: Iterable[LeaderReport], *, first: bool) -> None:
        """A point is being copied."""
        self._announced = {each.partition_id: each for each in reports}
        if first:
            self._reported.clear()
            self._number = self._made = number
        self._is_new = first
        self._number = max(self._number, number)

    def heard(self, point: int, number: int, reports: Iterable[LeaderReport]) -> None:
        """The leader's latest report: what it has beyond ``point``.

        Reports come on a separate connection, so one may overtake the point before it. What an earlier
        report said counts until that point is whole.
        """
        self._reported.update((each.partition_id, (point, each)) for each in reports)
        self._number = max(self._number, number)

    def complete(self, point: int, number: int, ends: Mapping[TopicIdPartition, int]) -> None:
        """The point is whole. It includes what the leader had beyond an earlier point."""
        self._ends.update(ends)
        self._announced.clear()
        self._reported = {
            of: (beyond, report) for of, (beyond, report) in self._reported.items() if beyond >= point
        }
        self._made, self._is_new = number, False
        self._number = max(self._number, number)

    @property
    def missing(self) -> list[MissingRecords]:
        """The missing records, by topic and partition."""
        known: dict[TopicIdPartition, tuple[str, int]] = {}
        for report in self._reports():
            _, end = known.get(report.partition_id, ("", 0))
            known[report.partition_id] = (report.topic, max(end, report.end))
        return sorted(
            MissingRecords(topic, partition_id[1], self._ends.get(partition_id, 0), end)
            for partition_id, (topic, end) in known.items()
            if end > self._ends.get(partition_id, 0)
        )

    @property
    def records(self) -> int:
        return sum(each.records for each in self.missing)

    @property
    def bytes(self) -> int:
        return sum(report.bytes for report in self._reports()) if self.missing else 0

    def _reports(self) -> Iterator[LeaderReport]:
        yield from self._announced.values()
        yield from (report for _, report in self._reported.values())

    @property
    def commits(self) -> int:
        """Changes of the catalogue that are missing here. At least one while the number is not known."""
        return max(self._number - self._made, 1) if self._is_new else self._number - self._made
