"""Decides whether a group changes over from one kind to the other, and puts the new group in its place.

An empty group takes on the protocol of its next member. A group with members is converted
(``broker.groups.migration.conversion``) if ``group.consumer.migration.policy`` allows it.
"""

from __future__ import annotations

import logging

from millstream.broker.groups.classic.coordinator import ClassicCoordinator
from millstream.broker.groups.classic.group import ClassicGroup
from millstream.broker.groups.consumer.group import JOIN, ConsumerGroup, Heartbeat
from millstream.broker.groups.migration.conversion import downgrade, upgrade
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.topics import Topics
from millstream.core.clock import Clock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND

_log = logging.getLogger(__name__)

_UPGRADES = ("upgrade", "bidirectional")
_DOWNGRADES = ("downgrade", "bidirectional")


class Migration:
    """The ``Changeover`` between classic groups and groups of the consumer protocol."""

    def __init__(
        self, classic: ClassicCoordinator, topics: Topics, settings: GroupSettings, clock: Clock
    ) -> None:
        self._classic = classic
        self._topics = topics
        self._settings = settings
        self._clock = clock

    def to_consumer(self, name: str, beat: Heartbeat) -> ConsumerGroup:
        classic = self._classic.groups.get(name)
        group: ConsumerGroup | None = None
        if classic is not None and beat.epoch == JOIN:
            group = self._emptied(classic) if classic.is_empty else self._upgraded(classic)
        if group is None:
            raise RequestRefused(GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
        return group

    def _emptied(self, classic: ClassicGroup) -> ConsumerGroup:
        return ConsumerGroup(classic.name, self._topics, epoch=classic.generation)

    def _upgraded(self, classic: ClassicGroup) -> ConsumerGroup | None:
        broker = self._settings.broker
        if (
            classic.protocol_type != "consumer"
            or broker.group_consumer_migration_policy not in _UPGRADES
            or len(classic.members) > broker.group_consumer_max_size
        ):
            return None
        group = upgrade(classic, self._topics)
        if group is not None:
            _log.info("group %s: changes to the consumer protocol", classic.name)
        return group

    def to_classic(self, group: ConsumerGroup) -> None:
        broker = self._settings.broker
        if (
            broker.group_consumer_migration_policy not in _DOWNGRADES
            or len(group.members) > broker.group_max_size
        ):
            return
        _log.info("group %s: changes to the classic protocol", group.name)
        classic = self._classic.create(group.name)
        downgrade(group, self._topics, classic, self._clock.monotonic())
        self._classic.follow_up(group.name)
