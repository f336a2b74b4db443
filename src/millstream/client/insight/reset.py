"""Move a consumer group to other offsets, and say what that means: what it reads again, what it skips.

A plan comes first, and changes nothing. It is then carried out, unless the group has members: they would
continue from where they are and commit over it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from millstream.client.insight.lag import positions
from millstream.client.insight.times import PartitionOffset, times_at
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.groups import SHARE, GroupInfo
from millstream.client.text.position import Bounds, Position, TopicPartition
from millstream.core.errors import ConfigError, RequestFailed
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND
from millstream.core.units import count

NON_EMPTY_GROUP = 68


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """One partition's offset, from ``old`` (None: nothing committed) to ``new``. ``first_ms`` and
    ``last_ms`` are the times of the first and the last record between the two, if they are known."""

    partition: TopicPartition
    old: int | None
    new: int
    bounds: Bounds
    first_ms: int | None = None
    last_ms: int | None = None

    @property
    def between(self) -> Bounds:
        """The offsets between the two that the partition has; empty if the group had committed none."""
        start, end = self.bounds
        old = self.new if self.old is None else max(start, min(self.old, end))
        return Bounds(min(old, self.new), max(old, self.new))

    @property
    def read_again(self) -> int:
        """How many records, including those that were compacted away or that mark transactions."""
        return 0 if self.old is None or self.old <= self.new else self.between.end - self.between.start

    @property
    def skipped(self) -> int:
        return 0 if self.old is None or self.old >= self.new else self.between.end - self.between.start

    @property
    def unread(self) -> int:
        """How many records are left to read afterwards."""
        return self.bounds.end - self.new


def planned(
    admin: Admin,
    group: str,
    position: Position,
    topics: Collection[str] = (),
    partitions: Collection[int] = (),
) -> list[OffsetMove]:
    """Where every partition of a group would be moved to: those of ``topics`` (by default all that it has
    committed), restricted to ``partitions`` if any are given."""
    info = _known(admin, group)
    committed = {} if info is None else positions(admin, info)
    places = _places(admin, group, list(committed), topics, partitions)
    bounds = admin.bounds(places)
    origins = None
    if position.kind in ("after", "before"):
        for place in places:
            if place not in committed:
                raise ConfigError(
                    f"{group} has committed no offset of {place} for {position} to count from; "
                    "say start, end, an offset or a time"
                )
        origins = committed
    targets = admin.resolve(dict.fromkeys(places, position), bounds=bounds, origins=origins)
    return [OffsetMove(place, committed.get(place), targets[place], bounds[place]) for place in places]


def with_times(admin: Admin, moves: Sequence[OffsetMove]) -> list[OffsetMove]:
    """The same moves, with the times of what is between old and new: two small fetches per partition."""
    between = {
        move.partition: (
            PartitionOffset(move.partition, move.between.start),
            PartitionOffset(move.partition, move.between.end - 1),
        )
        for move in moves
        if move.between.start < move.between.end
    }
    times = times_at(admin.connection, {spot for spots in between.values() for spot in spots})

    def timed(move: OffsetMove) -> OffsetMove:
        if move.partition not in between:
            return move
        first, last = between[move.partition]
        return dataclasses.replace(move, first_ms=times.get(first), last_ms=times.get(last))

    return [timed(move) for move in moves]


def carry_out(admin: Admin, group: str, moves: Sequence[OffsetMove]) -> None:
    """Set the new offsets. Doing it twice has the same effect as doing it once."""
    info = _known(admin, group)
    offsets = {move.partition: move.new for move in moves}
    try:
        if info is not None and info.kind == SHARE:
            admin.move_share_group(group, offsets)
        else:
            admin.commit(group, offsets)
    except RequestFailed as error:
        # A member joined since the plan was made; brokers differ in how they report that.
        refuse_to_move(admin, group, new=True)
        raise error from None


def refuse_to_move(admin: Admin, group: str, *, new: bool) -> None:
    """Raise if the group has members. Also if there is no such group, unless it may be a ``new`` one."""
    refuse_while_active(
        admin,
        group,
        "they would continue from their own positions and overwrite the new offsets",
        of_share="a share group is only moved while it has none",
        new=new,
    )


def refuse_while_active(admin: Admin, group: str, why: str, *, of_share: str = "", new: bool = False) -> None:
    """Raise if the group has members, and say why that matters: ``of_share``, if it is a share group."""
    info = _known(admin, group) if new else admin.group(group)
    if info is None:
        return  # offsets may be set before a group exists
    if info.kind == SHARE and of_share:
        why = of_share
    if info.members:
        who = ", ".join(sorted({f"{member.client} at {member.host}" for member in info.members})[:3])
        raise RequestFailed(
            NON_EMPTY_GROUP,
            "NON_EMPTY_GROUP",
            f"{group} has {count(len(info.members), 'active member')} ({who}); stop them first: {why}",
        )


def _known(admin: Admin, group: str) -> GroupInfo | None:
    try:
        return admin.group(group)
    except RequestFailed as error:
        if error.code != GROUP_ID_NOT_FOUND:
            raise
        return None


def _places(
    admin: Admin,
    group: str,
    committed: list[TopicPartition],
    topics: Collection[str],
    partitions: Collection[int],
) -> list[TopicPartition]:
    if topics:
        places = admin.partitions(list(topics))
    else:
        existing = admin.topics()
        places = [place for place in committed if place.partition < existing.get(place.topic, 0)]
    if partitions:
        places = [place for place in places if place.partition in set(partitions)]
    if not places and topics:
        raise ConfigError(f"{', '.join(topics)} has no such partition: {', '.join(map(str, partitions))}")
    if not places:
        which = " of these partitions" if partitions else ""
        raise ConfigError(f"{group} has committed no offsets{which}; say which topic to set them for")
    return places
