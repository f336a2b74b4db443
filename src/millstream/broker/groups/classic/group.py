"""The classic group protocol: how members agree who reads what. A state machine without I/O.

Rules
-----
1. Everything that changes a group's state is a method of ``ClassicGroup``. Time comes in as ``now``
   (monotonic seconds), and nothing is sent from here.
2. A join or a sync comes with a *waiter*, an opaque token. Its one response appears in ``answers``, at
   once or later. The caller takes the responses after every call. Every waiter is answered exactly once,
   whatever happens to its member.
3. ``state`` changes only along ``TRANSITIONS``.
4. An assignment is given only to members of the generation it was made for.

Theory
------
A group goes through *generations*. In each generation all members join. One of them, the leader, is told
about all members and sends an assignment for each with its sync. Every member gets its own part as the
response to its sync. Any change to the members, or to what a member supports, starts the next
generation::

    EMPTY       no members; perhaps offsets
    PREPARING   waiting for all members to (re)join, at most the longest rebalance timeout among them;
                heartbeats are told REBALANCE_IN_PROGRESS. Members that have not joined by then are
                removed, except static ones, which keep their place until their session ends
    COMPLETING  all have joined, the generation is incremented, waiting for the leader's assignment; members
                that do not sync within the rebalance timeout are removed
    STABLE      every member has its assignment
    DEAD        deleted, or the broker stops

A new member without an id is first given one and told to join again with it (a *pending* member), so a
client that lost the response does not leave a ghost behind. The group waits for pending members too.

A *static* member (group.instance.id) that returns with a new member id takes the place of the old one,
which is fenced. If the group is stable and nothing changed for the others, there is no rebalance.

Whenever the group agrees on something new (members, generation, assignments), ``agreement`` is
incremented. The caller saves the group before it sends the responses, so a restarted broker continues
with the same group.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from millstream.broker.groups.classic.member import (
    NEW_MEMBER_JOIN_TIMEOUT,
    ClassicMember,
    JoinRequest,
    JoinResponse,
    SyncResponse,
)
from millstream.broker.groups.classic.roster import Roster
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NON_EMPTY_GROUP,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from millstream.wire.consumer_protocol import subscribed_topics


class ClassicState(enum.Enum):
    """The names that Kafka shows in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Mapping[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.PREPARING: frozenset({ClassicState.COMPLETING, ClassicState.EMPTY, ClassicState.DEAD}),
    ClassicState.COMPLETING: frozenset({ClassicState.STABLE, ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset(),
}


class ClassicGroup:
    """One group of the classic protocol."""

    kind = "classic"

    def __init__(self, name: str, *, initial_delay: float = 0.0, max_size: int = 2**31 - 1) -> None:
        self.name = name
        self.initial_delay = initial_delay  # seconds that a first generation waits for more members
        self.max_size = max_size
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None  # None: no member ever joined; only offsets are kept
        self.protocol: str | None = None
        self.leader: str | None = None
        self._roster = Roster()
        self.members = self._roster.by_id
        self.pending: dict[str, float] = {}  # ids given out and not used yet, with their expiry
        self.agreement = 0
        self.empty_since_ms = -1  # wall time; maintained by the caller, for the retention of offsets
        self.answers: list[tuple[Any, JoinResponse | SyncResponse]] = []
        self.wake_at = inf  # no deadline is earlier than this; ``tick`` need not be called before

        self._joining = 0  # members whose join waits
        self._unsynced: set[str] = set()  # members of this generation that have not sent a sync
        self._join_deadline = inf
        self._sync_deadline = inf
        self._initial = False  # this is the first generation after being empty
        self._grew = False  # a new member came while the first generation waits
        self._initial_left = 0.0  # seconds by which that wait may still be extended

    # Joining

    def join(self, join: JoinRequest, waiter: Any, now: float) -> None:
        member_id = join.member_id
        if self.state is ClassicState.DEAD:
            self._refuse_join(waiter, COORDINATOR_NOT_AVAILABLE, member_id)
        elif not self._has_room_for(member_id):
            if member_id in self.members:
                self._remove(member_id)
                self._complete_join_if_all_joined(now)
            self.pending.pop(member_id, None)
            self._refuse_join(waiter, GROUP_MAX_SIZE_REACHED, "")
        elif not self._has_a_protocol_of(join):
            self._refuse_join(waiter, INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._join_unnamed(join, waiter, now)
        elif member_id in self.pending and join.instance_id is None:
            self._add(member_id, join, waiter, now)
        elif error := self._roster.check(member_id, join.instance_id):
            self._refuse_join(waiter, error, member_id)
        else:
            self._rejoin(self.members[member_id], join, waiter, now)

    def _join_unnamed(self, join: JoinRequest, waiter: Any, now: float) -> None:
        member_id = f"{join.instance_id or join.client_id}-{uuid.uuid4()}"
        if join.instance_id is not None:
            known = self._roster.static(join.instance_id)
            if known is not None:
                self._replace_static(known, member_id, join, waiter, now)
            else:
                self._add(member_id, join, waiter, now)
        elif join.id_required:
            self.pending[member_id] = now + join.session_timeout
            self._wake(now + join.session_timeout)
            self._refuse_join(waiter, MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(member_id, join, waiter, now)

    def _add(self, member_id: str, join: JoinRequest, waiter: Any, now: float) -> None:
        self.pending.pop(member_id, None)
        member = ClassicMember(member_id, join, deadline=now + NEW_MEMBER_JOIN_TIMEOUT)
        if not self.members:
            self.protocol_type = join.protocol_type
        self._roster.add(member)
        if self.leader is None:
            self.leader = member_id
        self._wait_to_join(member, waiter)
        self._wake(member.deadline)
        if self.state is ClassicState.PREPARING:
            self._grew = True
            self._complete_join_if_all_joined(now)
        else:
            self._prepare(now)

    def _rejoin(self, member: ClassicMember, join: JoinRequest, waiter: Any, now: float) -> None:
        if self.state is ClassicState.PREPARING:
            self._roster.update(member, join)
            self._wait_to_join(member, waiter)
            self._complete_join_if_all_joined(now)
        elif member.protocols == join.protocols and (
            self.state is ClassicState.COMPLETING or member.member_id != self.leader
        ):
            # The member lost the response to its last join, or asks again although nothing changed for
            # it, so it gets the same response. (If the leader of a stable group joins again, it knows of
            # a change that its metadata does not show, such as more partitions: that is a rebalance.)
            member.deadline = now + member.session_timeout
            self.answers.append((waiter, self._joined(member)))
        else:
            self._roster.update(member, join)
            self._wait_to_join(member, waiter)
            self._prepare(now)

    def _replace_static(self, old_id: str, new_id: str, join: JoinRequest, waiter: Any, now: float) -> None:
        """Put a static member that returned with another member id in its old place."""
        old = self._roster.remove(old_id)
        self._answer_join(old, JoinResponse(FENCED_INSTANCE_ID, old_id))
        self._answer_sync(old, SyncResponse(FENCED_INSTANCE_ID))
        member = ClassicMember(new_id, join, deadline=now + join.session_timeout)
        member.assignment = old.assignment
        member.is_new = old.is_new
        self._roster.add(member)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        known_leader = self.leader
        if self.leader == old_id:
            self.leader = new_id
        self._wake(member.deadline)

        if self.state is ClassicState.PREPARING:
            self._wait_to_join(member, waiter)
            self._complete_join_if_all_joined(now)
        elif self.state is ClassicState.STABLE and self._same_for_the_others(old, member):
            self.agreement += 1
            if not join.can_skip_assignment:
                # If it is told that another member leads, it does not try to assign.
                self.answers.append(
                    (waiter, self._joined(member)._replace(leader=known_leader or "", members=()))
                )
            else:
                self.answers.append(
                    (waiter, self._joined(member)._replace(skip_assignment=self.leader == new_id))
                )
        else:
            # In COMPLETING the leader may be assigning to the old id, which no member answers to any
            # more.
            self._wait_to_join(member, waiter)
            self._prepare(now)

    def _same_for_the_others(self, old: ClassicMember, member: ClassicMember) -> bool:
        if self._roster.select_protocol() != self.protocol:
            return False
        if self.protocol_type != "consumer":
            return True
        before, after = old.metadata(self.protocol), member.metadata(self.protocol)
        return before == after or subscribed_topics(before) == subscribed_topics(after)

    def _wait_to_join(self, member: ClassicMember, waiter: Any) -> None:
        # If the same member has an earlier join, it no longer waits for that response.
        self._answer_join(member, JoinResponse(REBALANCE_IN_PROGRESS, member.member_id))
        member.joining = waiter
        self._joining += 1

    # Syncing

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        waiter: Any,
        now: float,
    ) -> None:
        error = self._check_generation(member_id, instance_id, generation)
        if not error and (
            protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol)
        ):
            error = INCONSISTENT_GROUP_PROTOCOL
        if not error and self.state is ClassicState.PREPARING:
            error = REBALANCE_IN_PROGRESS
        if error:
            self.answers.append((waiter, SyncResponse(error)))
            return
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        self._unsynced.discard(member_id)
        self._answer_sync(member, SyncResponse(REBALANCE_IN_PROGRESS))
        member.syncing = waiter
        if self.state is ClassicState.COMPLETING and member_id == self.leader:
            for each in self.members.values():
                each.assignment = bytes(assignments.get(each.member_id, b""))
            self._transition(ClassicState.STABLE)
            self.agreement += 1
        if self.state is ClassicState.STABLE:
            for each in self.members.values():
                if each.syncing is not None:
                    each.deadline = now + each.session_timeout
                    self._answer_sync(
                        each, SyncResponse(0, self.protocol_type, self.protocol, each.assignment)
                    )
        if not self._unsynced:
            self._sync_deadline = inf

    # Staying and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> int:
        """Hot: every member sends one every few seconds."""
        member = self.members.get(member_id)
        if member is None or instance_id is not None or generation != self.generation:
            error = self._check_generation(member_id, instance_id, generation)
            if error or member is None:
                return error
        member.deadline = now + member.session_timeout
        return REBALANCE_IN_PROGRESS if self.state is ClassicState.PREPARING else 0

    def leave(self, leaving: Iterable[tuple[str, str | None]], now: float) -> list[int]:
        """Remove members (id, instance id), which leave or are removed by instance id alone.

        Returns an error code for each.
        """
        errors = []
        for member_id, instance_id in leaving:
            if self.state is ClassicState.DEAD:
                errors.append(COORDINATOR_NOT_AVAILABLE)
                continue
            if not member_id and instance_id is not None:
                member_id = self._roster.static(instance_id) or ""
            if member_id in self.pending:
                del self.pending[member_id]
                errors.append(0)
                continue
            error = self._roster.check(member_id, instance_id)
            if not error:
                self._remove(member_id)
            errors.append(error)
        if 0 in errors:
            self._after_removal(now)
        return errors

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        *,
        transactional: bool = False,
        by_epoch: bool = False,
    ) -> int:
        """0 if this member may commit offsets now, else an error code. A commit keeps its session alive.

        A transaction that names no member (clients before KIP-447) is fenced by its producer's epoch
        instead.
        """
        if self.state is ClassicState.DEAD:
            return COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is ClassicState.EMPTY:
            return 0  # a consumer without group management, or an administrator
        if generation < 0 and not member_id and instance_id is None:
            # A client outside the group must not overwrite the members' offsets.
            return 0 if transactional else UNKNOWN_MEMBER_ID
        error = self._check_generation(member_id, instance_id, generation)
        if error:
            return error
        if self.state is ClassicState.COMPLETING and not transactional:
            return REBALANCE_IN_PROGRESS
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        return 0

    def check_partition(self, member_id: str, generation: int, partition: tuple[bytes, int]) -> int:
        return NONE  # a member that may commit may do so for any partition

    def check_fetch(self, member_id: str | None, generation: int) -> int:
        return NONE

    def check_offset_delete(self) -> int:
        return NONE if self.is_empty or self.protocol_type == "consumer" else NON_EMPTY_GROUP

    def abandon(self, waiter: Any, now: float) -> None:
        """The client of a waiting join is gone.

        A member that was never part of a generation is removed, because it would only hold up the others.
        Any other member may come back within its session.
        """
        for member in self.members.values():
            if member.joining is waiter and member.is_new:
                self._remove(member.member_id)
                self._after_removal(now)
                return

    def send_back(self) -> None:
        """Stop: the group is converted to another protocol. All waiting members have to join again."""
        for member in self.members.values():
            self._answer_join(member, JoinResponse(REBALANCE_IN_PROGRESS, member.member_id))
            self._answer_sync(member, SyncResponse(REBALANCE_IN_PROGRESS))
        self.kill()

    def kill(self) -> None:
        """Stop: the group is deleted, or its broker stops. Waiting members look for a coordinator again."""
        for member in self.members.values():
            self._answer_join(member, JoinResponse(COORDINATOR_NOT_AVAILABLE, member.member_id))
            self._answer_sync(member, SyncResponse(COORDINATOR_NOT_AVAILABLE))
        self._transition(ClassicState.DEAD)
        self.wake_at = inf

    def restore(
        self,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        leader: str | None,
        members: Iterable[ClassicMember],
    ) -> None:
        """Restore what the group last agreed on before its broker was restarted."""
        self.generation, self.protocol_type, self.protocol = generation, protocol_type, protocol
        self.leader = leader
        for member in members:
            member.is_new = False
            self._roster.add(member)
            self._wake(member.deadline)
        if self.members:
            self.state = ClassicState.STABLE

    def adopt(
        self, generation: int, protocol_type: str, members: Sequence[ClassicMember], now: float
    ) -> None:
        """Take over the members of a group of another protocol, and have them join again."""
        self.restore(generation, protocol_type, None, members[0].member_id, members)
        self.protocol = self._roster.select_protocol()
        self.agreement += 1
        self._prepare(now)

    # Time

    def tick(self, now: float) -> None:
        """Let time take effect. Between two ticks nothing expires."""
        if self.state is ClassicState.DEAD:
            return
        for member_id in [m for m, deadline in self.pending.items() if deadline <= now]:
            del self.pending[member_id]
            self._complete_join_if_all_joined(now)
        expired = [m for m in self.members.values() if m.deadline <= now]
        removed = False
        for member in expired:
            if not member.is_new and (member.joining is not None or member.syncing is not None):
                member.deadline = now + member.session_timeout  # it waits for a response, so silence is fine
            else:
                self._remove(member.member_id)
                removed = True
        if removed:
            self._after_removal(now)
        if self._join_deadline <= now:
            self._join_time_is_over(now)
        if self._sync_deadline <= now:
            for member_id in list(self._unsynced):
                self._remove(member_id)
            self._prepare(now)
        self.wake_at = min(
            self._join_deadline,
            self._sync_deadline,
            min((m.deadline for m in self.members.values()), default=inf),
            min(self.pending.values(), default=inf),
        )

    def _join_time_is_over(self, now: float) -> None:
        if self._initial and self._grew and self._initial_left > 0:
            self._grew = False
            self._join_deadline = now + min(self.initial_delay, self._initial_left)
            self._initial_left = max(self._initial_left - self.initial_delay, 0.0)
        else:
            self._complete_join(now)

    def _wake(self, deadline: float) -> None:
        if deadline < self.wake_at:
            self.wake_at = deadline

    # From one generation to the next

    def _prepare(self, now: float) -> None:
        """Start a rebalance."""
        for member in self.members.values():
            if self.state is ClassicState.COMPLETING:
                member.assignment = b""
            self._answer_sync(member, SyncResponse(REBALANCE_IN_PROGRESS))
        self._unsynced.clear()
        self._sync_deadline = inf
        self._initial = self.state is ClassicState.EMPTY
        self._transition(ClassicState.PREPARING)
        if self._initial and self.initial_delay > 0:
            self._grew = False
            self._join_deadline = now + self.initial_delay
            self._initial_left = max(self._rebalance_timeout() - self.initial_delay, 0.0)
        elif self._initial or self._all_joined():
            self._complete_join(now)
        else:
            self._join_deadline = now + self._rebalance_timeout()
        self._wake(self._join_deadline)

    def _all_joined(self) -> bool:
        return self._joining == len(self.members) and not self.pending

    def _complete_join_if_all_joined(self, now: float) -> None:
        if self.state is not ClassicState.PREPARING or not self._all_joined():
            return
        if not self._initial or not self.members:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """End the time to join: the next generation starts with the members that have joined."""
        self._join_deadline = inf
        for member in [m for m in self.members.values() if m.joining is None and m.instance_id is None]:
            self._remove(member.member_id)
        if self.members and not self._joining:
            # Only static members are left and none of them joined, so none could lead. Their sessions
            # will end.
            self._join_deadline = now + self._rebalance_timeout()
            self._wake(self._join_deadline)
            return
        self.generation += 1
        if not self.members:
            self.protocol = None
            self._transition(ClassicState.EMPTY)
            self.agreement += 1
            return
        if self.leader is None or self.members[self.leader].joining is None:
            self.leader = next(m.member_id for m in self.members.values() if m.joining is not None)
        self.protocol = self._roster.select_protocol()
        self._transition(ClassicState.COMPLETING)
        for member in self.members.values():
            self._answer_join(member, self._joined(member))
            member.deadline = now + member.session_timeout
            member.is_new = False
            self._wake(member.deadline)
        self._unsynced = set(self.members)
        self._sync_deadline = now + self._rebalance_timeout()
        self._wake(self._sync_deadline)

    def _after_removal(self, now: float) -> None:
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING):
            self._prepare(now)
        else:
            self._complete_join_if_all_joined(now)

    def _remove(self, member_id: str) -> None:
        member = self._roster.remove(member_id)
        self._answer_join(member, JoinResponse(UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncResponse(UNKNOWN_MEMBER_ID))
        self._unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def _transition(self, state: ClassicState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.name}: from {self.state} there is no transition to {state}")
        self.state = state

    # Queries

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> int:
        if self.state is ClassicState.DEAD:
            return COORDINATOR_NOT_AVAILABLE
        error = self._roster.check(member_id, instance_id)
        return error or (0 if generation == self.generation else ILLEGAL_GENERATION)

    def _has_room_for(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        if self.state is ClassicState.EMPTY:
            return True
        if self.state is ClassicState.PREPARING:
            # Count the members that wait, not all of them: if the limit was lowered, the last to come
            # back are turned away.
            return (member is not None and member.joining is not None) or self._joining < self.max_size
        return member is not None or len(self.members) < self.max_size

    def _has_a_protocol_of(self, join: JoinRequest) -> bool:
        if self.state is ClassicState.EMPTY:
            return bool(join.protocol_type) and bool(join.protocols)
        return join.protocol_type == self.protocol_type and self._roster.all_support_one_of(join)

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def may_be_forgotten(self) -> bool:
        return self.is_empty and not self.pending

    def _rebalance_timeout(self) -> float:
        return max((m.rebalance_timeout for m in self.members.values()), default=0.0)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members have subscribed to. None if that can't be known."""
        if not self.members:
            return frozenset()
        if self.protocol_type != "consumer":
            return None
        return self._roster.subscribed_topics(self.protocol)

    def topics_in_use(self) -> frozenset[str] | None:
        """The topics whose offsets do not expire. None while members join: they may subscribe to others."""
        return self.subscribed_topics() if self.state in (ClassicState.STABLE, ClassicState.EMPTY) else None

    # Responses

    def _joined(self, member: ClassicMember) -> JoinResponse:
        members: list[tuple[str, str | None, bytes]] = []
        if member.member_id == self.leader:
            members = [(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values()]
        return JoinResponse(
            0,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            members=members,
        )

    def _refuse_join(self, waiter: Any, error: int, member_id: str) -> None:
        self.answers.append((waiter, JoinResponse(error, member_id)))

    def _answer_join(self, member: ClassicMember, answer: JoinResponse) -> None:
        if member.joining is not None:
            self.answers.append((member.joining, answer))
            member.joining = None
            self._joining -= 1

    def _answer_sync(self, member: ClassicMember, answer: SyncResponse) -> None:
        if member.syncing is not None:
            self.answers.append((member.syncing, answer))
            member.syncing = None

    def take_answers(self) -> list[tuple[Any, JoinResponse | SyncResponse]]:
        """Take the responses that have accumulated since the last call, to be sent."""
        answers, self.answers = self.answers, []
        return answers
