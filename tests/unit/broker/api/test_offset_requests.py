"""OffsetCommit, OffsetFetch and OffsetDelete, in every version served."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from millstream.broker.node import Node
from millstream.core.clock import ManualClock
from tests.support.asking import Run, ask, join, sync, versions

UNKNOWN_ID = uuid.UUID(int=99)
MINUTE = 60.0


@pytest.fixture(autouse=True)
def _topics(node: Node, run: Run) -> None:
    run(node.topic_admin.create("t", 3, {}))
    run(node.topic_admin.create("u", 1, {}))


def commit(
    node: Node,
    version: int,
    offsets: dict[tuple[str, int], Any],
    *,
    group: str = "g",
    member_id: str = "",
    generation: int = -1,
    retention: int = -1,
) -> Any:
    """``offsets`` by topic and partition: an offset, or (offset, metadata, leader epoch)."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), value in offsets.items():
        offset, metadata, epoch = value if isinstance(value, tuple) else (value, "", -1)
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": epoch,
                "committed_metadata": metadata,
            }
        )
    return ask(
        node,
        8,
        version,
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        group_instance_id=None,
        retention_time=retention,
        topics=[
            {"name": name, "topic_id": _id(node, name), "partitions": partitions}
            for name, partitions in topics.items()
        ],
    )


def _id(node: Node, name: str) -> uuid.UUID:
    topic = node.catalogue.topics.get(name)
    return topic.id if topic else UNKNOWN_ID


def errors(answer: Any) -> list[int]:
    return [int(partition.error_code) for topic in answer.topics for partition in topic.partitions]


def fetch(node: Node, version: int, asked: dict[str, list[int]] | None, group: str = "g") -> Any:
    topics = None
    if asked is not None:
        topics = [
            {"name": name, "topic_id": _id(node, name), "partition_indexes": indexes}
            for name, indexes in asked.items()
        ]
    return ask(
        node,
        9,
        version,
        group_id=group,
        topics=topics,
        groups=[{"group_id": group, "topics": topics}],
        require_stable=True,
    )


