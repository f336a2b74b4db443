"""All groups of one broker: their directory, their offsets, and one coordinator for each kind of group.

A kind of group is a folder with a state machine (``broker.groups.group.Group``) and a coordinator that
connects it to time, storage and clients (``broker.groups.group.Coordinator``). Only this module and
``broker.groups.migration`` know which kinds exist.
"""

from __future__ import annotations

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.classic.coordinator import ClassicCoordinator
from millstream.broker.groups.consumer.coordinator import ConsumerCoordinator
from millstream.broker.groups.directory import GroupDirectory
from millstream.broker.groups.expiry import Expiry
from millstream.broker.groups.migration.classic_requests import ClassicRequests
from millstream.broker.groups.migration.migration import Migration
from millstream.broker.groups.offsets import GroupOffsets
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.share.coordinator import ShareCoordinator
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig


class GroupCoordinator:
    """Lives on the server's loop."""

    def __init__(self, catalogue: Catalogue, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        self.settings = GroupSettings(catalogue, config)
        self.directory = GroupDirectory(catalogue, clock)
        self.offsets = GroupOffsets(catalogue, self.directory, clock)
        self._expiry = Expiry(catalogue, self.directory, self.settings, clock)

        # The kinds. Each coordinator registers itself with the directory.
        self.classic = ClassicCoordinator(self.directory, self.settings, clock)
        migration = Migration(self.classic, catalogue, self.settings, clock)
        self.consumer = ConsumerCoordinator(self.directory, self.settings, clock, catalogue, migration)
        self.share = ShareCoordinator(self.directory, self.settings, clock, catalogue)
        self.classic_requests = ClassicRequests(self.classic, self.consumer)

        self.directory.open(self.classic.create)

    def set_config(self, config: BrokerConfig) -> None:
        """Apply settings that were changed while the broker runs."""
        self.settings.broker = config
        self.directory.configure_all()

    def alter_group(self, name: str) -> None:
        """Apply changes to a group's own settings."""
        self.directory.configure(name)

    def is_reading(self, name: str, topic: str) -> bool:
        """True if the group has live members that may be reading this topic."""
        return self.directory.is_reading(name, topic)

    def tick(self, now: float | None = None) -> None:
        """Let time take effect."""
        now = self._clock.monotonic() if now is None else now
        self.directory.tick(now)
        self.classic.tick(now)
        self._expiry.tick(now)

    def close(self) -> None:
        """Shut down: waiting clients are told to look for a coordinator again.

        The catalogue keeps what the groups agreed on. A broker that is started on it continues with those
        groups.
        """
        self.directory.close()
