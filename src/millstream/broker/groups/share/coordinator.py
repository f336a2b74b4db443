"""Runs the share groups: connects the members of each to the catalogue, to time and to their clients.

Responses that depend on a change leave when the change is saved (``broker.groups.group_saver``). A share
group never takes the place of a group of another kind, nor the reverse: that group has to be deleted first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from millstream.broker.groups.directory import GroupDirectory
from millstream.broker.groups.group_saver import SavedGroups
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.share import snapshot
from millstream.broker.groups.share.group import JOIN, ShareBeat, ShareGroup, ShareHeartbeat
from millstream.broker.groups.topics import Topics
from millstream.core.clock import Clock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND

_FIRST_EPOCH = 1  # of a group that nobody has joined yet, as in Kafka


class ShareCoordinator:
    """The members of all share groups of one broker."""

    kind = ShareGroup.kind

    def __init__(
        self, directory: GroupDirectory, settings: GroupSettings, clock: Clock, topics: Topics
    ) -> None:
        self._kept = SavedGroups(directory, snapshot.to_text)
        self.groups = self._kept.by_name  # only read from outside
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self.dropped: Callable[[str], None] = lambda name: None  # called when a group is removed
        directory.register(self)

    def heartbeat(self, name: str, beat: ShareHeartbeat) -> ShareBeat | asyncio.Future[ShareBeat]:
        """The response to a ShareGroupHeartbeat. Raises RequestRefused. Hot."""
        self._kept.check_open()
        group = self.groups.get(name)
        if group is None:
            if beat.epoch != JOIN:
                self._check_name(name)
                raise RequestRefused(GROUP_ID_NOT_FOUND, f"Share group {name} not found.")
            group = self.create(name)
        agreed = group.agreement
        answer = group.heartbeat(beat, self._clock.monotonic())
        if group.agreement == agreed and self._kept.covers(name, answer.revision):
            self._directory.schedule(group)
            return answer
        future = self._kept.answer(name, answer, answer.revision)
        self.follow_up(name)
        return future

    def create(self, name: str) -> ShareGroup:
        """The share group of this name, which may be new. Raises RequestRefused if it is of another kind."""
        group = self.groups.get(name)
        if group is None:
            self._check_name(name)
            group = ShareGroup(name, self._topics, epoch=_FIRST_EPOCH)
            self._apply_settings(group)
            self._kept.add(group)
        return group

    async def save(self, name: str) -> None:
        """Save a group that is new. Its progress is no use without it."""
        future = self._kept.answer(name, None, self.groups[name].agreement)
        self.follow_up(name)
        await future

    def _check_name(self, name: str) -> None:
        if self._directory.find(name) is not None:
            raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} is not a share group.")

    def heartbeat_interval_ms(self, name: str) -> int:
        """The heartbeat interval for members of a group. Hot."""
        group = self.groups.get(name)
        return 0 if group is None else group.heartbeat_interval_ms

    # For the directory

    def restore(self, name: str, fields: Mapping[str, Any]) -> None:
        group = snapshot.restored(name, fields, self._topics)
        self._apply_settings(group)
        group.start_sessions(self._clock.monotonic())
        self._kept.add(group, kept=group.agreement)
        self._directory.schedule(group)

    def configure(self, name: str) -> None:
        self._apply_settings(self.groups[name])

    def _apply_settings(self, group: ShareGroup) -> None:
        own, broker = self._settings.of(group.name), self._settings.broker
        group.session_timeout = own.share_session_timeout_ms / 1000
        group.heartbeat_interval_ms = own.share_heartbeat_interval_ms
        group.assignment_interval = own.share_assignment_interval_ms / 1000
        group.max_size = broker.group_share_max_size

    def follow_up(self, name: str) -> None:
        self._kept.keep(name)

    def drop(self, name: str) -> None:
        self._kept.drop(name)
        self.dropped(name)

    def close(self) -> None:
        self._kept.close()
