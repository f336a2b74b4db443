"""Which partitions the members of a share group read. Pure functions.

Any number of members may read a partition. As in Kafka's ``simple`` assignor, every partition gets the same
number of members, the smallest with which no member is idle. The members then have the same number of
partitions, plus or minus one, and keep what they have as far as that allows.

Topics with the same subscribers are balanced together. Members that carry less from other topics get the
larger parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millstream.broker.groups.topics import Partition


class Candidate(NamedTuple):
    """A member, as the assignor sees it."""

    topics: frozenset[bytes]  # ids of the existing topics that it subscribes to
    has: frozenset[Partition]  # what the last target gave it


def simple(members: Mapping[str, Candidate], topics: Mapping[bytes, int]) -> dict[str, frozenset[Partition]]:
    """What each member should read. ``topics``: the number of partitions of each, by id."""
    readers: dict[bytes, list[str]] = {}
    for member_id, member in members.items():
        for topic in member.topics:
            readers.setdefault(topic, []).append(member_id)
    pools: dict[tuple[str, ...], list[bytes]] = {}
    for topic in sorted(readers):
        pools.setdefault(tuple(readers[topic]), []).append(topic)
    targets: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    for pool, of_pool in sorted(pools.items()):
        partitions = [(topic, index) for topic in of_pool for index in range(topics[topic])]
        if partitions:
            loads = {member_id: len(targets[member_id]) for member_id in pool}
            for member_id, given in _Pool(partitions, members, loads).assigned().items():
                targets[member_id] |= given
    return {member_id: frozenset(target) for member_id, target in targets.items()}


class _Pool:
    """Partitions that all of these members may read."""

    def __init__(
        self, partitions: list[Partition], members: Mapping[str, Candidate], loads: Mapping[str, int]
    ) -> None:
        self._sharing = -(-len(loads) // len(partitions))  # members for each partition
        share, extra = divmod(self._sharing * len(partitions), len(loads))
        known = set(partitions)
        self._given = {member_id: members[member_id].has & known for member_id in loads}
        # Members that carry little elsewhere get the larger shares, then those that have larger ones now.
        order = sorted(loads, key=lambda member_id: (loads[member_id], -len(self._given[member_id])))
        self._quotas = {member_id: share + (place < extra) for place, member_id in enumerate(order)}
        self._readers: dict[Partition, set[str]] = {partition: set() for partition in partitions}

    def assigned(self) -> Mapping[str, set[Partition]]:
        given = {member_id: set(has) for member_id, has in self._given.items()}
        for member_id, has in given.items():
            for partition in has:
                self._readers[partition].add(member_id)
        self._release(given)
        self._hand_out(given)
        return given

    def _release(self, given: dict[str, set[Partition]]) -> None:
        """Take away what exceeds a member's quota, and then a partition's. Those with most readers first."""
        for member_id, has in given.items():
            surplus = len(has) - self._quotas[member_id]
            if surplus > 0:
                for partition in sorted(has, key=lambda p: (-len(self._readers[p]), p))[:surplus]:
                    has.remove(partition)
                    self._readers[partition].remove(member_id)
        for partition, readers in self._readers.items():
            surplus = len(readers) - self._sharing
            if surplus > 0:
                for member_id in sorted(readers, key=lambda m: (-len(given[m]), m))[:surplus]:
                    given[member_id].remove(partition)
                    readers.remove(member_id)

    def _hand_out(self, given: dict[str, set[Partition]]) -> None:
        """Give each partition the readers that it lacks, and so each member what it lacks."""
        lacking = [p for p, readers in self._readers.items() for _ in range(self._sharing - len(readers))]
        lacking.reverse()
        for member_id, has in given.items():
            while len(has) < self._quotas[member_id]:
                place = next((i for i in range(len(lacking) - 1, -1, -1) if lacking[i] not in has), -1)
                partition = lacking.pop(place)
                if partition in has:
                    self._swap(given, member_id, partition)
                else:
                    has.add(partition)
                    self._readers[partition].add(member_id)

    def _swap(self, given: dict[str, set[Partition]], member_id: str, lacking: Partition) -> None:
        """Give the member a partition of another one, which takes the lacking one in return.

        All that is lacking is what the member has already. A partition that it does not have has more
        readers, so one of them does not have the lacking one yet.
        """
        partition, other = next(
            (partition, other)
            for partition, readers in self._readers.items()
            if partition not in given[member_id]
            for other in sorted(readers)
            if lacking not in given[other]
        )
        given[other].remove(partition)
        given[other].add(lacking)
        given[member_id].add(partition)
        self._readers[partition].remove(other)
        self._readers[partition].add(member_id)
        self._readers[lacking].add(other)
