"""Delete offsets beyond their retention, and groups that have nothing left."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.database import ignore_failure
from millstream.broker.groups.committed_offset import CommittedOffset
from millstream.broker.groups.directory import GroupDirectory
from millstream.broker.groups.group import Group
from millstream.broker.groups.settings import GroupSettings
from millstream.core.clock import Clock

_log = logging.getLogger(__name__)

_LOOK_EVERY = 60.0  # seconds between looks for offsets beyond their retention
_AT_ONCE = 2000  # offsets checked in one tick


class Expiry:
    def __init__(
        self, catalogue: Catalogue, directory: GroupDirectory, settings: GroupSettings, clock: Clock
    ) -> None:
        self._catalogue = catalogue
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._look_at = clock.monotonic() + _LOOK_EVERY
        self._left: list[str] = []  # groups that this round has not checked yet

    def tick(self, now: float) -> None:
        """Check some groups. Only a bounded number of offsets per call, so that no request waits for it."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            self._left = [group.name for group in self._directory.all()]
        checked = 0
        while self._left and checked < _AT_ONCE:
            group = self._directory.find(self._left.pop())
            if group is not None:
                offsets = self._catalogue.offsets_of(group.name)
                checked += 1 + sum(map(len, offsets.values()))
                self._check(group, offsets)

    def _check(self, group: Group, offsets: Mapping[str, Mapping[int, CommittedOffset]]) -> None:
        expired = self._expired(group, offsets)
        if expired:
            _log.info("group %s: %d offsets are beyond their retention", group.name, len(expired))
            ignore_failure(self._catalogue.expire_offsets(group.name, expired))
        elif not offsets and group.may_be_forgotten and not self._catalogue.decisions.has_pending(group.name):
            self._directory.remove(group.name)
            ignore_failure(self._catalogue.forget_group(group.name))

    def _expired(
        self, group: Group, offsets: Mapping[str, Mapping[int, CommittedOffset]]
    ) -> list[tuple[str, int, int]]:
        in_use = group.topics_in_use()
        if in_use is None:
            return []
        now_ms = self._clock.now_ms()
        # Retention counts from when the last member left, or from a later commit by an administrator. For
        # a group that never had members, and for a topic that members no longer read, it counts from the
        # commit.
        oldest_ms = now_ms - self._settings.broker.offsets_retention_minutes * 60_000
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
