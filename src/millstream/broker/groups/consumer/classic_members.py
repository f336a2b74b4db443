"""Members that use the classic protocol in a group of the consumer protocol (KIP-848). No I/O.

While a group is being converted, some of its members still join, sync and send classic heartbeats. To
them

- their epoch is the generation;
- a join is one step towards the target: it says what they own and is answered at once. There is no one to
  wait for and nothing to assign, so they are told that another member leads;
- a sync returns what they have now;
- a heartbeat tells them to join again (REBALANCE_IN_PROGRESS) when there is a step to take. A member that
  does not join within its rebalance timeout is removed.

``ConsumerGroup`` does everything else: it decides who has what, and when.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

from millstream.broker.groups.classic.member import JoinRequest, JoinResponse, SyncResponse
from millstream.broker.groups.consumer.group import ConsumerGroup
from millstream.broker.groups.consumer.member import ClassicPart, ConsumerMember, MemberState
from millstream.broker.groups.topics import Partition, Topics
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from millstream.wire.consumer_protocol import Subscription, read_subscription, write_assignment


def join(group: ConsumerGroup, topics: Topics, join: JoinRequest, now: float) -> JoinResponse:
    """The response to a JoinGroup. With the error MEMBER_ID_REQUIRED, nothing has changed."""
    try:
        return _join(group, topics, join, now)
    except RequestRefused as refused:
        return JoinResponse(refused.code, join.member_id)


def _join(group: ConsumerGroup, topics: Topics, join: JoinRequest, now: float) -> JoinResponse:
    if group.is_dead:
        raise RequestRefused(COORDINATOR_NOT_AVAILABLE, "")
    member_id = join.member_id or f"{join.instance_id or join.client_id}-{uuid.uuid4()}"
    group.check_room(member_id, join.instance_id)
    subscription = _check_protocols(group, join)
    if not join.member_id and join.instance_id is None and join.id_required:
        return JoinResponse(MEMBER_ID_REQUIRED, member_id)
    member = _member(group, join, member_id)
    changed = subscription.topics != member.names or bool(member.regex)
    member.names, member.regex, member.assignor = subscription.topics, "", None
    member.rack_id = subscription.rack
    member.rebalance_timeout = join.rebalance_timeout
    member.client_id, member.client_host = join.client_id, join.client_host
    member.classic = ClassicPart(join.session_timeout, join.protocols)
    group.touch(member)
    group.advance(member, _ids(subscription.owned, topics), now, subscription_changed=changed)
    member.deadline = now + join.session_timeout
    member.join_deadline = inf
    member.rebalance_deadline = inf
    member.sync_deadline = now + join.rebalance_timeout
    group.wake(member)
    return JoinResponse(NONE, member_id, member.epoch, "consumer", join.protocols[0][0])


def _check_protocols(group: ConsumerGroup, join: JoinRequest) -> Subscription:
    spoken = [member.classic.protocols for member in group.members.values() if member.classic is not None]
    count = Counter(name for protocols in spoken for name in {name for name, _ in protocols})
    subscription = read_subscription(join.protocols[0][1]) if join.protocols else None
    if (
        join.protocol_type != "consumer"
        or subscription is None
        or not any(count[name] == len(spoken) for name, _ in join.protocols)
    ):
        raise RequestRefused(INCONSISTENT_GROUP_PROTOCOL, "the group's members use other protocols")
    return subscription


def _member(group: ConsumerGroup, join: JoinRequest, member_id: str) -> ConsumerMember:
    if join.instance_id is None:
        return group.members.get(member_id) or group.add(ConsumerMember(member_id))
    if join.member_id:
        return group.find(member_id, join.instance_id)
    known = group.static.get(join.instance_id)
    if known is None:
        return group.add(ConsumerMember(member_id, join.instance_id))
    return group.replace(group.members[known], member_id)


def _ids(owned: Mapping[str, Iterable[int]], topics: Topics) -> list[Partition]:
    return [
        (topic.id.bytes, index)
        for name, indexes in owned.items()
        if (topic := topics.topics.get(name)) is not None
        for index in indexes
    ]


def sync(
    group: ConsumerGroup,
    topics: Topics,
    member_id: str,
    instance_id: str | None,
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    now: float,
) -> SyncResponse:
    """The response to a SyncGroup: what the member has now."""
    try:
        member, classic = _find(group, member_id, instance_id, generation)
    except RequestRefused as refused:
        return SyncResponse(refused.code)
    spoken, metadata = classic.protocols[0]
    if protocol_type not in (None, "consumer") or protocol not in (None, spoken):
        return SyncResponse(INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        _expect_join(group, member, now)
        return SyncResponse(REBALANCE_IN_PROGRESS)
    member.sync_deadline = inf
    member.deadline = now + classic.session_timeout
    group.wake(member)
    return SyncResponse(NONE, "consumer", spoken, write_assignment(named(member.assigned, topics), metadata))


def named(partitions: Iterable[Partition], topics: Topics) -> dict[str, list[int]]:
    """Partitions by the names of their topics, where those exist."""
    names = {topic.id.bytes: name for name, topic in topics.topics.items()}
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(partitions):
        if topic_id in names:
            found.setdefault(names[topic_id], []).append(index)
    return found


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: float
) -> int:
    """The response to a classic Heartbeat."""
    try:
        member, classic = _find(group, member_id, instance_id, generation)
    except RequestRefused as refused:
        return refused.code
    member.deadline = now + classic.session_timeout
    group.notice_topics()
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED
        or (member.state is MemberState.UNRELEASED and _can_go_on(group, member))
    ):
        _expect_join(group, member, now)
        return REBALANCE_IN_PROGRESS
    return NONE


def _can_go_on(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return all(p in member.assigned or p not in group.owners for p in member.target)


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
    if member.join_deadline == inf:
        member.join_deadline = now + member.rebalance_timeout
        group.wake(member)


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicPart]:
    if group.is_dead:
        raise RequestRefused(COORDINATOR_NOT_AVAILABLE, "")
    member = group.find(member_id, instance_id)
    if member.classic is None:
        raise RequestRefused(UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.epoch:
        raise RequestRefused(ILLEGAL_GENERATION, "")
    return member, member.classic


def leave(group: ConsumerGroup, leaving: Iterable[tuple[str, str | None]]) -> list[int]:
    """Remove members (id, instance id), which leave or are removed by instance id alone.

    Returns an error code for each.
    """
    errors = []
    for member_id, instance_id in leaving:
        try:
            if not member_id and instance_id is not None:
                member_id = group.static.get(instance_id, "")
            member = group.find(member_id, instance_id)
            if member.classic is None:
                raise RequestRefused(UNKNOWN_MEMBER_ID, "it does not use the classic protocol")
            group.remove(member)
            errors.append(NONE)
        except RequestRefused as refused:
            errors.append(refused.code)
    return errors
