"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, in every version served."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.node import Node
from millstream.broker.server import Server
from millstream.core.config import BrokerConfig
from millstream.core.errors import LogError
from millstream.records.build import Record, build_batch
from tests.support.asking import Run, ask, versions
from tests.support.disk import SimulatedDisk
from tests.support.fake_peer import with_server

STORAGE_ERROR = 56


def topic(name: str, partitions: int = 2, replication: int = 1, **more: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "assignments": more.pop("assignments", []),
        "configs": configs,
    }


def create(node: Node, version: int, *topics: dict[str, Any], validate_only: bool = False) -> Any:
    return ask(node, 19, version, topics=topics, timeout=1000, validate_only=validate_only)


@pytest.mark.parametrize("version", versions(19))
def test_a_topic_is_created_and_described_in_the_answer(node: Node, run: Run, version: int) -> None:
    answer = run(create(node, version, topic("t", 3, configs={"retention.ms": "1000"})))
    (result,) = answer.topics
    assert (result.name, result.error_code) == ("t", 0)
    created = node.catalogue.topics["t"]
    assert (created.partitions, created.config.retention_ms) == (3, 1000)
    assert node.topics.partition("t", 2) is not None
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        entries = {entry.name: entry for entry in result.configs}
        assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("1000", 1)
        assert (entries["cleanup.policy"].value, entries["cleanup.policy"].config_source) == ("delete", 5)
    if version >= 7:
        assert result.topic_id == created.id


def test_minus_one_is_the_broker_s_own_number_of_partitions_and_replicas(node: Node, run: Run) -> None:
    run(create(node, 7, topic("t", -1, -1)))
    assert node.catalogue.topics["t"].partitions == node.config.num_partitions


