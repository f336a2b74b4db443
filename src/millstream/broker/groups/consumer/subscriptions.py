"""Which of the topics that members subscribe to exist, by name and by pattern. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from millstream.broker.groups.consumer.member import ConsumerMember
from millstream.broker.groups.topics import Topics, existing
from millstream.core.user_regex import BadPattern, compile_pattern

_log = logging.getLogger(__name__)


class Subscriptions:
    """The subscriptions of one group."""

    def __init__(self, group: str, topics: Topics) -> None:
        self.existing: dict[str, tuple[bytes, int]] = {}  # topics that members read: id, partitions
        self._group = group
        self._topics = topics
        self._seen_version = -1  # the version of the topics at the last look
        self._matched: dict[str, frozenset[str]] = {}  # by pattern: the topics that match

    @property
    def is_outdated(self) -> bool:
        """True if topics have changed since the last look."""
        return self._seen_version != self._topics.topics_version

    def look_up(self, members: Collection[ConsumerMember]) -> None:
        """Find out which of the subscribed topics exist."""
        there = self._topics.topics
        self._seen_version = self._topics.topics_version
        expressions = {member.regex for member in members if member.regex}
        self._matched = {regex: self._matching(regex, there) for regex in expressions}
        names = frozenset[str]().union(*(member.names for member in members), *self._matched.values())
        self.existing = existing(names, self._topics)

    def _matching(self, regex: str, names: Iterable[str]) -> frozenset[str]:
        """The names that match a member's pattern.

        The pattern was checked when it came, but maybe by another process, which had RE2.
        """
        try:
            return frozenset(filter(compile_pattern(regex), names))
        except BadPattern as error:
            _log.warning(
                "group %s: the pattern %r of a member matches nothing now: %s", self._group, regex, error
            )
            return frozenset()

    def topic_ids(self, member: ConsumerMember) -> frozenset[bytes]:
        """The existing topics that a member subscribes to."""
        names = member.names
        if member.regex:
            names = names.union(self._matched[member.regex])
        return frozenset(self.existing[name][0] for name in names if name in self.existing)
