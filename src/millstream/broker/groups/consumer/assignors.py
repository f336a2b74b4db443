"""The assignors of the consumer protocol, ``uniform`` and ``range``. Pure functions.

``uniform`` gives all members the same number of partitions, plus or minus one, and moves as few as it
can. If members subscribe to different topics, it balances until no partition could move to a member that
has at least two fewer. ``range`` gives adjacent partitions of each topic to the same member. It also
gives the same indexes of topics with the same number of partitions to the same member, as joins need. It
does not consider who has what.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import NamedTuple

from millstream.broker.groups.topics import Partition


class Candidate(NamedTuple):
    """A member, as an assignor sees it."""

    instance_id: str | None
    topics: frozenset[bytes]  # ids of the existing topics that it subscribes to
    has: frozenset[Partition]  # what the last target gave it


Candidates = Mapping[str, Candidate]  # by member id
Targets = dict[str, frozenset[Partition]]
Assignor = Callable[[Candidates, Mapping[bytes, int]], Targets]


def uniform(members: Candidates, topics: Mapping[bytes, int]) -> Targets:
    """``topics``: the number of partitions of each, by id."""
    if not members:
        return {}
    subscriptions = {member.topics for member in members.values()}
    shared = subscriptions.pop()
    kept = _still_valid(members, topics)
    if subscriptions:
        return _uniform_by_topic(members, topics, kept)
    return _uniform_for_all(shared, topics, kept)


def _still_valid(members: Candidates, topics: Mapping[bytes, int]) -> dict[str, frozenset[Partition]]:
    taken: set[Partition] = set()
    kept: dict[str, frozenset[Partition]] = {}
    for member_id, member in members.items():
        gone = {
            partition
            for partition in member.has
            if partition in taken
            or partition[0] not in member.topics
            or partition[1] >= topics.get(partition[0], 0)
        }
        kept[member_id] = member.has - gone if gone else member.has
        taken |= kept[member_id]
    return kept


def _uniform_for_all(
    shared: frozenset[bytes], topics: Mapping[bytes, int], kept: dict[str, frozenset[Partition]]
) -> Targets:
    total = sum(topics[topic] for topic in shared)
    share, extra = divmod(total, len(kept))
    # Members that already have the larger shares keep them.
    order = sorted(kept, key=lambda member_id: -len(kept[member_id]))
    quotas = {member_id: share + (place < extra) for place, member_id in enumerate(order)}
    targets = {
        member_id: mine if len(mine) <= quotas[member_id] else frozenset(sorted(mine)[: quotas[member_id]])
        for member_id, mine in kept.items()
    }
    taken = set[Partition]().union(*targets.values())
    if len(taken) == total:
        return targets
    left = [(t, index) for t in sorted(shared) for index in range(topics[t]) if (t, index) not in taken]
    for member_id in order:
        missing = quotas[member_id] - len(targets[member_id])
        if missing:
            targets[member_id] |= frozenset(left[:missing])
            del left[:missing]
    return targets


def _uniform_by_topic(
    members: Candidates, topics: Mapping[bytes, int], kept: dict[str, frozenset[Partition]]
) -> Targets:
    readers: dict[bytes, list[str]] = {}
    for member_id, member in members.items():
        for topic in member.topics:
            readers.setdefault(topic, []).append(member_id)
    has: dict[bytes, dict[str, list[int]]] = {
        topic: {member_id: [] for member_id in of_topic} for topic, of_topic in readers.items()
    }
    for member_id, mine in kept.items():
        for topic, index in sorted(mine):
            has[topic][member_id].append(index)
    load = {member_id: len(mine) for member_id, mine in kept.items()}
    # Topics with few readers first: the others have more ways to balance.
    order = sorted(readers, key=lambda topic: (len(readers[topic]), topic))
    for topic in order:
        taken = {index for indexes in has[topic].values() for index in indexes}
        least = [(load[member_id], member_id) for member_id in readers[topic]]
        heapq.heapify(least)
        for index in range(topics[topic]):
            if index not in taken:
                carries, member_id = least[0]
                has[topic][member_id].append(index)
                load[member_id] += 1
                heapq.heapreplace(least, (carries + 1, member_id))
    # Every move makes the loads more equal, so this ends.
    while sum(_level(has[topic], load) for topic in order):
        pass
    targets: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    for topic, of_topic in has.items():
        for member_id, indexes in of_topic.items():
            targets[member_id].update((topic, index) for index in indexes)
    return {member_id: frozenset(target) for member_id, target in targets.items()}


def _level(of_topic: dict[str, list[int]], load: dict[str, int]) -> bool:
    """Move partitions of one topic from its most to its least loaded members. True if any moved."""
    moved = False
    while True:
        taker = min(of_topic, key=lambda member_id: (load[member_id], member_id))
        giver = max(
            (member_id for member_id, indexes in of_topic.items() if indexes),
            key=lambda member_id: (load[member_id], member_id),
            default=taker,
        )
        if load[giver] - load[taker] < 2:
            return moved
        of_topic[taker].append(of_topic[giver].pop())
        load[giver] -= 1
        load[taker] += 1
        moved = True


def by_range(members: Candidates, topics: Mapping[bytes, int]) -> Targets:
    """``topics``: the number of partitions of each, by id."""
    # Static members first, ordered by their permanent name, so that a restart changes nothing.
    order = sorted(
        members,
        key=lambda member_id: (
            members[member_id].instance_id is None,
            members[member_id].instance_id or member_id,
        ),
    )
    targets: dict[str, set[Partition]] = {member_id: set() for member_id in members}
    for topic in {topic for member in members.values() for topic in member.topics}:
        readers = [member_id for member_id in order if topic in members[member_id].topics]
        share, extra = divmod(topics[topic], len(readers))
        first = 0
        for place, member_id in enumerate(readers):
            last = first + share + (place < extra)
            targets[member_id].update((topic, index) for index in range(first, last))
            first = last
    return {member_id: frozenset(target) for member_id, target in targets.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": by_range}
"""By the names that clients ask for. The default is the first in ``group.consumer.assignors``."""
