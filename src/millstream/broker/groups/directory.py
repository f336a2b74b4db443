"""All groups of one broker by name, whatever their kind.

A name belongs to at most one group, and so to one kind. A group is known if it has members, has agreed on
something, or has offsets, including offsets that are pending in a transaction.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from typing import TypeVar

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.group import Coordinator, Group
from millstream.broker.groups.schedule import Schedule
from millstream.core.clock import Clock
from millstream.core.errors import CatalogueFailed
from millstream.core.kafka_errors import COORDINATOR_NOT_AVAILABLE, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NONE

G = TypeVar("G", bound=Group)


class GroupDirectory:
    create: Callable[[str], Group]
    """Makes a group of the kind that a name is by default. Set by ``open``."""

    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._coordinators: dict[str, Coordinator] = {}  # by kind
        self._groups: dict[str, Group] = {}
        self._schedule: Schedule[str] = Schedule()

    def register(self, coordinator: Coordinator) -> None:
        self._coordinators[coordinator.kind] = coordinator

    def open(self, create: Callable[[str], Group]) -> None:
        """Continue with the groups that were saved. Called once, when all kinds are registered.

        ``create`` makes the group of a name that is known by its offsets alone.
        """
        self.create = create
        for name in self._catalogue.group_states:
            self._restore(name)

    def _restore(self, name: str) -> None:
        fields = json.loads(self._catalogue.group_states[name])
        self._coordinators[fields["kind"]].restore(name, fields)

    def get(self, name: str) -> Group | None:
        """The group of this name, unless it is known by its offsets alone. Hot."""
        return self._groups.get(name)

    def find(self, name: str) -> Group | None:
        """The group of this name, or None if it is unknown."""
        group = self._groups.get(name)
        if group is None and (
            self._catalogue.offsets_of(name) or self._catalogue.decisions.has_pending(name)
        ):
            group = self.create(name)
        return group

    def all(self) -> list[Group]:
        names = dict.fromkeys([*self._groups, *self._catalogue.groups_with_offsets()])
        return [group for name in names if (group := self.find(name)) is not None]

    def listed(self, states: Collection[str] = (), kinds: Collection[str] = ()) -> list[Group]:
        """The groups in one of these states and of one of these kinds, in any case. Empty: all."""
        wanted_states = {state.lower() for state in states}
        wanted_kinds = {kind.lower() for kind in kinds}
        return [
            group
            for group in self.all()
            if (not wanted_states or group.state.value.lower() in wanted_states)
            and (not wanted_kinds or group.kind in wanted_kinds)
        ]

    def is_reading(self, name: str, topic: str) -> bool:
        """True if the group has live members that may be reading this topic."""
        group = self._groups.get(name)
        if group is None:
            return False
        subscribed = group.subscribed_topics()
        return subscribed is None or topic in subscribed

    def add(self, group: Group) -> None:
        """Put in a group, in place of the one that has its name now, if any."""
        if group.name in self._groups:
            self.remove(group.name)
        self._groups[group.name] = group

    def remove(self, name: str) -> None:
        """Take out a group, and stop it. What is stored of it stays."""
        group = self._groups.pop(name)
        self._schedule.forget(name)
        self._coordinators[group.kind].drop(name)

    async def delete(self, name: str) -> int:
        """Delete a group that has no members, with its offsets. Returns an error code."""
        group = self.find(name)
        if group is None:
            return GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return NON_EMPTY_GROUP
        # Out of sight first: a member that joins from now on joins a new group, written after this one is
        # deleted.
        self.remove(name)
        try:
            await self._catalogue.delete_group(name)
        except CatalogueFailed:
            if name not in self._groups and name in self._catalogue.group_states:
                self._restore(name)
            return COORDINATOR_NOT_AVAILABLE
        return NONE

    def save(self, group: G, to_text: Callable[[G], str]) -> asyncio.Future[None]:
        """Write down what a group agreed on. The future is done when it is. Raises CatalogueFailed."""
        group.empty_since_ms = self._clock.now_ms() if group.is_empty else -1
        return self._catalogue.set_group_state(group.name, to_text(group))

    def configure(self, name: str) -> None:
        """Apply the settings of a group that have changed."""
        if (group := self._groups.get(name)) is not None:
            self._coordinators[group.kind].configure(name)

    def configure_all(self) -> None:
        for name in self._groups:
            self.configure(name)

    def schedule(self, group: Group) -> None:
        """Look at a group when its earliest deadline comes. Hot."""
        self._schedule.wake(group.name, group.wake_at)

    def tick(self, now: float) -> None:
        """Let time take effect in the groups that are due. Cheap when there are none."""
        for name in self._schedule.due(now):
            group = self._groups[name]
            group.tick(now)
            self._coordinators[group.kind].follow_up(name)

    def close(self) -> None:
        for coordinator in self._coordinators.values():
            coordinator.close()
