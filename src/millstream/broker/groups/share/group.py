"""The members of a share group (KIP-932): who reads which partitions. A state machine without I/O.

Rules
-----
1. Everything that changes a group's members is a method of ``ShareGroup``. Time comes in as ``now``
   (monotonic seconds). The existing topics come in as a mapping that is only read. Nothing is sent from here.
2. A request is refused (``RequestRefused``) before anything has changed.
3. ``epoch`` never goes back, nor does a member's epoch while it is a member.

Theory
------
A member sends heartbeats. With epoch 0 it joins, with -1 it leaves, and any other heartbeat states the epoch
of the last response that it has read. What happens then is what happens in a group of the consumer protocol,
with one step left out: a partition may have several readers, so nobody waits until somebody else has given
one up. Which records a reader gets is decided for each record, not here (``share_partition``)::

    the group's epoch    is incremented when members, subscriptions or the subscribed topics change
    the target           which member should read what (``assignor``), for one epoch of the group
    the members          each has its part of the target with its next heartbeat, and so the group's epoch

The group's state is EMPTY or STABLE. Kafka has no others for share groups.

Each change increments ``agreement``, and the value is noted with the member (``revision``). The caller saves
the group before it sends a response that depends on the change, so a restarted broker continues with the same
members. A share group is never forgotten by itself, because its progress is kept elsewhere.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from math import inf
from typing import NamedTuple

from millstream.broker.groups.share.assignor import Candidate, simple
from millstream.broker.groups.topics import Partition, Topics, existing
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    NONE,
    UNKNOWN_MEMBER_ID,
)

LEAVE, JOIN = -1, 0  # epochs with a special meaning

_NO_PARTITIONS: frozenset[Partition] = frozenset()


class ShareState(enum.Enum):
    """The names that Kafka shows in ListGroups and ShareGroupDescribe."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareHeartbeat(NamedTuple):
    """What a ShareGroupHeartbeat says. None: the same as before."""

    member_id: str
    epoch: int
    names: frozenset[str] | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class ShareBeat(NamedTuple):
    """The response to a heartbeat."""

    member_id: str
    epoch: int
    assignment: frozenset[Partition] | None = None  # None: the same as before
    revision: int = 0  # it may be sent once the group is saved up to this agreement


