"""The consumer group protocol (KIP-848): the broker decides who reads what. A state machine without I/O.

Rules
-----
1. Everything that changes a group's state is a method of ``ConsumerGroup``. Time comes in as ``now``
   (monotonic seconds). The existing topics come in as a mapping that is only read. Nothing is sent from
   here.
2. A request is refused (``RequestRefused``) before anything has changed.
3. ``epoch`` and ``target_epoch`` never go back, nor does a member's epoch while it is a member.
4. A partition has at most one owner (``owners``). How it changes hands is in ``member``.

Theory
------
A member sends nothing but heartbeats. With epoch 0 it joins, with -1 it leaves, and with -2 a static
member leaves and will return. Any other heartbeat states the member's epoch and, if they changed, what it
owns and subscribes to. The response gives it an epoch and, if they changed, its partitions. Three things
follow one another, so that there is no moment at which all members have to stop::

    the group's epoch    is incremented when members, subscriptions or the subscribed topics change
    the target           which member should have what, decided by an assignor for one epoch of the group
    the members          each moves to the target at its own pace (``ConsumerMember.reconcile``)

The group's state follows from these::

    EMPTY         no members; perhaps offsets
    ASSIGNING     the epoch is ahead of the target, which the next heartbeat brings up to date
    RECONCILING   at least one member has not reached the target
    STABLE        all members have

Members that use the classic protocol can be in such a group too (``classic_members``). To them a
member's epoch is a generation, and a step towards the target is a join and a sync.

Each change increments ``agreement``, and the value is noted with the member (``revision``). The caller
saves the group before it sends a response that depends on the change, so a restarted broker continues
with the same group.
"""

from __future__ import annotations

import enum
import logging
import uuid
from collections import Counter
from collections.abc import Collection, Iterable
from math import inf
from typing import NamedTuple

from millstream.broker.groups.consumer.assignors import ASSIGNORS, Candidate
from millstream.broker.groups.consumer.member import LEFT_STATIC, ConsumerMember, MemberState
from millstream.broker.groups.consumer.subscriptions import Subscriptions
from millstream.broker.groups.topics import Partition, Topics
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INVALID_REGULAR_EXPRESSION,
    NONE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_VERSION,
)
from millstream.core.user_regex import BadPattern, compile_pattern

_log = logging.getLogger(__name__)

LEAVE, JOIN = -1, 0  # epochs with a special meaning; LEFT_STATIC is the third

_LARGE = 500  # members and partitions
_PAUSE = 20e-6
"""Seconds between two targets, for each member and partition above ``_LARGE``. Computing one takes about
a tenth of that."""


class ConsumerState(enum.Enum):
    """The names that Kafka shows in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Heartbeat(NamedTuple):
    """What a ConsumerGroupHeartbeat says. None: the same as before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: float | None = None  # seconds
    names: frozenset[str] | None = None
    regex: str | None = None  # empty: no longer any
    assignor: str | None = None
    owned: Collection[Partition] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """True if it states everything, as when a client joins or does not know whether it was heard."""
        return self.epoch == JOIN or (
            self.rebalance_timeout is not None
            and (self.names is not None or self.regex is not None)
            and self.owned is not None
        )


class HeartbeatResponse(NamedTuple):
    """The response to a heartbeat."""

    member_id: str
    epoch: int
    assignment: frozenset[Partition] | None = None  # None: the same as before
    revision: int = 0  # it may be sent once the group is saved up to this agreement
    waits: bool = False  # for partitions of other members, or for a new target: it should ask again soon


