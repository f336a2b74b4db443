"""A member of a consumer protocol group (KIP-848), and how it moves from one assignment to the next.

Rules
-----
1. A partition belongs to a member from the moment it is in ``assigned`` until it is in neither
   ``assigned`` nor ``revoking``. While it belongs to a member, no other member is given it.
2. A member is asked to give up partitions (``revoking``) before it gets any new ones. It moves to the
   target's epoch only when it has given up all of them.
3. Only the list of partitions that a member says it owns proves that it has given something up. A
   heartbeat without that list proves nothing.

Theory
------
The group decides on a *target*: which member should have which partitions, under an epoch. Each member
reaches its part at its own pace, one heartbeat after the other (``reconcile``)::

    STABLE       it has what the target of its epoch gives it
    UNREVOKED    it was told to give up ``revoking`` and has not confirmed it yet; it stays in its epoch
    UNRELEASED   it is in the target's epoch, but some of its partitions still belong to another member

For each partition a member keeps the epoch in which it got it. So a commit sent under an older epoch is
accepted for partitions that have been the member's all the time since (KIP-1251).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import NamedTuple

from millstream.broker.groups.classic.member import Protocols
from millstream.broker.groups.topics import Partition

LEFT_STATIC = -2
"""The epoch of a static member that has left and is expected back within its session."""

_NO_PARTITIONS: frozenset[Partition] = frozenset()


class MemberState(enum.Enum):
    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


class ClassicPart(NamedTuple):
    """What is known only about a member that uses the classic protocol."""

    session_timeout: float  # seconds
    protocols: Protocols


class ConsumerMember:
    """One member. Only the group changes it, except for ``reconcile``."""

    __slots__ = (
        "assigned",
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "deadline",
        "epoch",
        "instance_id",
        "join_deadline",
        "member_id",
        "names",
        "previous_epoch",
        "rack_id",
        "rebalance_deadline",
        "rebalance_timeout",
        "regex",
        "revision",
        "revoking",
        "state",
        "sync_deadline",
        "target",
    )

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout = 0.0  # seconds
        self.names: frozenset[str] = frozenset()  # topics subscribed to by name
        self.regex = ""  # subscribed by pattern; empty: none
        self.assignor: str | None = None
        self.classic: ClassicPart | None = None
        self.epoch = 0
        self.previous_epoch = 0
        self.state = MemberState.STABLE
        self.assigned: dict[Partition, int] = {}  # each with the epoch in which it was assigned
        self.revoking: dict[Partition, int] = {}
        self.target: frozenset[Partition] = _NO_PARTITIONS
        self.revision = 0  # the group's agreement when this member last changed
        self.deadline = inf  # monotonic: when its session ends
        self.rebalance_deadline = inf  # when it must have given up what it was asked to
        self.join_deadline = inf  # when a classic member must have joined again
        self.sync_deadline = inf  # when a classic member must have asked for its assignment

    @property
    def is_gone_for_now(self) -> bool:
        return self.epoch == LEFT_STATIC

    def earliest_deadline(self) -> float:
        return min(self.deadline, self.rebalance_deadline, self.join_deadline, self.sync_deadline)

    def is_at(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, partition: Partition) -> int | None:
        """The epoch since which a partition is this member's. None if it is not."""
        epoch = self.assigned.get(partition)
        return epoch if epoch is not None else self.revoking.get(partition)

    def successor(self, member_id: str) -> ConsumerMember:
        """The same static member under another id."""
        member = ConsumerMember(member_id, self.instance_id)
        member.rack_id, member.rebalance_timeout = self.rack_id, self.rebalance_timeout
        member.names, member.regex, member.assignor = self.names, self.regex, self.assignor
        member.classic = self.classic
        member.state, member.target = self.state, self.target
        member.assigned, member.revoking = self.assigned, self.revoking
        return member

    def reconcile(
        self,
        target_epoch: int,
        owned: Collection[Partition] | None,
        subscribed: Collection[bytes],
        is_free: Callable[[Partition], bool],
        *,
        subscription_changed: bool = False,
    ) -> bool:
        """Take the next step towards the target. True if anything changed.

        ``owned`` is what the member says it owns, None if it said nothing. ``subscribed`` are the ids of
        its topics. ``is_free`` is True for a partition that no member has.
        """
        if self.is_at(target_epoch) and not subscription_changed:
            return False
        if self.state is MemberState.UNREVOKED and self._owns(self.revoking, owned):
            return subscription_changed and self._drop_unsubscribed(owned, subscribed)
        if self.is_at(target_epoch):
            return self._drop_unsubscribed(owned, subscribed)
        return self._step(target_epoch, owned, subscribed, is_free)

    def _step(
        self,
        target_epoch: int,
        owned: Collection[Partition] | None,
        subscribed: Collection[bytes],
        is_free: Callable[[Partition], bool],
    ) -> bool:
        before = (self.state, self.epoch, self.assigned, self.revoking)
        target = {partition for partition in self.target if partition[0] in subscribed}
        kept = {partition: epoch for partition, epoch in self.assigned.items() if partition in target}
        surplus = {partition: epoch for partition, epoch in self.assigned.items() if partition not in target}
        self.assigned = kept
        if surplus and self._owns(surplus, owned):
            self.revoking = surplus
            self._move(MemberState.UNREVOKED, self.epoch)
        else:
            wanted = target - kept.keys()
            # It may be given again what it has just given up.
            free = {p for p in wanted if p in self.revoking or is_free(p)}
            self.revoking = {}
            self._move(
                MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED, target_epoch
            )
            kept.update(dict.fromkeys(free, target_epoch))
        return before != (self.state, self.epoch, self.assigned, self.revoking)

    def _drop_unsubscribed(self, owned: Collection[Partition] | None, subscribed: Collection[bytes]) -> bool:
        """Take away what a changed subscription no longer covers, without waiting for a new target."""
        surplus = {p: epoch for p, epoch in self.assigned.items() if p[0] not in subscribed}
        if not surplus:
            return False
        self.assigned = {p: epoch for p, epoch in self.assigned.items() if p not in surplus}
        if self._owns({**self.revoking, **surplus}, owned):
            self.revoking = {**self.revoking, **surplus}
            self._move(MemberState.UNREVOKED, self.epoch)
        return True

    def _move(self, state: MemberState, epoch: int) -> None:
        self.state = state
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    @staticmethod
    def _owns(asked_back: Mapping[Partition, int], owned: Collection[Partition] | None) -> bool:
        if owned is None:
            return bool(asked_back)
        return any(partition in asked_back for partition in owned)