def fetched(node: Node, answer: Any, version: int) -> dict[tuple[str, int], tuple[int, str, int]]:
    if version >= 8:
        (answer,) = answer.groups
    assert version < 2 or answer.error_code == 0
    return {
        (
            node.catalogue.by_id[topic.topic_id].name if version >= 10 else topic.name,
            partition.partition_index,
        ): (partition.committed_offset, partition.metadata, int(partition.error_code))
        for topic in answer.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", versions(8))
def test_offsets_are_committed_partition_by_partition(node: Node, run: Run, version: int) -> None:
    answer = run(
        commit(
            node,
            version,
            {
                ("t", 0): (5, "note", 3),
                ("t", 7): 5,
                ("t", -1): 5,
                ("t", 1): -5,
                ("t", 2): (6, "x" * 5000, -1),
                ("nowhere", 0): 5,
                ("u", 0): (7, None, -1),
            },
        )
    )
    unknown_topic = 100 if version >= 10 else 3
    assert errors(answer) == [0, 3, 3, 0, 12, unknown_topic, 0]
    kept = node.catalogue.offsets_of("g")
    assert set(kept) == {"t", "u"}
    committed = kept["t"][0]
    assert (committed.offset, committed.metadata) == (5, "note")
    assert committed.leader_epoch == (3 if version >= 6 else -1)
    assert committed.commit_ms == node.clock.now_ms()
    assert kept["u"][0].offset == 7
    assert kept["t"][1].offset == -5  # Kafka takes these, and clients read them as "none"


@pytest.mark.parametrize("version", versions(8))
def test_only_members_of_the_generation_commit_to_a_group_that_has_members(
    node: Node, run: Run, version: int
) -> None:
    missing = run(commit(node, version, {("t", 0): 1}, member_id="m", generation=3))
    assert errors(missing) == [69 if version >= 9 else 22]
    first = run(join(node, 3))
    member_id = first.member_id

    def committed(member: str, generation: int) -> list[int]:
        return errors(
            run(
                commit(
                    node, version, {("t", 0): 1, ("nowhere", 0): 1}, member_id=member, generation=generation
                )
            )
        )

    unknown_topic = 100 if version >= 10 else 3
    assert committed(member_id, 1) == [27, unknown_topic]
    run(sync(node, 5, member_id, 1, {}))
    assert committed(member_id, 1) == [0, unknown_topic]
    assert committed(member_id, 2) == [22, unknown_topic]
    assert committed("stranger", 1) == [25, unknown_topic]
    assert committed("", -1) == [25, unknown_topic]


@pytest.mark.parametrize("version", versions(9))
def test_offsets_are_fetched_and_unknown_is_minus_one(node: Node, run: Run, version: int) -> None:
    run(commit(node, 8, {("t", 0): (5, "note", 2), ("t", 1): 0}))
    asked = {"t": [0, 1, 2, 9], "u": [0]}
    assert fetched(node, run(fetch(node, version, asked)), version) == {
        ("t", 0): (5, "note", 0),
        ("t", 1): (0, "", 0),
        ("t", 2): (-1, "", 0),
        ("t", 9): (-1, "", 0),
        ("u", 0): (-1, "", 0),
    }
    nobody = fetched(node, run(fetch(node, version, {"t": [0]}, group="never seen")), version)
    assert nobody == {("t", 0): (-1, "", 0)}
    if version >= 2:
        assert set(fetched(node, run(fetch(node, version, None)), version)) == {("t", 0), ("t", 1)}
        assert fetched(node, run(fetch(node, version, None, group="never seen")), version) == {}


@pytest.mark.parametrize("version", versions(9, 8))
def test_many_groups_are_fetched_at_once(node: Node, run: Run, version: int) -> None:
    run(commit(node, 8, {("t", 0): 5}, group="a"))
    run(commit(node, 8, {("u", 0): 6}, group="b"))
    asked = [{"name": "u", "topic_id": _id(node, "u"), "partition_indexes": [0]}]
    answer = run(
        ask(
            node,
            9,
            version,
            groups=[{"group_id": "a", "topics": None}, {"group_id": "b", "topics": asked}],
        )
    )
    assert [
        (group.group_id, [p.committed_offset for t in group.topics for p in t.partitions])
        for group in answer.groups
    ] == [("a", [5]), ("b", [6])]


def test_an_unknown_topic_id_is_an_error_of_that_topic_alone(node: Node, run: Run) -> None:
    run(commit(node, 10, {("t", 0): 5}))
    topics = [
        {"topic_id": UNKNOWN_ID, "partition_indexes": [0]},
        {"topic_id": _id(node, "t"), "partition_indexes": [0]},
    ]
    answer = run(ask(node, 9, 10, groups=[{"group_id": "g", "topics": topics}]))
    assert [
        (p.committed_offset, int(p.error_code)) for t in answer.groups[0].topics for p in t.partitions
    ] == [
        (-1, 100),
        (5, 0),
    ]


def test_offsets_of_a_deleted_topic_do_not_come_back_with_its_name(node: Node, run: Run) -> None:
    run(commit(node, 8, {("t", 0): 5}))
    run(node.topic_admin.delete("t"))
    run(node.topic_admin.create("t", 1, {}))
    assert fetched(node, run(fetch(node, 7, {"t": [0]})), 7) == {("t", 0): (-1, "", 0)}


def test_offsets_are_deleted_but_not_in_topics_being_read(node: Node, run: Run) -> None:
    def delete(group: str, *partitions: tuple[str, int]) -> Any:
        topics = [{"name": t, "partitions": [{"partition_index": p}]} for t, p in partitions]
        return run(ask(node, 47, 0, group_id=group, topics=topics))

    assert delete("nowhere", ("t", 0)).error_code == 69
    run(commit(node, 8, {("t", 0): 5, ("t", 1): 5, ("u", 0): 5}))
    answer = delete("g", ("t", 0), ("t", 9), ("nowhere", 0))
    assert (answer.error_code, errors(answer)) == (0, [0, 3, 3])
    assert set(node.catalogue.offsets_of("g")["t"]) == {1}

    subscribed = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1)
    member = run(join(node, 3, protocols=[{"name": "range", "metadata": subscribed}]))
    run(sync(node, 5, member.member_id, member.generation_id, {}))
    answer = delete("g", ("t", 1), ("u", 0))
    assert (answer.error_code, errors(answer)) == (0, [86, 0])
    assert set(node.catalogue.offsets_of("g")) == {"t"}

    run(join(node, 3, group_id="connect", protocol_type="connect"))
    assert delete("connect", ("t", 0)).error_code == 68