class ConsumerGroup:
    """One group of the consumer protocol."""

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, name: str, topics: Topics, *, epoch: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.target_epoch = epoch
        self.members: dict[str, ConsumerMember] = {}
        self.owners: dict[Partition, str] = {}  # which member has it, or has not given it up yet
        self.is_dead = False
        # Settings, kept up to date by the caller.
        self.session_timeout = 45.0  # seconds
        self.heartbeat_interval_ms = 5000  # sent to members
        self.assignment_interval = 0.0  # seconds between two targets
        self.max_size = 2**31 - 1
        self.default_assignor = "uniform"

        self.agreement = 0
        self.empty_since_ms = -1  # wall time; maintained by the caller, for the retention of offsets
        self.wake_at = inf  # no deadline is earlier than this; ``tick`` need not be called before

        self.static: dict[str, str] = {}  # instance id -> member id
        self.subscriptions = Subscriptions(name, topics)
        self._assign_at = -inf  # there is no other target before this time

    # Heartbeats

    def heartbeat(self, beat: Heartbeat, now: float) -> HeartbeatResponse:
        """Hot: every member sends one every few seconds."""
        if self.is_dead:
            raise RequestRefused(COORDINATOR_NOT_AVAILABLE, f"group {self.name} is being deleted")
        if beat.epoch in (LEAVE, LEFT_STATIC):
            return self._leave(beat)
        if beat.regex:
            try:
                compile_pattern(beat.regex)
            except BadPattern as error:
                raise RequestRefused(
                    INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{beat.regex}` is not a valid regular expression: {error}.",
                ) from None
        member = self._joining(beat) if beat.epoch == JOIN else self._staying(beat)
        changed = self._update(member, beat)
        had = member.assigned
        self.advance(member, beat.owned, now, subscription_changed=changed)
        member.deadline = now + self.session_timeout
        self.wake(member)
        tell = beat.is_full or had.keys() != member.assigned.keys()
        return HeartbeatResponse(
            member.member_id,
            member.epoch,
            frozenset(member.assigned) if tell else None,
            member.revision,
            member.state is MemberState.UNRELEASED or self.epoch > self.target_epoch,
        )

    def _joining(self, beat: Heartbeat) -> ConsumerMember:
        member_id = beat.member_id or str(uuid.uuid4())
        self.check_room(member_id, beat.instance_id)
        known_id = self.static.get(beat.instance_id) if beat.instance_id is not None else None
        if known_id is not None and known_id != member_id:
            known = self.members[known_id]
            if known.classic is None and not known.is_gone_for_now:
                raise RequestRefused(
                    UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {beat.instance_id} cannot join the group "
                    f"because the instance id is owned by {known_id} member.",
                )
            return self.replace(known, member_id)
        member = self.members.get(member_id)
        if member is None:
            return self.add(ConsumerMember(member_id, beat.instance_id))
        if member.is_gone_for_now:
            member.epoch = member.previous_epoch = 0
        return member

    def _staying(self, beat: Heartbeat) -> ConsumerMember:
        member = self.find(beat.member_id, beat.instance_id)
        if beat.epoch == member.epoch:
            return member
        # The response that told the member its new epoch may have been lost.
        if (
            beat.epoch < member.epoch
            and beat.epoch == member.previous_epoch
            and beat.owned is not None
            and all(partition in member.assigned for partition in beat.owned)
        ):
            return member
        word = "greater" if beat.epoch > member.epoch else "smaller"
        raise RequestRefused(
            FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {word} member epoch ({beat.epoch}) than the one known by the "
            f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )

    def _leave(self, beat: Heartbeat) -> HeartbeatResponse:
        member = self.find(beat.member_id, beat.instance_id)
        if beat.epoch == LEFT_STATIC and beat.instance_id is not None:
            self._release(member.revoking)
            member.revoking = {}
            member.epoch = LEFT_STATIC
            member.rebalance_deadline = inf
            self.touch(member)
        else:
            self.remove(member)
        return HeartbeatResponse(member.member_id, beat.epoch, revision=self.agreement)

    def _update(self, member: ConsumerMember, beat: Heartbeat) -> bool:
        """Store what the heartbeat says about the member. True if its subscription changed."""
        before = (
            member.rack_id,
            member.rebalance_timeout,
            member.assignor,
            member.client_id,
            member.client_host,
            member.classic,
        )
        changed = False
        if beat.names is not None and beat.names != member.names:
            member.names, changed = beat.names, True
        if beat.regex is not None and beat.regex != member.regex:
            member.regex, changed = beat.regex, True
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout is not None:
            member.rebalance_timeout = beat.rebalance_timeout
        if beat.assignor is not None:
            member.assignor = beat.assignor
        member.client_id, member.client_host, member.classic = beat.client_id, beat.client_host, None
        member.join_deadline = member.sync_deadline = inf
        if changed or before != (
            member.rack_id,
            member.rebalance_timeout,
            member.assignor,
            member.client_id,
            member.client_host,
            member.classic,
        ):
            self.touch(member)
        return changed

    # Members

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that sent a request."""
        if instance_id is None:
            member = self.members.get(member_id)
            if member is None:
                raise RequestRefused(
                    UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.name}."
                )
            return member
        known = self.static.get(instance_id)
        if known is None:
            raise RequestRefused(UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known != member_id:
            raise RequestRefused(
                FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {known}.",
            )
        return self.members[known]

    def check_room(self, member_id: str, instance_id: str | None) -> None:
        is_known = member_id in self.members or (instance_id is not None and instance_id in self.static)
        if not is_known and len(self.members) >= self.max_size:
            raise RequestRefused(
                GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.max_size} members.",
            )

    def add(self, member: ConsumerMember) -> ConsumerMember:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        for partition in (*member.assigned, *member.revoking):
            self.owners[partition] = member.member_id
        self.touch(member)
        return member

    def replace(self, known: ConsumerMember, member_id: str) -> ConsumerMember:
        """Put a static member that returned with another id in its old place."""
        del self.members[known.member_id]
        return self.add(known.successor(member_id))

    def remove(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        self._release(member.assigned)
        self._release(member.revoking)
        self._look_up_subscriptions()
        self._bump()

    def _release(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.owners.pop(partition, None)

    # From the group's epoch to the target, and from there to the member

    def advance(
        self,
        member: ConsumerMember,
        owned: Collection[Partition] | None,
        now: float,
        *,
        subscription_changed: bool,
    ) -> None:
        """Bring the group up to date, and move the member one step towards its target."""
        if subscription_changed:
            self._look_up_subscriptions()
            self._bump()
        self.notice_topics()
        if not self.epoch:
            self._bump()  # epoch 0 means not being a member yet
        if self.epoch > self.target_epoch and now >= self._assign_at:
            self._assign(now)
        if member.is_at(self.target_epoch) and not subscription_changed:
            return
        had = member.assigned.keys() | member.revoking.keys()
        if member.reconcile(
            self.target_epoch,
            owned,
            self.subscriptions.topic_ids(member),
            lambda partition: partition not in self.owners,
            subscription_changed=subscription_changed,
        ):
            has = member.assigned.keys() | member.revoking.keys()
            self._release(had - has)
            for partition in has - had:
                self.owners[partition] = member.member_id
            revoking = member.state is MemberState.UNREVOKED and member.classic is None
            member.rebalance_deadline = now + member.rebalance_timeout if revoking else inf
            self.touch(member)

    def notice_topics(self) -> None:
        """Check whether subscribed topics were created, grown or deleted."""
        if self.subscriptions.is_outdated:
            before = self.subscriptions.existing
            self._look_up_subscriptions()
            if before != self.subscriptions.existing:
                self._bump()

    def restore_subscriptions(self) -> None:
        """Resolve subscriptions after members were taken over from elsewhere: they are not a change."""
        self._look_up_subscriptions()
        self.target_epoch = self.epoch

    def _look_up_subscriptions(self) -> None:
        self.subscriptions.look_up(self.members.values())

    def _bump(self) -> None:
        self.epoch += 1
        self.agreement += 1

    def _assign(self, now: float) -> None:
        """Compute a new target: which member should have what."""
        counts = dict(self.subscriptions.existing.values())
        ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}  # most members subscribe alike
        candidates = {}
        for member in self.members.values():
            subscription = (member.names, member.regex)
            if subscription not in ids:
                ids[subscription] = self.subscriptions.topic_ids(member)
            candidates[member.member_id] = Candidate(member.instance_id, ids[subscription], member.target)
        for member_id, target in ASSIGNORS[self.assignor](candidates, counts).items():
            self.members[member_id].target = target
        self.target_epoch = self.epoch
        # If very many members join at once, each would cause a new target for all. In a large group they
        # share targets.
        size = len(self.members) + sum(counts.values())
        self._assign_at = now + max(self.assignment_interval, (size - _LARGE) * _PAUSE, 0.0)
        self.agreement += 1

    def touch(self, member: ConsumerMember) -> None:
        self.agreement += 1
        member.revision = self.agreement

    # Time

    def tick(self, now: float) -> None:
        """Let time take effect: remove members that are silent, or that do not give up what they should."""
        for member in [m for m in self.members.values() if m.earliest_deadline() <= now]:
            self.remove(member)
        self.wake_at = min((m.earliest_deadline() for m in self.members.values()), default=inf)

    def start_sessions(self, now: float) -> None:
        """Start every member's session again, after a restart."""
        for member in self.members.values():
            session = self.session_timeout if member.classic is None else member.classic.session_timeout
            member.deadline = now + session
            self.wake(member)

    def wake(self, member: ConsumerMember) -> None:
        self.wake_at = min(self.wake_at, member.earliest_deadline())

    def kill(self) -> None:
        """Stop: the group is deleted or converted, or its broker stops."""
        self.is_dead = True
        self.wake_at = inf

    # Queries

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def may_be_forgotten(self) -> bool:
        return self.is_empty

    @property
    def has_only_classic_members(self) -> bool:
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    @property
    def state(self) -> ConsumerState:
        if self.is_dead:
            return ConsumerState.DEAD
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_at(self.target_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def assignor(self) -> str:
        """The one that most members ask for."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        return votes.most_common(1)[0][0] if votes else self.default_assignor

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members have subscribed to."""
        return frozenset(self.subscriptions.existing).union(
            *(member.names for member in self.members.values())
        )

    def topics_in_use(self) -> frozenset[str]:
        return self.subscribed_topics()

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
        """NONE if this member may commit offsets now, else an error code.

        ``by_epoch``: its request knows member epochs. A member that sends an earlier epoch may commit
        too, but only for partitions that it has had since then (``check_partition``).
        """
        if self.is_dead:
            return COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and not self.members:
            return NONE  # a consumer without group management, or an administrator
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return NONE
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER_ID
        if not transactional and member.classic is None and not by_epoch:
            return UNSUPPORTED_VERSION
        if epoch > member.epoch:
            return ILLEGAL_GENERATION if transactional else self._not_its_epoch(member)
        return NONE

    def check_partition(self, member_id: str, epoch: int, partition: Partition) -> int:
        """Error code if a commit that ``check_commit`` allowed is for a partition it did not have then."""
        member = self.members.get(member_id)
        if member is None or epoch == member.epoch:
            return NONE
        since = member.assignment_epoch(partition)
        return self._not_its_epoch(member) if since is None or epoch < since else NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> int:
        """NONE if this member may read the group's offsets, else an error code."""
        if member_id is None and epoch < 0:
            return NONE
        member = self.members.get(member_id or "")
        if member is None:
            return UNKNOWN_MEMBER_ID
        return NONE if epoch == member.epoch else self._not_its_epoch(member)

    def check_offset_delete(self) -> int:
        return NONE

    @staticmethod
    def _not_its_epoch(member: ConsumerMember) -> int:
        return STALE_MEMBER_EPOCH if member.classic is None else ILLEGAL_GENERATION
