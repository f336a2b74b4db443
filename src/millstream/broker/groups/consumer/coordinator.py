"""Runs the groups of the consumer protocol: connects each to the catalogue, to time and to its clients.

Responses that depend on a change leave when the change is saved (``broker.groups.group_saver``). A group of
this protocol may have members of the classic protocol too, whose requests come here as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from millstream.broker.groups.classic.member import JoinRequest, JoinResponse, SyncResponse
from millstream.broker.groups.consumer import classic_members, snapshot
from millstream.broker.groups.consumer.group import JOIN, ConsumerGroup, Heartbeat, HeartbeatResponse
from millstream.broker.groups.directory import GroupDirectory
from millstream.broker.groups.group_saver import SavedGroups
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.topics import Topics
from millstream.core.clock import Clock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND

T = TypeVar("T")


class Changeover(Protocol):
    """How a group of another kind becomes one of this kind, and the other way round."""

    def to_consumer(self, name: str, beat: Heartbeat) -> ConsumerGroup:
        """The group that the one of this name becomes with this heartbeat.

        The existing group is not changed. Raises RequestRefused if it does not become one of this kind.
        """

    def to_classic(self, group: ConsumerGroup) -> None:
        """Called while a group has only classic members. Converts it if that is allowed."""


class ConsumerCoordinator:
    """All groups of the consumer protocol of one broker."""

    kind = ConsumerGroup.kind

    def __init__(
        self,
        directory: GroupDirectory,
        settings: GroupSettings,
        clock: Clock,
        topics: Topics,
        changeover: Changeover,
    ) -> None:
        self._kept = SavedGroups(directory, snapshot.to_text)
        self.groups = self._kept.by_name  # only read from outside
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._changeover = changeover
        directory.register(self)

    # Requests of the consumer protocol

    def heartbeat(self, name: str, beat: Heartbeat) -> HeartbeatResponse | asyncio.Future[HeartbeatResponse]:
        """The response to a ConsumerGroupHeartbeat. Raises RequestRefused. Hot."""
        self._kept.check_open()
        group = self.groups.get(name)
        if group is None:
            return self._first_heartbeat(name, beat)
        agreed = group.agreement
        answer = group.heartbeat(beat, self._clock.monotonic())
        if group.agreement == agreed and self._kept.covers(name, answer.revision):
            self._directory.schedule(group)
            return answer
        return self._answer(name, answer, answer.revision)

    def _first_heartbeat(self, name: str, beat: Heartbeat) -> asyncio.Future[HeartbeatResponse]:
        """Handle a group's first heartbeat of this protocol. A join creates or converts the group."""
        if self._directory.find(name) is not None:
            group = self._changeover.to_consumer(name, beat)
        elif beat.epoch == JOIN:
            group = ConsumerGroup(name, self._topics)
        else:
            raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} not found.")
        self._apply_settings(group)
        answer = group.heartbeat(beat, self._clock.monotonic())  # if refused, nothing has changed here
        self._kept.add(group)
        return self._answer(name, answer, answer.revision)

    def heartbeat_interval_ms(self, name: str) -> int:
        """The heartbeat interval for members of a group. Hot."""
        group = self.groups.get(name)
        return 0 if group is None else group.heartbeat_interval_ms

    # Requests of classic members. The group exists.

    def classic_join(self, name: str, join: JoinRequest) -> asyncio.Future[JoinResponse]:
        group = self.groups[name]
        joined = classic_members.join(group, self._topics, join, self._clock.monotonic())
        return self._answer(name, joined, group.agreement)

    def classic_sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
    ) -> asyncio.Future[SyncResponse]:
        group, now = self.groups[name], self._clock.monotonic()
        synced = classic_members.sync(
            group, self._topics, member_id, instance_id, generation, protocol_type, protocol, now
        )
        return self._answer(name, synced, group.agreement)

    def classic_heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> int:
        group, now = self.groups[name], self._clock.monotonic()
        error = classic_members.heartbeat(group, member_id, instance_id, generation, now)
        self.follow_up(name)
        return error

    def classic_leave(self, name: str, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        errors = classic_members.leave(self.groups[name], leaving)
        self.follow_up(name)
        return errors

    # For the directory

    def restore(self, name: str, fields: Mapping[str, Any]) -> None:
        now = self._clock.monotonic()
        group = snapshot.restored(name, fields, self._topics, now)
        self._apply_settings(group)
        group.start_sessions(now)
        self._kept.add(group, kept=group.agreement)
        self._directory.schedule(group)

    def configure(self, name: str) -> None:
        self._apply_settings(self.groups[name])

    def _apply_settings(self, group: ConsumerGroup) -> None:
        own, broker = self._settings.of(group.name), self._settings.broker
        group.session_timeout = own.consumer_session_timeout_ms / 1000
        group.heartbeat_interval_ms = own.consumer_heartbeat_interval_ms
        group.assignment_interval = own.consumer_assignment_interval_ms / 1000
        group.max_size = broker.group_consumer_max_size
        group.default_assignor = broker.group_consumer_assignors[0]

    def follow_up(self, name: str) -> None:
        group = self.groups[name]
        self._kept.keep(name)
        if group.has_only_classic_members:
            self._changeover.to_classic(group)

    def drop(self, name: str) -> None:
        self._kept.drop(name)

    def close(self) -> None:
        self._kept.close()

    def _answer(self, name: str, answer: T, revision: int) -> asyncio.Future[T]:
        """A future of a response, done when it may be sent."""
        future = self._kept.answer(name, answer, revision)
        self.follow_up(name)
        return future
