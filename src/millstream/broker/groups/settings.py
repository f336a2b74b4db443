"""The settings of groups: the broker's, which may change while it runs, and the ones a group has itself."""

from __future__ import annotations

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.core.config import BrokerConfig, group_defaults, with_changes
from millstream.core.group_config import GroupConfig


class GroupSettings:
    def __init__(self, catalogue: Catalogue, broker: BrokerConfig) -> None:
        self._catalogue = catalogue
        self.broker = broker

    def of(self, name: str) -> GroupConfig:
        """A group's settings: its own on top of the broker's."""
        own = self._catalogue.group_overrides.get(name, {})
        return with_changes(group_defaults(self.broker), own)
