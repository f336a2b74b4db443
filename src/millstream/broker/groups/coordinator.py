"""The group coordinator: connects groups to request handlers, time, the catalogue and their offsets.

The classic protocol itself is ``broker.groups.classic.group``; what survives a restart is in
``broker.catalogue.catalogue``. The coordinator sits between the two and the request handlers:

- A join or sync becomes a future, which the group's response resolves. When the group has agreed on
  something new (a generation got its assignment, a static member was replaced, all members left), this is
  written down before the responses leave. So a broker that is killed and restarted neither forgets a
  generation that members work in nor counts one twice.
- A group is either classic (``broker.groups.classic.group``) or of the consumer protocol
  (``broker.groups.consumer.group``), and may be converted while it runs
  (``broker.groups.consumer.migration``). A group of the consumer protocol can have members of both
  protocols.
- ``tick`` lets time pass. A group is looked at only when its earliest deadline has come, and a heartbeat
  only moves its member's deadline. So neither costs more with more groups or members.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.database import ignore_failure
from millstream.broker.groups.classic import snapshot
from millstream.broker.groups.classic.group import Group, State
from millstream.broker.groups.committed import CommittedOffset, OffsetToCommit
from millstream.broker.groups.consumer import classic_members as group848_classic
from millstream.broker.groups.consumer import snapshot as group848_snapshot
from millstream.broker.groups.consumer.group import JOIN, Beat, ConsumerGroup, Heartbeat
from millstream.broker.groups.consumer.keeper import Keeper
from millstream.broker.groups.consumer.migration import (
    DOWNGRADES,
    UPGRADES,
    downgrade,
    upgrade,
    wants_downgrade,
)
from millstream.broker.groups.member import Join, Joined, Synced
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig, GroupConfig, group_defaults, with_changes
from millstream.core.errors import CatalogueFailed, RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NON_EMPTY_GROUP,
    NONE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
)

_log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0  # seconds between looks for clients that hung up while waiting
_EXPIRE_EVERY = 60.0  # seconds between looks for offsets beyond their retention
_EXPIRE_AT_ONCE = 2000  # offsets checked in one tick

AnyGroup = Group | ConsumerGroup


class GroupCoordinator:
    """All groups of one broker. Lives on the server's loop."""

    def __init__(self, catalogue: Catalogue, config: BrokerConfig, clock: Clock) -> None:
        self._catalogue = catalogue
        self._config = config
        self._clock = clock
        self._groups: dict[str, AnyGroup] = {}
        self._keepers: dict[ConsumerGroup, Keeper] = {}
        self._written: dict[str, int] = {}  # group -> the agreement that is in the catalogue or being written
        self._scheduled: dict[str, float] = {}  # group -> when it is looked at next
        self._due: list[tuple[float, int, AnyGroup]] = []  # a heap; entries not in _scheduled are stale
        self._order = itertools.count()
        self._expire_at = clock.monotonic() + _EXPIRE_EVERY
        self._to_expire: list[str] = []  # groups that this round of expiry has not checked yet
        self._joining: dict[asyncio.Future[Joined], tuple[Group, Callable[[], bool]]] = {}  # joins that wait
        self._look_at = 0.0
        self._closed = False
        for name, text in catalogue.group_states.items():
            self._restore(name, text)

    def set_config(self, config: BrokerConfig) -> None:
        """Apply settings that were changed while the broker runs."""
        self._config = config
        for group in self._groups.values():
            self._configure(group)

    def config_of(self, name: str) -> GroupConfig:
        """A group's settings: its own on top of the broker's."""
        own = self._catalogue.group_overrides.get(name, {})
        return with_changes(group_defaults(self._config), own)

    def heartbeat_interval_ms(self, name: str) -> int:
        """The heartbeat interval for members of a group of the consumer protocol. Hot."""
        group = self._groups.get(name)
        return group.heartbeat_interval_ms if isinstance(group, ConsumerGroup) else 0

    def alter_group(self, name: str) -> None:
        """Apply changes to a group's own settings."""
        if (group := self._groups.get(name)) is not None:
            self._configure(group)

    def group(self, name: str) -> AnyGroup | None:
        """The group of this name, or None if it is unknown.

        A group is known if it has members, has agreed on something, or has offsets, including offsets
        that are pending in a transaction.
        """
        group = self._groups.get(name)
        if group is None and (
            self._catalogue.offsets_of(name) or self._catalogue.decisions.has_pending(name)
        ):
            group = self._create(name)
        return group

    def groups(self) -> list[AnyGroup]:
        names = dict.fromkeys([*self._groups, *self._catalogue.groups_with_offsets()])
        return [group for name in names if (group := self.group(name)) is not None]

    def is_reading(self, name: str, topic: str) -> bool:
        """True if the group has live members that may be reading this topic."""
        group = self._groups.get(name)
        if group is None or not group.members:
            return False
        subscribed = group.subscribed_topics()
        return subscribed is None or topic in subscribed

    # The classic protocol

    def join(self, name: str, join: Join, is_gone: Callable[[], bool] = bool) -> asyncio.Future[Joined]:
        """A future of the response to a join. While it waits, ``is_gone`` is called now and then."""
        waiter: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        shortest, longest = (
            self._config.group_min_session_timeout_ms,
            self._config.group_max_session_timeout_ms,
        )
        group = self.group(name)
        if not name:
            waiter.set_result(Joined(INVALID_GROUP_ID, join.member_id))
        elif self._closed:
            waiter.set_result(Joined(COORDINATOR_NOT_AVAILABLE, join.member_id))
        elif not shortest / 1000 <= join.session_timeout <= longest / 1000:
            waiter.set_result(Joined(INVALID_SESSION_TIMEOUT, join.member_id))
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            joined = group848_classic.join(group, self._catalogue, join, self._clock.monotonic())
            return self._answer(group, joined, group.agreement)
        elif (group is None or isinstance(group, ConsumerGroup)) and join.member_id:
            waiter.set_result(Joined(UNKNOWN_MEMBER_ID, join.member_id))
        else:
            if not isinstance(group, Group):
                group = self._create(name, 0 if group is None else group.epoch)
            group.join(join, waiter, self._clock.monotonic())
            self._after(group)
            if not waiter.done():
                self._joining[waiter] = (group, is_gone)
        return waiter

    def _abandon_joins_of_the_gone(self) -> None:
        for waiter, (group, is_gone) in list(self._joining.items()):
            if not waiter.done() and is_gone():
                waiter.cancel()
                group.abandon(waiter, self._clock.monotonic())
                self._after(group)
            if waiter.done():
                del self._joining[waiter]

    def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> asyncio.Future[Synced]:
        waiter: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        group = self.group(name)
        if not name or group is None:
            waiter.set_result(Synced(UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID))
        elif isinstance(group, ConsumerGroup):
            now = self._clock.monotonic()
            synced = group848_classic.sync(
                group, self._catalogue, member_id, instance_id, generation, protocol_type, protocol, now
            )
            return self._answer(group, synced, group.agreement)
        else:
            now = self._clock.monotonic()
            group.sync(member_id, instance_id, generation, protocol_type, protocol, assignments, waiter, now)
            self._after(group)
        return waiter

    def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> int:
        group = self._groups.get(name)
        if group is None:
            return UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID
        if isinstance(group, ConsumerGroup):
            now = self._clock.monotonic()
            error = group848_classic.heartbeat(group, member_id, instance_id, generation, now)
            self._after(group)
            return error
        return group.heartbeat(member_id, instance_id, generation, self._clock.monotonic())

    def leave(self, name: str, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        """Remove members (id, instance id). Returns an error code for each."""
        group = self.group(name)
        if group is None:
            return [UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID] * len(leaving)
        if isinstance(group, ConsumerGroup):
            errors = group848_classic.leave(group, leaving)
        else:
            errors = group.leave(leaving, self._clock.monotonic())
        self._after(group)
        return errors

    # The consumer protocol

    def consumer_heartbeat(self, name: str, beat: Heartbeat) -> Beat | asyncio.Future[Beat]:
        """The response to a ConsumerGroupHeartbeat. Raises RequestRefused."""
        if self._closed:
            raise RequestRefused(COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        group = self._groups.get(name)
        if not isinstance(group, ConsumerGroup):
            return self._first_heartbeat(name, beat)
        agreed = group.agreement
        answer = group.heartbeat(beat, self._clock.monotonic())
        if group.agreement == agreed and self._keepers[group].covers(answer.revision):
            self._schedule(group)
            return answer
        return self._answer(group, answer, answer.revision)

    def _first_heartbeat(self, name: str, beat: Heartbeat) -> asyncio.Future[Beat]:
        """Handle a group's first heartbeat of this protocol. A join creates or upgrades the group."""
        classic = self.group(name)
        if classic is None and beat.epoch != JOIN:
            raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} not found.")
        group = self._upgraded(name, classic if isinstance(classic, Group) else None, beat)
        answer = group.heartbeat(beat, self._clock.monotonic())  # if refused, nothing has changed here
        self._adopt(group)
        if isinstance(classic, Group):
            classic.send_back()
            self._deliver(classic.take_answers())
            self._drop(classic)
        self._groups[name] = group
        return self._answer(group, answer, answer.revision)

    def _upgraded(self, name: str, classic: Group | None, beat: Heartbeat) -> ConsumerGroup:
        group: ConsumerGroup | None
        if classic is None or classic.is_empty:
            if beat.epoch != JOIN:
                raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
            group = ConsumerGroup(name, self._catalogue, epoch=0 if classic is None else classic.generation)
        else:
            group = None
            if (
                beat.epoch == JOIN
                and classic.protocol_type == "consumer"
                and self._config.group_consumer_migration_policy in UPGRADES
                and len(classic.members) <= self._config.group_consumer_max_size
            ):
                group = upgrade(classic, self._catalogue)
            if group is None:
                raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
            _log.info("group %s: changes over to the consumer protocol", name)
        self._configure(group)
        return group

    def _downgrade(self, group: ConsumerGroup) -> None:
        if (
            self._config.group_consumer_migration_policy not in DOWNGRADES
            or len(group.members) > self._config.group_max_size
        ):
            return
        _log.info("group %s: changes over to the classic protocol", group.name)
        group.kill()
        self._drop(group)
        classic = self._create(group.name)
        downgrade(group, self._catalogue, classic, self._clock.monotonic())
        self._after(classic)

    async def delete(self, name: str) -> int:
        """Delete a group that has no members, with its offsets."""
        group = self.group(name)
        if group is None:
            return GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return NON_EMPTY_GROUP
        # Out of sight first: a member that joins from now on joins a new group, written after this one is
        # deleted.
        group.kill()
        self._drop(group)
        try:
            await self._catalogue.delete_group(name)
        except CatalogueFailed:
            if name not in self._groups and name in self._catalogue.group_states:
                self._restore(name, self._catalogue.group_states[name])
            return COORDINATOR_NOT_AVAILABLE
        return NONE

    # Offsets

    def check_commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        by_epoch: bool = False,
    ) -> int:
        """NONE if this member may commit offsets, now or with its transaction; else an error code.

        ``by_epoch``: the client knows the consumer protocol and the error for a group that does not
        exist.
        """
        if transactional and not name:
            return INVALID_GROUP_ID
        group = self.group(name)
        if group is None:
            if generation >= 0:
                return GROUP_ID_NOT_FOUND if by_epoch else ILLEGAL_GENERATION
            group = self._create(name)  # a consumer without group management, or an administrator
        now = self._clock.monotonic()
        if isinstance(group, ConsumerGroup):
            error = group.check_commit(
                member_id, instance_id, generation, transactional=transactional, by_epoch=by_epoch
            )
            return ILLEGAL_GENERATION if transactional and error == STALE_MEMBER_EPOCH else error
        return group.check_commit(member_id, instance_id, generation, now, transactional=transactional)

    def check_partition(self, name: str, member_id: str, epoch: int, topic: str, partition: int) -> int:
        """NONE if a commit that ``check_commit`` allowed may include this partition; else an error code."""
        group = self._groups.get(name)
        if isinstance(group, ConsumerGroup) and (known := self._catalogue.topics.get(topic)) is not None:
            return group.stale(member_id, epoch, (known.id.bytes, partition))
        return NONE

    def check_fetch(self, name: str, member_id: str | None, epoch: int) -> int:
        """NONE if this member may read the group's offsets; else an error code."""
        group = self._groups.get(name)
        return group.check_fetch(member_id, epoch) if isinstance(group, ConsumerGroup) else NONE

    async def commit(self, name: str, commits: Iterable[OffsetToCommit]) -> int:
        """Write offsets to the catalogue. Returns an error code."""
        try:
            await self._catalogue.commit_offsets(name, commits)
        except CatalogueFailed:
            return COORDINATOR_NOT_AVAILABLE  # clients retry
        return NONE

    def offsets(self, name: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._catalogue.offsets_of(name)

    def check_offset_delete(self, name: str, topics: Iterable[str]) -> tuple[int, set[str]]:
        """An error code, NONE if offsets may be deleted; and which of the topics members still read."""
        group = self.group(name)
        if group is None:
            return GROUP_ID_NOT_FOUND, set()
        if group.is_empty:
            return NONE, set()
        if group.protocol_type != "consumer":
            return NON_EMPTY_GROUP, set()
        subscribed = group.subscribed_topics()
        return NONE, {topic for topic in topics if subscribed is None or topic in subscribed}

    async def delete_offsets(
        self, name: str, partitions: Iterable[tuple[str, int]]
    ) -> tuple[int, Mapping[str, int]]:
        """Delete offsets. Returns an error code for all, and one for each topic that must not be touched."""
        chosen = list(partitions)
        error, subscribed = self.check_offset_delete(name, {topic for topic, _ in chosen})
        if not error:
            try:
                await self._catalogue.delete_offsets(name, [p for p in chosen if p[0] not in subscribed])
            except CatalogueFailed:
                error = COORDINATOR_NOT_AVAILABLE
        return error, dict.fromkeys(subscribed, GROUP_SUBSCRIBED_TO_TOPIC)

    def _expire_some_offsets(self) -> None:
        """Delete offsets beyond their retention, and groups that have nothing left.

        Only a bounded number is checked per call, so that no request waits for it.
        """
        looked_at = 0
        while self._to_expire and looked_at < _EXPIRE_AT_ONCE:
            group = self.group(self._to_expire.pop())
            if group is None:
                continue
            offsets = self._catalogue.offsets_of(group.name)
            looked_at += 1 + sum(map(len, offsets.values()))
            expired = self._expired(group, offsets)
            if expired:
                _log.info("group %s: %d offsets are beyond their retention", group.name, len(expired))
                ignore_failure(self._catalogue.expire_offsets(group.name, expired))
            elif (
                not offsets
                and group.is_empty
                and not (isinstance(group, Group) and group.pending)
                and not self._catalogue.decisions.has_pending(group.name)
            ):
                group.kill()
                self._drop(group)
                ignore_failure(self._catalogue.forget_group(group.name))

    def _expired(
        self, group: AnyGroup, offsets: Mapping[str, Mapping[int, CommittedOffset]]
    ) -> list[tuple[str, int, int]]:
        in_use: frozenset[str] | None = frozenset()
        if isinstance(group, ConsumerGroup) or group.state is State.STABLE:
            in_use = group.subscribed_topics()
        elif group.state is not State.EMPTY:
            in_use = None
        if in_use is None:
            return []  # it is not known which topics the members read
        now_ms = self._clock.now_ms()
        # Retention counts from when the last member left, or from a later commit by an administrator. For
        # a group that never had members, and for a topic that members no longer read, it counts from the
        # commit.
        oldest_ms = now_ms - self._config.offsets_retention_minutes * 60_000
        empty_since_ms = group.empty_since_ms if group.is_empty else -1
        return [
            (topic, partition, committed.commit_ms)
            for topic, partitions in offsets.items()
            if topic not in in_use
            for partition, committed in partitions.items()
            if not self._catalogue.decisions.is_unstable(group.name, topic, partition)
            and (
                max(committed.commit_ms, empty_since_ms) <= oldest_ms
                if committed.expire_ms < 0
                else committed.expire_ms <= now_ms
            )
        ]

    # Time

    def tick(self, now: float | None = None) -> None:
        """Let time take effect in the groups that are due. Cheap when there are none."""
        now = self._clock.monotonic() if now is None else now
        while self._due and self._due[0][0] <= now:
            at, _, group = heapq.heappop(self._due)
            if self._scheduled.get(group.name) == at and self._groups.get(group.name) is group:
                del self._scheduled[group.name]
                group.tick(now)
                self._after(group)
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            self._abandon_joins_of_the_gone()
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY
            self._to_expire = [group.name for group in self.groups()]
        if self._to_expire:
            self._expire_some_offsets()

    def close(self) -> None:
        """Shut down: waiting clients are told to look for a coordinator again.

        The catalogue keeps what the groups agreed on. A broker that is started on it continues with those
        groups.
        """
        if self._closed:
            return
        self._closed = True
        for group in self._groups.values():
            group.kill()
            if isinstance(group, Group):
                self._deliver(group.take_answers())
            else:
                self._keepers[group].close()

    # Between groups, the catalogue and waiting clients

    def _create(self, name: str, generation: int = 0) -> Group:
        if (before := self._groups.get(name)) is not None:
            before.kill()
            self._drop(before)
        group = self._groups[name] = Group(name)
        group.generation = generation
        self._configure(group)
        return group

    def _restore(self, name: str, text: str) -> None:
        fields, now = json.loads(text), self._clock.monotonic()
        if fields["kind"] == ConsumerGroup.kind:
            group = group848_snapshot.restored(name, fields, self._catalogue, now)
            self._configure(group)
            self._adopt(group, kept=group.agreement)
            for member in group.members.values():
                session = group.session_timeout if member.classic is None else member.classic.session_timeout
                member.deadline = now + session
                group.wake(member)
            self._groups[name] = group
            self._schedule(group)
        else:
            classic = self._create(name)
            snapshot.restore(classic, fields, now)
            self._schedule(classic)

    def _adopt(self, group: ConsumerGroup, *, kept: int = -1) -> None:
        def write() -> asyncio.Future[None]:
            group.empty_since_ms = self._clock.now_ms() if group.is_empty else -1
            return self._catalogue.set_group_state(group.name, group848_snapshot.to_text(group))

        self._keepers[group] = Keeper(group, write, kept=kept)

    def _configure(self, group: AnyGroup) -> None:
        if isinstance(group, Group):
            group.initial_delay = self._config.group_initial_rebalance_delay_ms / 1000
            group.max_size = self._config.group_max_size
            return
        own = self.config_of(group.name)
        group.session_timeout = own.consumer_session_timeout_ms / 1000
        group.heartbeat_interval_ms = own.consumer_heartbeat_interval_ms
        group.assignment_interval = own.consumer_assignment_interval_ms / 1000
        group.max_size = self._config.group_consumer_max_size
        group.default_assignor = self._config.group_consumer_assignors[0]

    def _drop(self, group: AnyGroup) -> None:
        self._groups.pop(group.name, None)
        self._written.pop(group.name, None)
        self._scheduled.pop(group.name, None)
        if isinstance(group, ConsumerGroup) and (keeper := self._keepers.pop(group, None)) is not None:
            keeper.settle()

    def _answer(self, group: ConsumerGroup, answer: Any, revision: int) -> asyncio.Future[Any]:
        """A future of the response to a request in the consumer protocol, done when it may be sent."""
        future = self._keepers[group].answer(answer, revision)
        self._after(group)
        return future

    def _after(self, group: AnyGroup) -> None:
        """Save what the group agreed on, and send its responses. Called after anything that may change it."""
        if isinstance(group, ConsumerGroup):
            self._schedule(group)
            self._keepers[group].keep()
            if wants_downgrade(group):
                self._downgrade(group)
        else:
            self._after_classic(group)

    def _after_classic(self, group: Group) -> None:
        answers = group.take_answers()
        self._schedule(group)
        if group.agreement == self._written.get(group.name, 0):
            self._deliver(answers)
            return
        self._written[group.name] = group.agreement
        group.empty_since_ms = self._clock.now_ms() if group.is_empty else -1
        try:
            writing = self._catalogue.set_group_state(group.name, snapshot.to_text(group))
        except CatalogueFailed:
            self._deliver(answers)
            return

        def written(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                # The group goes on from memory. Its next agreement is written again.
                _log.warning("group %s: generation %d is not kept: %s", group.name, group.generation, error)
            self._deliver(answers)

        writing.add_done_callback(written)

    def _schedule(self, group: AnyGroup) -> None:
        if group.wake_at < self._scheduled.get(group.name, inf):
            self._scheduled[group.name] = group.wake_at
            heapq.heappush(self._due, (group.wake_at, next(self._order), group))

    def _deliver(self, answers: Sequence[tuple[Any, Joined | Synced]]) -> None:
        for waiter, answer in answers:
            if not waiter.done():
                waiter.set_result(answer)