class ShareMember:
    """One member. Only the group changes it."""

    __slots__ = (
        "assigned",
        "client_host",
        "client_id",
        "deadline",
        "epoch",
        "member_id",
        "names",
        "previous_epoch",
        "rack_id",
        "revision",
        "target",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.names: frozenset[str] = frozenset()  # topics subscribed to
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.epoch = 0
        self.previous_epoch = -1
        self.assigned = _NO_PARTITIONS  # what it was told to read
        self.target = _NO_PARTITIONS  # what it will be told to read
        self.revision = 0  # the group's agreement when this member last changed
        self.deadline = inf  # monotonic: when its session ends


class ShareGroup:
    """One share group."""

    kind = "share"
    protocol_type = "share"
    assignor = "simple"

    def __init__(self, name: str, topics: Topics, *, epoch: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.target_epoch = epoch
        self.members: dict[str, ShareMember] = {}
        self.existing: dict[str, tuple[bytes, int]] = {}  # topics that members read: id, partitions
        self.is_dead = False
        # Settings, kept up to date by the caller.
        self.session_timeout = 45.0  # seconds
        self.heartbeat_interval_ms = 5000  # sent to members
        self.assignment_interval = 0.0  # seconds between two targets
        self.max_size = 200

        self.agreement = 0
        self.empty_since_ms = -1  # wall time; maintained by the caller
        self.wake_at = inf  # no deadline is earlier than this; ``tick`` need not be called before

        self._topics = topics
        self._seen_version = -1  # the version of the topics at the last look
        self._assign_at = -inf  # there is no other target before this time

    # Heartbeats

    def heartbeat(self, beat: ShareHeartbeat, now: float) -> ShareBeat:
        """Hot: every member sends one every few seconds."""
        if self.is_dead:
            raise RequestRefused(COORDINATOR_NOT_AVAILABLE, f"group {self.name} is being deleted")
        if beat.epoch == LEAVE:
            self.remove(self._find(beat.member_id))
            return ShareBeat(beat.member_id, LEAVE, revision=self.agreement)
        member = self._joining(beat) if beat.epoch == JOIN else self._staying(beat)
        had = member.assigned
        changed = self._update(member, beat)
        self._notice_topics()
        if self.epoch > self.target_epoch and now >= self._assign_at:
            self._assign(now)
        self._reconcile(member, changed)
        member.deadline = now + self.session_timeout
        self.wake_at = min(self.wake_at, member.deadline)
        tell = beat.epoch == JOIN or beat.names is not None or had != member.assigned
        return ShareBeat(member.member_id, member.epoch, member.assigned if tell else None, member.revision)

    def _joining(self, beat: ShareHeartbeat) -> ShareMember:
        member = self.members.get(beat.member_id)
        if member is not None:
            return member
        if len(self.members) >= self.max_size:
            raise RequestRefused(
                GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {self.max_size} members.",
            )
        return self.add(ShareMember(beat.member_id))

    def _staying(self, beat: ShareHeartbeat) -> ShareMember:
        member = self._find(beat.member_id)
        # The response that told the member its new epoch may have been lost.
        if beat.epoch not in (member.epoch, member.previous_epoch):
            word = "greater" if beat.epoch > member.epoch else "smaller"
            raise RequestRefused(
                FENCED_MEMBER_EPOCH,
                f"The share group member has a {word} member epoch ({beat.epoch}) than the one known by the "
                f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _find(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise RequestRefused(
                UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.name}."
            )
        return member

    def _update(self, member: ShareMember, beat: ShareHeartbeat) -> bool:
        """Store what the heartbeat says about the member. True if its subscription changed."""
        rack_id = member.rack_id if beat.rack_id is None else beat.rack_id
        known = (member.rack_id, member.client_id, member.client_host)
        if known != (rack_id, beat.client_id, beat.client_host):
            member.rack_id, member.client_id, member.client_host = rack_id, beat.client_id, beat.client_host
            self._touch(member)
        if beat.names is None or beat.names == member.names:
            return False
        member.names = beat.names
        self._touch(member)
        self._look_up_topics()
        self._bump()
        return True

    # Members

    def add(self, member: ShareMember) -> ShareMember:
        self.members[member.member_id] = member
        self._touch(member)
        return member

    def remove(self, member: ShareMember) -> None:
        del self.members[member.member_id]
        self._look_up_topics()
        self._bump()

    # From the group's epoch to the target, and from there to the member

    def _notice_topics(self) -> None:
        """Check whether subscribed topics were created, grown or deleted."""
        if self._seen_version != self._topics.topics_version:
            before = self.existing
            self._look_up_topics()
            if before != self.existing:
                self._bump()

    def _look_up_topics(self) -> None:
        self._seen_version = self._topics.topics_version
        names = frozenset[str]().union(*(member.names for member in self.members.values()))
        self.existing = existing(names, self._topics)

    def _topic_ids(self, names: Collection[str]) -> frozenset[bytes]:
        return frozenset(self.existing[name][0] for name in names if name in self.existing)

    def _assign(self, now: float) -> None:
        candidates = {
            member_id: Candidate(self._topic_ids(member.names), member.target)
            for member_id, member in self.members.items()
        }
        for member_id, target in simple(candidates, dict(self.existing.values())).items():
            self.members[member_id].target = target
        self.target_epoch = self.epoch
        self._assign_at = now + self.assignment_interval
        self.agreement += 1

    def _reconcile(self, member: ShareMember, subscription_changed: bool) -> None:
        """Give the member its part of the target."""
        if member.epoch == self.target_epoch and not subscription_changed:
            return
        subscribed = self._topic_ids(member.names)
        member.assigned = frozenset(partition for partition in member.target if partition[0] in subscribed)
        if member.epoch != self.target_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.target_epoch
        self._touch(member)

    def _bump(self) -> None:
        self.epoch += 1
        self.agreement += 1

    def _touch(self, member: ShareMember) -> None:
        self.agreement += 1
        member.revision = self.agreement

    # Time

    def tick(self, now: float) -> None:
        """Let time take effect: remove members that are silent."""
        for member in [member for member in self.members.values() if member.deadline <= now]:
            self.remove(member)
        self.wake_at = min((member.deadline for member in self.members.values()), default=inf)

    def start_sessions(self, now: float) -> None:
        """Start every member's session again, after a restart."""
        for member in self.members.values():
            member.deadline = now + self.session_timeout
        self.wake_at = now + self.session_timeout if self.members else inf

    def kill(self) -> None:
        """Stop: the group is deleted, or its broker stops."""
        self.is_dead = True
        self.wake_at = inf

    # Queries

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def may_be_forgotten(self) -> bool:
        return False

    @property
    def state(self) -> ShareState:
        if self.is_dead:
            return ShareState.DEAD
        return ShareState.STABLE if self.members else ShareState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members have subscribed to."""
        return frozenset[str]().union(*(member.names for member in self.members.values()))

    def topics_in_use(self) -> frozenset[str]:
        return self.subscribed_topics()

    # A share group has no committed offsets: nobody may commit or delete any, and all of them are unknown.

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        now: float,
        *,
        transactional: bool = False,
        by_epoch: bool = True,
    ) -> int:
        return GROUP_ID_NOT_FOUND

    def check_partition(self, member_id: str, epoch: int, partition: Partition) -> int:
        return GROUP_ID_NOT_FOUND

    def check_fetch(self, member_id: str | None, epoch: int) -> int:
        return NONE

    def check_offset_delete(self) -> int:
        return GROUP_ID_NOT_FOUND
