"""How far a consumer group is behind: in records, and in time."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.admin import Admin
from millstream.client.consume import first_timestamps
from millstream.client.position import Bounds, TopicPartition


@dataclass(frozen=True, slots=True)
class Lag:
    """One partition of a group. What is not known is None.

    ``records`` counts the unread ones that are still there; ``lost`` those that were deleted unread.
    ``oldest_ms`` is the time of the oldest unread record.
    """

    partition: TopicPartition
    committed: int | None
    bounds: Bounds
    member: str | None
    oldest_ms: int | None

    @property
    def records(self) -> int | None:
        if self.committed is None:
            return None
        return max(0, self.bounds.end - max(self.committed, self.bounds.start))

    @property
    def lost(self) -> int:
        return 0 if self.committed is None else max(0, self.bounds.start - self.committed)

    def age_ms(self, now_ms: int) -> int | None:
        """How old the oldest unread record is; 0 when everything is read."""
        if self.records == 0:
            return 0
        return None if self.oldest_ms is None else max(0, now_ms - self.oldest_ms)


def group_lag(admin: Admin, group: str, *, with_time: bool = True, timeout: float = 10.0) -> list[Lag]:
    """The lag of every partition of the topics that a group has committed offsets of, or members on."""
    holders = {
        partition: member.client for member in admin.group(group).members for partition in member.assigned
    }
    committed = admin.committed(group)
    existing = admin.topics()
    places = [
        TopicPartition(topic, index)
        for topic in sorted({place.topic for place in (*committed, *holders)})
        for index in range(existing.get(topic, 0))
    ]
    bounds = admin.bounds(places, committed_only=True)
    unread = {
        place: Bounds(max(committed[place], bounds[place].start), bounds[place].end)
        for place in places
        if place in committed and committed[place] < bounds[place].end
    }
    oldest = first_timestamps(admin.connection, unread, timeout) if with_time else {}
    return [
        Lag(place, committed.get(place), bounds[place], holders.get(place), oldest.get(place))
        for place in places
    ]
