"""The group coordinator: groups by name, their requests in and answers out, their time, their offsets.

The protocol itself is ``broker.group``; what is kept over a restart is in ``broker.catalogue``. This is what
stands between the two and the request handlers:

- A join or sync becomes a future that the group's answer is put into. Where the group agreed on something new
  (a generation got its assignment, a static member changed places, everybody left), it is written down before
  the answers leave, so that a broker that is killed and comes back neither forgets a generation that members
  work under nor counts one twice.
- ``tick`` lets time pass. A group is looked at when its earliest deadline comes, and a heartbeat only moves
  its member's deadline on, so neither costs more with more groups or members.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from millstream.broker import snapshot
from millstream.broker.catalogue import Catalogue
from millstream.broker.codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from millstream.broker.committed import CommittedOffset, OffsetToCommit
from millstream.broker.database import ignore_failure
from millstream.broker.group import Group, State
from millstream.broker.member import Join, Joined, Synced
from millstream.clock import Clock
from millstream.config import BrokerConfig
from millstream.errors import CatalogueFailed

_log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0  # seconds between looks for clients that hung up while they wait
_EXPIRE_EVERY = 60.0  # seconds between looks for offsets beyond their retention
_EXPIRE_AT_ONCE = 2000  # offsets looked at in one tick


class GroupCoordinator:
    """All groups of one broker. Lives on the server's loop."""

    def __init__(self, catalogue: Catalogue, config: BrokerConfig, clock: Clock) -> None:
        self._catalogue = catalogue
        self._config = config
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self._written: dict[str, int] = {}  # group -> its agreement that is in the catalogue or on its way
        self._scheduled: dict[str, float] = {}  # group -> when it is looked at next
        self._due: list[tuple[float, int, Group]] = []  # a heap; entries that are not in _scheduled are stale
        self._order = itertools.count()
        self._expire_at = clock.monotonic() + _EXPIRE_EVERY
        self._to_expire: list[str] = []  # groups still to be looked at in this round
        self._joining: dict[asyncio.Future[Joined], tuple[Group, Callable[[], bool]]] = {}  # that wait
        self._look_at = 0.0
        self._closed = False
        for name, text in catalogue.group_states.items():
            group = self._create(name)
            snapshot.restore(group, text, clock.monotonic())
            self._schedule(group)

    def set_config(self, config: BrokerConfig) -> None:
        """Settings were changed while running."""
        self._config = config
        for group in self._groups.values():
            group.initial_delay = config.group_initial_rebalance_delay_ms / 1000
            group.max_size = config.group_max_size

    def group(self, name: str) -> Group | None:
        """The group of this name, if it is known here: it has members, agreed on something or has offsets,
        be they pending in a transaction."""
        group = self._groups.get(name)
        if group is None and (
            self._catalogue.offsets_of(name) or self._catalogue.decisions.has_pending(name)
        ):
            group = self._create(name)
        return group

    def groups(self) -> list[Group]:
        names = dict.fromkeys([*self._groups, *self._catalogue.groups_with_offsets()])
        return [group for name in names if (group := self.group(name)) is not None]

    # The classic protocol

    def join(self, name: str, join: Join, is_gone: Callable[[], bool] = bool) -> asyncio.Future[Joined]:
        """The answer to a join, when there is one. While it waits, ``is_gone`` is asked now and then."""
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
        elif group is None and join.member_id:
            waiter.set_result(Joined(UNKNOWN_MEMBER_ID, join.member_id))
        else:
            group = group or self._create(name)
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
        else:
            now = self._clock.monotonic()
            group.sync(member_id, instance_id, generation, protocol_type, protocol, assignments, waiter, now)
            self._after(group)
        return waiter

    def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> int:
        group = self._groups.get(name)
        if group is None:
            return UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID
        return group.heartbeat(member_id, instance_id, generation, self._clock.monotonic())

    def leave(self, name: str, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        """An error code for each of the members (id, instance id)."""
        group = self.group(name)
        if group is None:
            return [UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID] * len(leaving)
        errors = group.leave(leaving, self._clock.monotonic())
        self._after(group)
        return errors

    async def delete(self, name: str) -> int:
        """Delete a group that has no members, with its offsets."""
        group = self.group(name)
        if group is None:
            return GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return NON_EMPTY_GROUP
        # Out of sight first: who joins from now on joins a new group, written after this one is gone.
        group.kill()
        self._drop(group)
        try:
            await self._catalogue.delete_group(name)
        except CatalogueFailed:
            if name not in self._groups and name in self._catalogue.group_states:
                again = self._create(name)
                snapshot.restore(again, self._catalogue.group_states[name], self._clock.monotonic())
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
        knows_no_group: bool = False,
    ) -> int:
        """Whether this member of the group may commit offsets now, at once or with its transaction.
        ``knows_no_group``: the client understands that there is no such group."""
        if transactional and not name:
            return INVALID_GROUP_ID
        group = self.group(name)
        if group is None:
            if generation >= 0:
                return GROUP_ID_NOT_FOUND if knows_no_group else ILLEGAL_GENERATION
            group = self._create(name)  # a consumer without group management, or an administrator
        now = self._clock.monotonic()
        return group.check_commit(member_id, instance_id, generation, now, transactional=transactional)

    async def commit(self, name: str, commits: Iterable[OffsetToCommit]) -> int:
        """Write offsets down; an error code."""
        try:
            await self._catalogue.commit_offsets(name, commits)
        except CatalogueFailed:
            return COORDINATOR_NOT_AVAILABLE  # clients try again
        return NONE

    def offsets(self, name: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._catalogue.offsets_of(name)

    def check_offset_delete(self, name: str, topics: Iterable[str]) -> tuple[int, set[str]]:
        """Whether offsets of this group may be deleted: an error code, and the topics that members read."""
        group = self.group(name)
        if group is None:
            return GROUP_ID_NOT_FOUND, set()
        if group.state is State.EMPTY:
            return NONE, set()
        if group.protocol_type != "consumer":
            return NON_EMPTY_GROUP, set()
        subscribed = group.subscribed_topics()
        return NONE, {topic for topic in topics if subscribed is None or topic in subscribed}

    async def delete_offsets(
        self, name: str, partitions: Iterable[tuple[str, int]]
    ) -> tuple[int, Mapping[str, int]]:
        """Delete offsets; an error code for all, and one for each topic that is not to be touched."""
        chosen = list(partitions)
        error, subscribed = self.check_offset_delete(name, {topic for topic, _ in chosen})
        if not error:
            try:
                await self._catalogue.delete_offsets(name, [p for p in chosen if p[0] not in subscribed])
            except CatalogueFailed:
                error = COORDINATOR_NOT_AVAILABLE
        return error, dict.fromkeys(subscribed, GROUP_SUBSCRIBED_TO_TOPIC)

    def _expire_some_offsets(self) -> None:
        """Forget offsets beyond their retention, and groups of which nothing is left; a bounded part of all
        groups at a time, so that nobody waits for it."""
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
                and group.state is State.EMPTY
                and not group.pending
                and not self._catalogue.decisions.has_pending(group.name)
            ):
                group.kill()
                self._drop(group)
                ignore_failure(self._catalogue.forget_group(group.name))

    def _expired(
        self, group: Group, offsets: Mapping[str, Mapping[int, CommittedOffset]]
    ) -> list[tuple[str, int, int]]:
        in_use: frozenset[str] | None = frozenset()
        if group.state is State.STABLE:
            in_use = group.subscribed_topics()
        if group.state not in (State.EMPTY, State.STABLE) or in_use is None:
            return []  # not to be told what members work on
        now_ms = self._clock.now_ms()
        # Counted from when the last member left, or from a later commit by an administrator. A group that
        # never had members, and a topic that members do not read any more, count from the commit.
        oldest_ms = now_ms - self._config.offsets_retention_minutes * 60_000
        empty_since_ms = group.empty_since_ms if group.state is State.EMPTY else -1
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
        """Let time take effect in the groups whose time has come. Cheap where there are none."""
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
        """The broker stops: whoever waits is told to look for a coordinator again.

        The catalogue keeps what the groups agreed on, and a broker started on it goes on with them.
        """
        if self._closed:
            return
        self._closed = True
        for group in self._groups.values():
            group.kill()
            self._deliver(group.take_answers())

    # Between group, catalogue and those who wait

    def _create(self, name: str) -> Group:
        group = self._groups[name] = Group(
            name,
            initial_delay=self._config.group_initial_rebalance_delay_ms / 1000,
            max_size=self._config.group_max_size,
        )
        return group

    def _drop(self, group: Group) -> None:
        self._groups.pop(group.name, None)
        self._written.pop(group.name, None)
        self._scheduled.pop(group.name, None)

    def _after(self, group: Group) -> None:
        """After anything that may have changed a group: write down what it agreed on, send its answers."""
        answers = group.take_answers()
        self._schedule(group)
        if group.agreement == self._written.get(group.name, 0):
            self._deliver(answers)
            return
        self._written[group.name] = group.agreement
        group.empty_since_ms = self._clock.now_ms() if group.state is State.EMPTY else -1
        try:
            writing = self._catalogue.set_group_state(group.name, snapshot.to_text(group))
        except CatalogueFailed:
            self._deliver(answers)
            return

        def written(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                # The group works on from memory; the next generation is written again.
                _log.warning("group %s: generation %d is not kept: %s", group.name, group.generation, error)
            self._deliver(answers)

        writing.add_done_callback(written)

    def _schedule(self, group: Group) -> None:
        if group.wake_at < self._scheduled.get(group.name, inf):
            self._scheduled[group.name] = group.wake_at
            heapq.heappush(self._due, (group.wake_at, next(self._order), group))

    def _deliver(self, answers: Sequence[tuple[Any, Joined | Synced]]) -> None:
        for waiter, answer in answers:
            if not waiter.done():
                waiter.set_result(answer)
