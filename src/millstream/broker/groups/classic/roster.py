"""The members of a classic group: by id, by instance id, and by the protocols that they support. No I/O."""

from __future__ import annotations

from collections import Counter

from millstream.broker.groups.classic.member import ClassicMember, JoinRequest
from millstream.core.kafka_errors import FENCED_INSTANCE_ID, NONE, UNKNOWN_MEMBER_ID
from millstream.wire.consumer_protocol import subscribed_topics


class Roster:
    """Who is in a group. ``by_id`` is only read from outside."""

    def __init__(self) -> None:
        self.by_id: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}  # instance id -> member id
        self._supported: Counter[str] = Counter()  # how many members support each protocol

    def add(self, member: ClassicMember) -> None:
        self.by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._supported.update({name for name, _ in member.protocols})

    def remove(self, member_id: str) -> ClassicMember:
        member = self.by_id.pop(member_id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._supported -= Counter({name for name, _ in member.protocols})
        return member

    def update(self, member: ClassicMember, join: JoinRequest) -> None:
        """Store what a member says as it joins again."""
        self._supported -= Counter({name for name, _ in member.protocols})
        member.update(join)
        self._supported.update({name for name, _ in member.protocols})

    def static(self, instance_id: str) -> str | None:
        """The id of the static member with this instance id."""
        return self._static.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> int:
        """NONE if this is a member, else an error code."""
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is not None and known != member_id:
                return FENCED_INSTANCE_ID
            if known is None:
                return UNKNOWN_MEMBER_ID
        return NONE if member_id in self.by_id else UNKNOWN_MEMBER_ID

    def all_support_one_of(self, join: JoinRequest) -> bool:
        return any(self._supported[name] == len(self.by_id) for name, _ in join.protocols)

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all members support. The most votes win."""
        votes: Counter[str] = Counter()
        for member in self.by_id.values():
            votes[next(name for name, _ in member.protocols if self._supported[name] == len(self.by_id))] += 1
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics that members have subscribed to, under this protocol. None if that can't be known."""
        topics: set[str] = set()
        for member in self.by_id.values():
            found = subscribed_topics(member.metadata(protocol or member.protocols[0][0]))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)
