"""Runs the classic groups: connects each to the catalogue, to time and to the clients that wait.

A join or sync becomes a future, which the group's response resolves. When a group has agreed on something new
(a generation got its assignment, a static member was replaced, all members left), this is saved before the
responses leave. So a broker that is killed and restarted neither forgets a generation that members work in
nor counts one twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.broker.groups.classic import snapshot
from millstream.broker.groups.classic.group import ClassicGroup
from millstream.broker.groups.classic.member import JoinRequest, JoinResponse, SyncResponse
from millstream.broker.groups.directory import GroupDirectory
from millstream.broker.groups.settings import GroupSettings
from millstream.core.clock import Clock
from millstream.core.errors import CatalogueFailed
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NONE,
    UNKNOWN_MEMBER_ID,
)

_log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0  # seconds between looks for clients that hung up while waiting


class ClassicCoordinator:
    """All classic groups of one broker."""

    kind = ClassicGroup.kind

    def __init__(self, directory: GroupDirectory, settings: GroupSettings, clock: Clock) -> None:
        self.groups: dict[str, ClassicGroup] = {}  # only read from outside
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._saved: dict[str, int] = {}  # the agreement of each group that is saved or being saved
        self._joining: dict[asyncio.Future[JoinResponse], tuple[ClassicGroup, Callable[[], bool]]] = {}
        self._look_at = 0.0
        self._closed = False
        directory.register(self)

    def create(self, name: str, generation: int = 0) -> ClassicGroup:
        """A new group without members, in place of the one that has its name now, if any."""
        group = ClassicGroup(name)
        group.generation = generation
        self._directory.add(group)
        self.groups[name] = group
        self.configure(name)
        return group

    # Requests

    def check_join(self, name: str, join: JoinRequest) -> int:
        """NONE, or an error code if this join is refused whatever group it is for."""
        if not name:
            return INVALID_GROUP_ID
        if self._closed:
            return COORDINATOR_NOT_AVAILABLE
        shortest = self._settings.broker.group_min_session_timeout_ms / 1000
        longest = self._settings.broker.group_max_session_timeout_ms / 1000
        return NONE if shortest <= join.session_timeout <= longest else INVALID_SESSION_TIMEOUT

    def join(self, name: str, join: JoinRequest, is_gone: Callable[[], bool]) -> asyncio.Future[JoinResponse]:
        """A future of the response to a join that ``check_join`` allowed.

        While it waits, ``is_gone`` is called now and then.
        """
        waiter: asyncio.Future[JoinResponse] = asyncio.get_running_loop().create_future()
        known = self._directory.find(name)
        group = self.groups.get(name)
        if group is None and join.member_id:
            waiter.set_result(JoinResponse(UNKNOWN_MEMBER_ID, join.member_id))
            return waiter
        if group is None and known is not None:
            waiter.set_result(JoinResponse(INCONSISTENT_GROUP_PROTOCOL, join.member_id))
            return waiter
        if group is None:
            group = self.create(name)
        group.join(join, waiter, self._clock.monotonic())
        self.follow_up(name)
        if not waiter.done():
            self._joining[waiter] = (group, is_gone)
        return waiter

    def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> asyncio.Future[SyncResponse]:
        waiter: asyncio.Future[SyncResponse] = asyncio.get_running_loop().create_future()
        group = self.groups.get(name)
        if not name or group is None:
            waiter.set_result(SyncResponse(UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID))
        else:
            now = self._clock.monotonic()
            group.sync(member_id, instance_id, generation, protocol_type, protocol, assignments, waiter, now)
            self.follow_up(name)
        return waiter

    def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> int:
        group = self.groups.get(name)
        if group is None:
            return UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID
        return group.heartbeat(member_id, instance_id, generation, self._clock.monotonic())

    def leave(self, name: str, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        """Remove members (id, instance id). Returns an error code for each."""
        group = self.groups.get(name)
        if group is None:
            return [UNKNOWN_MEMBER_ID if name else INVALID_GROUP_ID] * len(leaving)
        errors = group.leave(leaving, self._clock.monotonic())
        self.follow_up(name)
        return errors

    # Time

    def tick(self, now: float) -> None:
        """Give up joins whose clients have hung up. Looks for them about once a second."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        for waiter, (group, is_gone) in list(self._joining.items()):
            if not waiter.done() and is_gone():
                waiter.cancel()
                group.abandon(waiter, now)
                if self.groups.get(group.name) is group:
                    self.follow_up(group.name)
            if waiter.done():
                del self._joining[waiter]

    # For the directory

    def restore(self, name: str, fields: Mapping[str, Any]) -> None:
        group = self.create(name)
        snapshot.restore(group, fields, self._clock.monotonic())
        self._directory.schedule(group)

    def configure(self, name: str) -> None:
        group, broker = self.groups[name], self._settings.broker
        group.initial_delay = broker.group_initial_rebalance_delay_ms / 1000
        group.max_size = broker.group_max_size

    def follow_up(self, name: str) -> None:
        group = self.groups[name]
        answers = group.take_answers()
        self._directory.schedule(group)
        if group.agreement == self._saved.get(name, 0):
            _deliver(answers)
            return
        self._saved[name] = group.agreement
        try:
            saving = self._directory.save(group, snapshot.to_text)
        except CatalogueFailed:
            _deliver(answers)
            return

        def saved(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                # The group continues from memory. Its next agreement is saved again.
                _log.warning("group %s: generation %d is not kept: %s", name, group.generation, error)
            _deliver(answers)

        saving.add_done_callback(saved)

    def drop(self, name: str) -> None:
        group = self.groups.pop(name)
        self._saved.pop(name, None)
        group.send_back()
        _deliver(group.take_answers())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for group in self.groups.values():
            group.kill()
            _deliver(group.take_answers())


def _deliver(answers: Sequence[tuple[Any, JoinResponse | SyncResponse]]) -> None:
    for waiter, answer in answers:
        if not waiter.done():
            waiter.set_result(answer)