def _pass(node: Node, run: Run, clock: ManualClock, seconds: float) -> None:
    async def tick() -> None:
        node.coordinator.tick(clock.monotonic())
        await node.catalogue.set_broker_overrides({})  # whatever was written is written before this

    clock.advance(seconds)
    run(tick())
    run(tick())


def test_offsets_are_forgotten_when_the_group_was_empty_for_their_retention(
    node: Node, run: Run, clock: ManualClock
) -> None:
    retention = node.config.offsets_retention_minutes * MINUTE
    member = run(join(node, 3))
    run(sync(node, 5, member.member_id, 1, {}))
    run(commit(node, 8, {("t", 0): 5}, member_id=member.member_id, generation=1))
    for _ in range(3):  # the member is alive, however long it does not commit
        clock.advance(retention)
        run(
            ask(
                node,
                12,
                0,
                group_id="g",
                member_id=member.member_id,
                generation_id=1,
            )
        )
        _pass(node, run, clock, 0)
    assert node.catalogue.offsets_of("g")
    run(ask(node, 13, 0, group_id="g", member_id=member.member_id))
    _pass(node, run, clock, retention - MINUTE)
    assert node.catalogue.offsets_of("g")
    _pass(node, run, clock, 2 * MINUTE)
    assert not node.catalogue.offsets_of("g")
    _pass(node, run, clock, 2 * MINUTE)
    assert node.coordinator.directory.find("g") is None
    assert not node.catalogue.group_states


def test_offsets_of_a_simple_consumer_are_kept_from_its_last_commit(
    node: Node, run: Run, clock: ManualClock
) -> None:
    retention = node.config.offsets_retention_minutes * MINUTE
    run(commit(node, 8, {("t", 0): 5, ("t", 1): 5}))
    _pass(node, run, clock, retention / 2)
    run(commit(node, 8, {("t", 1): 6}))
    _pass(node, run, clock, retention / 2)
    assert set(node.catalogue.offsets_of("g")["t"]) == {1}
    _pass(node, run, clock, retention / 2)
    assert not node.catalogue.offsets_of("g")


def test_an_old_client_may_choose_how_long_its_offsets_are_kept(
    node: Node, run: Run, clock: ManualClock
) -> None:
    run(commit(node, 4, {("t", 0): 5}, retention=120_000))
    run(commit(node, 5, {("t", 1): 5}, retention=120_000))
    _pass(node, run, clock, 61)
    assert set(node.catalogue.offsets_of("g")["t"]) == {0, 1}
    _pass(node, run, clock, 61)
    assert set(node.catalogue.offsets_of("g")["t"]) == {1}


def test_a_commit_at_the_moment_of_expiry_is_kept(node: Node, run: Run, clock: ManualClock) -> None:
    import asyncio

    run(commit(node, 8, {("t", 0): 5}))
    clock.advance(node.config.offsets_retention_minutes * MINUTE + 1)

    async def at_once() -> None:
        committing = asyncio.ensure_future(commit(node, 8, {("t", 0): 6}))
        await asyncio.sleep(0)
        node.coordinator.tick(clock.monotonic())
        await committing
        await node.catalogue.set_broker_overrides({})

    run(at_once())
    assert node.catalogue.offsets_of("g")["t"][0].offset == 6