def assigned(*brokers: list[int], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": first + n, "broker_ids": ids} for n, ids in enumerate(brokers)]


@pytest.mark.parametrize(
    ("wanted", "code", "says"),
    [
        (topic("bad name"), 17, "only ASCII letters"),
        (topic("a_b"), 17, "a.b"),
        (topic("a.b"), 36, "exists already"),
        (topic("t", 0), 37, "from 1 to 10000"),
        (topic("t", -2), 37, "from 1 to 10000"),
        (topic("t", 10_001), 37, "from 1 to 10000"),
        (topic("t", replication=2), 38, "single node"),
        (topic("t", replication=0), 38, "single node"),
        (topic("t", configs={"retention.sm": "1"}), 40, "retention.ms"),
        (topic("t", configs={"retention.ms": "soon"}), 40, "whole number"),
        (topic("t", configs={"retention.ms": None}), 40, "no value"),
        (topic("t", 1, assignments=assigned([7])), 42, "must be -1"),
        (topic("t", -1, -1, assignments=assigned([1])), 39, "only be assigned to this node"),
        (topic("t", -1, -1, assignments=assigned([7, 7])), 39, "only be assigned to this node"),
        (topic("t", -1, -1, assignments=assigned([7], first=1)), 39, "without gaps"),
    ],
)
def test_a_topic_that_can_not_be_is_refused_and_the_others_are_created(
    node: Node, run: Run, wanted: dict[str, Any], code: int, says: str
) -> None:
    run(create(node, 7, topic("a.b")))
    answer = run(create(node, 7, topic("good"), wanted))
    results = {result.name: result for result in answer.topics}
    assert results["good"].error_code == 0
    assert results[wanted["name"]].error_code == code
    assert says in results[wanted["name"]].error_message
    assert set(node.catalogue.topics) == {"a.b", "good"}


def test_a_topic_named_twice_in_one_request_is_not_created(node: Node, run: Run) -> None:
    answer = run(create(node, 7, topic("t"), topic("t", 5)))
    (result,) = answer.topics
    assert result.error_code == 42
    assert not node.catalogue.topics


def test_partitions_may_be_assigned_to_this_node_by_hand(node: Node, run: Run) -> None:
    answer = run(create(node, 7, topic("t", -1, -1, assignments=assigned([7], [7], [7]))))
    assert answer.topics[0].error_code == 0
    assert node.catalogue.topics["t"].partitions == 3


def test_validating_only_creates_nothing(node: Node, run: Run) -> None:
    answer = run(create(node, 7, topic("t", 3), topic("no/slash"), validate_only=True))
    assert [result.error_code for result in answer.topics] == [0, 17]
    assert answer.topics[0].num_partitions == 3
    assert not node.catalogue.topics


def test_a_topic_whose_files_can_not_be_made_is_not_there_and_can_be_created_later(tmp_path: Path) -> None:
    disk = SimulatedDisk()

    async def steps(server: Server, _: object) -> None:
        node = server.node
        disk.fail_open = lambda path: "/t-1/" in path
        (result,) = (await create(node, 7, topic("t", 2))).topics
        assert (result.error_code, node.catalogue.topics.get("t")) == (STORAGE_ERROR, None)
        assert "No space left" in result.error_message
        assert not [name for name in disk.listing(str(tmp_path)) if name.startswith("t-")]
        disk.fail_open = lambda path: False
        node.maintenance.look_for_room()
        (result,) = (await create(node, 7, topic("t", 2))).topics
        assert result.error_code == 0

        disk.fail_open = lambda path: "/t-3/" in path
        with pytest.raises(LogError, match="No space left"):
            await node.topic_admin.add_partitions("t", 4)
        assert node.catalogue.topics["t"].partitions == 2
        disk.fail_open = lambda path: False
        node.maintenance.look_for_room()
        await node.topic_admin.add_partitions("t", 4)
        assert node.topics.partition("t", 3) is not None

    with_server(steps, topics={"other": 1}, config=BrokerConfig(data=str(tmp_path)), files=disk)


def test_on_a_full_disk_no_topic_is_begun_but_in_memory(tmp_path: Path) -> None:
    disk = SimulatedDisk()

    async def steps(server: Server, _: object) -> None:
        disk.room = 0
        server.node.maintenance.look_for_room()
        kept, lost = topic("kept"), topic("lost", configs={"millstream.storage": "memory"})
        refused, created = (await create(server.node, 7, kept, lost)).topics
        assert (refused.error_code, created.error_code) == (STORAGE_ERROR, 0)
        assert "the disk is full" in refused.error_message
        disk.room = None
        server.node.maintenance.look_for_room()
        (created,) = (await create(server.node, 7, kept)).topics
        assert created.error_code == 0

    with_server(steps, topics={"other": 1}, config=BrokerConfig(data=str(tmp_path)), files=disk)


@pytest.mark.parametrize("version", versions(20))
def test_topics_are_deleted_by_name_and_from_version_6_by_id(node: Node, run: Run, version: int) -> None:
    run(create(node, 7, topic("t"), topic("u")))
    (t, u) = node.catalogue.topics["t"], node.catalogue.topics["u"]
    if version < 6:
        answer = run(ask(node, 20, version, topic_names=["t", "nowhere"], timeout=1000))
        assert {(r.name, int(r.error_code)) for r in answer.responses} == {("t", 0), ("nowhere", 3)}
        assert set(node.catalogue.topics) == {"u"}
        return
    wanted = [
        {"name": "t", "topic_id": None},
        {"name": None, "topic_id": u.id},
        {"name": None, "topic_id": uuid.UUID(int=99)},
        {"name": None, "topic_id": None},
        {"name": "t", "topic_id": t.id},
    ]
    answer = run(ask(node, 20, version, topics=wanted, timeout=1000))
    assert [int(r.error_code) for r in answer.responses] == [0, 0, 100, 42, 42]
    assert (answer.responses[1].name, answer.responses[1].topic_id) == ("u", u.id)
    assert "either by its name or by its id" in answer.responses[3].error_message
    assert not node.catalogue.topics
    assert node.topics.partition("t", 0) is None


@pytest.mark.parametrize(("version", "code"), [(1, 42), (3, 73), (6, 73)])
def test_topics_are_not_deleted_where_that_is_switched_off(
    node: Node, run: Run, version: int, code: int
) -> None:
    run(create(node, 7, topic("t")))
    node.config = dataclasses.replace(node.config, delete_topic_enable=False)
    answer = run(
        ask(node, 20, version, topic_names=["t"], topics=[{"name": "t", "topic_id": None}], timeout=1000)
    )
    assert answer.responses[0].error_code == code
    assert "t" in node.catalogue.topics


@pytest.mark.parametrize("version", versions(37))
def test_partitions_are_added_topic_by_topic(node: Node, run: Run, version: int) -> None:
    run(create(node, 7, topic("t", 2), topic("u", 2), topic("v", 1)))
    wanted = [
        {"name": "t", "count": 4, "assignments": None},
        {"name": "u", "count": 2, "assignments": None},
        {"name": "nowhere", "count": 2, "assignments": None},
        {"name": "v", "count": 3, "assignments": [{"broker_ids": [7]}]},
    ]
    answer = run(ask(node, 37, version, topics=wanted, timeout=1000, validate_only=False))
    assert {r.name: int(r.error_code) for r in answer.results} == {"t": 0, "u": 37, "nowhere": 3, "v": 39}
    assert node.catalogue.topics["t"].partitions == 4
    assert node.topics.partition("t", 3) is not None
    assert node.catalogue.topics["v"].partitions == 1
    good = [{"name": "v", "count": 3, "assignments": [{"broker_ids": [7]}, {"broker_ids": [7]}]}]
    answer = run(ask(node, 37, version, topics=good, timeout=1000, validate_only=True))
    assert answer.results[0].error_code == 0
    assert node.catalogue.topics["v"].partitions == 1


@pytest.mark.parametrize("version", versions(21))
def test_records_are_deleted_up_to_an_offset_or_to_the_end(node: Node, run: Run, version: int) -> None:
    run(create(node, 7, topic("t", 4), topic("compacted", 1, configs={"cleanup.policy": "compact"})))
    for index in range(3):
        _fill(node, "t", index, 10)

    def delete(name: str, *wanted: tuple[int, int]) -> list[tuple[int, int]]:
        partitions = [{"partition_index": index, "offset": offset} for index, offset in wanted]
        answer = run(ask(node, 21, version, topics=[{"name": name, "partitions": partitions}], timeout=1000))
        return [(int(p.error_code), p.low_watermark) for p in answer.topics[0].partitions]

    assert delete("t", (0, 4), (1, -1), (2, 11), (2, -2), (9, 0)) == [
        (0, 4),
        (0, 10),
        (1, -1),
        (1, -1),
        (3, -1),
    ]
    assert delete("t", (0, 2)) == [(0, 4)]  # it never goes back
    assert delete("nowhere", (0, 0)) == [(3, -1)]
    assert delete("compacted", (0, 0)) == [(44, -1)]


def _fill(node: Node, name: str, index: int, records: int) -> None:
    """Append empty records, a batch each."""
    partition = node.topics.partition(name, index)
    assert partition is not None
    for _ in range(records):
        partition.log.append(bytearray(build_batch([Record(None, b"v")])), node.clock.now_ms())
    partition.log.write_staged()
