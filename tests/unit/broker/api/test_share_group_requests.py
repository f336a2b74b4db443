"""The requests of share groups: members, and where groups are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millstream.broker.node import Node
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from tests.support.asking import Run, ask, versions

MEMBER = "m" * 36


@pytest.fixture(autouse=True)
def topic(node: Node, run: Run) -> Any:
    return run(node.topic_admin.create("t", 2, {}))


async def beat(node: Node, epoch: int, **more: Any) -> Any:
    fields = {"rack_id": None, "subscribed_topic_names": ["t"] if epoch == 0 else None, **more}
    return await ask(node, 76, 1, group_id="g", member_id=MEMBER, member_epoch=epoch, **fields)


async def move(node: Node, offsets: dict[int, int], *, group: str = "g", topic: str = "t") -> Any:
    partitions = [{"partition_index": index, "start_offset": at} for index, at in offsets.items()]
    topics = [{"topic_name": topic, "partitions": partitions}]
    return await ask(node, 91, 0, group_id=group, topics=topics)


async def forget(node: Node, *topics: str) -> Any:
    return await ask(node, 92, 0, group_id="g", topics=[{"topic_name": topic} for topic in topics])


async def where(node: Node, version: int = 1, topics: Any = None) -> dict[tuple[str, int], tuple[int, int]]:
    answer = await ask(node, 90, version, groups=[{"group_id": "g", "topics": topics}])
    (group,) = answer.groups
    assert not group.error_code
    return {
        (topic.topic_name, entry.partition_index): (entry.start_offset, getattr(entry, "lag", -1))
        for topic in group.topics
        for entry in topic.partitions
    }


def test_a_member_joins_is_described_and_leaves(node: Node, run: Run) -> None:
    joined = run(beat(node, 0, rack_id="r"))
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, MEMBER, 2)
    assert joined.heartbeat_interval.total_seconds() == 5
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (node.catalogue.topics["t"].id, (0, 1))
    again = run(beat(node, 2))
    assert (again.member_epoch, again.assignment) == (2, None)

    fields = {"group_ids": ["g", "g", "x"], "include_authorized_operations": True}
    group, missing = run(ask(node, 77, 1, **fields)).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert (group.assignor_name, group.authorized_operations) == ("simple", 3400)
    (member,) = group.members
    assert (member.client_id, member.client_host, member.rack_id) == ("test", "/127.0.0.1", "r")
    assert member.subscribed_topic_names == ("t",)
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [
        ("t", (0, 1))
    ]
    assert (missing.error_code, missing.error_message) == (69, "Group x not found.")

    left = run(beat(node, -1))
    assert (left.error_code, left.member_epoch, left.heartbeat_interval.total_seconds()) == (0, -1, 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"member_id": ""}, "Invalid member id in the request."),
        ({"member_id": "m" * 37}, "Invalid member id in the request."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_a_heartbeat_is_refused_in_words(node: Node, run: Run, change: dict[str, Any], says: str) -> None:
    fields = {"group_id": "g", "member_id": MEMBER, "member_epoch": 0, "rack_id": None}
    answer = run(ask(node, 76, 1, **{**fields, "subscribed_topic_names": ["t"], **change}))
    assert (answer.error_code, answer.error_message) == (42, says)
    assert node.coordinator.directory.find("g") is None


def test_what_members_subscribe_to_is_described_before_it_is_read(node: Node, run: Run) -> None:
    assert run(where(node)) == {}
    run(beat(node, 0))
    assert run(where(node)) == {("t", 0): (-1, -1), ("t", 1): (-1, -1)}


@pytest.mark.parametrize("version", versions(90))
def test_a_group_is_moved_described_and_forgets(node: Node, run: Run, version: int) -> None:
    answer = run(move(node, {0: 0, 7: 0}))
    (told,) = answer.responses
    assert answer.error_code == 0
    assert [(each.partition_index, each.error_code) for each in told.partitions] == [(0, 0), (7, 3)]
    assert node.coordinator.share.groups["g"].is_empty
    lag = 0 if version >= 1 else -1
    assert run(where(node, version)) == {("t", 0): (0, lag)}
    named = [{"topic_name": "t", "partitions": [0, 1, 7]}, {"topic_name": "nowhere", "partitions": [0]}]
    assert run(where(node, version, named)) == {
        ("t", 0): (0, lag),
        ("t", 1): (-1, -1),
        ("t", 7): (-1, -1),
        ("nowhere", 0): (-1, -1),
    }
    answer = run(forget(node, "t", "nowhere"))
    assert [(each.topic_name, each.error_code) for each in answer.responses] == [("t", 0), ("nowhere", 3)]
    assert run(where(node, version)) == {}
    (again,) = run(forget(node, "t")).responses
    assert (again.error_code, again.error_message) == (3, "There is no offset information to delete.")


def test_a_group_with_members_is_not_moved(node: Node, run: Run) -> None:
    run(beat(node, 0))
    for answer in (run(move(node, {0: 0})), run(forget(node, "t"))):
        assert (answer.error_code, answer.responses) == (68, ())
        assert answer.error_message == "Share group g has members; stop them first."
    (deleted,) = run(ask(node, 42, 2, groups_names=["g"])).results
    assert deleted.error_code == 68


def test_no_group_is_made_for_nothing(node: Node, run: Run) -> None:
    assert run(move(node, {0: 0}, group="")).error_code == 24
    assert run(move(node, {0: 0}, topic="nowhere")).error_code == 0
    assert run(forget(node, "t")).error_code == 69
    assert node.coordinator.directory.find("g") is None


def test_a_deleted_group_leaves_nothing(node: Node, run: Run) -> None:
    run(move(node, {0: 0}))
    (deleted,) = run(ask(node, 42, 2, groups_names=["g"])).results
    assert deleted.error_code == 0
    assert run(where(node)) == {}
    assert node.catalogue.share_states.of("g") == {}
    assert run(beat(node, 0)).member_epoch == 2  # a new group


def test_where_a_group_is_outlives_the_broker(
    tmp_path: Any, loop: asyncio.AbstractEventLoop, clock: ManualClock, run: Run
) -> None:
    config = BrokerConfig(data=str(tmp_path / "data"))
    first = Node(config, clock, loop)
    run(first.topic_admin.create("t", 2, {}))
    run(move(first, {1: 0}))
    first.coordinator.close()
    first.close()
    second = Node(config, clock, loop)
    try:
        assert run(where(second)) == {("t", 1): (0, 0)}
        assert second.coordinator.share.groups["g"].is_empty
    finally:
        second.coordinator.close()
        second.close()
