"""Convert a group from one protocol to the other while its members continue to read (KIP-848). No I/O.

- **Upgrade**: a member of the consumer protocol joins a classic group of consumers. The existing members
  stay, with what they have, as members that use the classic protocol (``consumer.classic_members``). The
  generation becomes the epoch.
- **Downgrade**: the last member of the consumer protocol has left, and classic members remain. They
  continue as a classic group with what the target gives them, and are asked to join again.

``broker.groups.migration.migration`` decides whether either happens.
"""

from __future__ import annotations

from millstream.broker.groups.classic.group import ClassicGroup
from millstream.broker.groups.classic.member import ClassicMember, JoinRequest
from millstream.broker.groups.consumer.classic_members import named
from millstream.broker.groups.consumer.group import ConsumerGroup
from millstream.broker.groups.consumer.member import ClassicPart, ConsumerMember
from millstream.broker.groups.topics import Topics
from millstream.wire.consumer_protocol import read_assignment, read_subscription, write_assignment


def upgrade(group: ClassicGroup, topics: Topics) -> ConsumerGroup | None:
    """The consumer group that a classic group becomes. The classic group is not changed.

    None if its members do not describe their subscriptions the way consumers do.
    """
    upgraded = ConsumerGroup(group.name, topics, epoch=group.generation)
    for classic in group.members.values():
        member = _upgraded(classic, group, topics, upgraded)
        if member is None:
            return None
        upgraded.add(member)
    upgraded.restore_subscriptions()
    return upgraded


def _upgraded(
    classic: ClassicMember, group: ClassicGroup, topics: Topics, upgraded: ConsumerGroup
) -> ConsumerMember | None:
    name, metadata = classic.protocols[0]
    subscription = read_subscription(classic.metadata(group.protocol) or metadata)
    assignment = read_assignment(classic.assignment)
    if subscription is None or assignment is None:
        return None
    member = ConsumerMember(classic.member_id, classic.instance_id)
    member.epoch = member.previous_epoch = group.generation
    member.rack_id = subscription.rack
    member.client_id, member.client_host = classic.client_id, classic.client_host
    member.rebalance_timeout = classic.rebalance_timeout
    member.names = subscription.topics
    member.classic = ClassicPart(classic.session_timeout, classic.protocols)
    member.deadline = classic.deadline
    for name, indexes in assignment.items():
        topic = topics.topics.get(name)
        if topic is None:
            continue
        for partition in ((topic.id.bytes, index) for index in indexes):
            if partition not in upgraded.owners:  # a client's own assignor may have given it out twice
                member.assigned[partition] = group.generation
    member.target = frozenset(member.assigned)
    return member


def downgrade(group: ConsumerGroup, topics: Topics, into: ClassicGroup, now: float) -> None:
    """Move the remaining members into a new classic group, and have it rebalance."""
    members = []
    for member in group.members.values():
        assert member.classic is not None
        join = JoinRequest(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.classic.session_timeout,
            member.rebalance_timeout,
            "consumer",
            member.classic.protocols,
        )
        classic = ClassicMember(member.member_id, join, deadline=now + join.session_timeout)
        classic.assignment = write_assignment(named(member.target, topics), join.protocols[0][1])
        members.append(classic)
    into.adopt(group.epoch, "consumer", members, now)
