"""Consumer groups and administration in every version served; what both brokers answer alike is compared in
tests/clients/test_same_answers.py."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.broker.node import Node
from tests.support.asking import Run, ask, versions


@pytest.fixture(autouse=True)
def topic(node: Node, run: Run) -> None:
    run(node.topic_admin.create("t", 2, {}))


def heartbeat(node: Node, member: str, epoch: int, version: int = 1, **fields: Any) -> Any:
    joining = {"rebalance_timeout": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    said = {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **(joining if epoch == 0 else {}),
        **fields,
    }
    return ask(node, 68, version, group_id="g", member_id=member, member_epoch=epoch, **said)


@pytest.mark.parametrize("version", versions(68))
def test_a_member_joins_and_is_told_what_it_reads(node: Node, run: Run, version: int) -> None:
    joined = run(heartbeat(node, "m", 0, version))
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval.total_seconds() == 5
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (node.catalogue.topics["t"].id, (0, 1))
    again = run(heartbeat(node, "m", 1, version))
    assert (again.error_code, again.assignment) == (0, None)


def test_who_waits_for_others_is_told_to_ask_again_soon(node: Node, run: Run) -> None:
    run(heartbeat(node, "m", 0))
    waiting = run(heartbeat(node, "n", 0))
    assert waiting.heartbeat_interval.total_seconds() == 0.5
    kept = run(heartbeat(node, "m", 1)).assignment.topic_partitions
    owned = [{"topic_id": each.topic_id, "partitions": each.partitions} for each in kept]
    run(heartbeat(node, "m", 1, topic_partitions=owned))
    assert run(heartbeat(node, "n", 2)).heartbeat_interval.total_seconds() == 5


@pytest.mark.parametrize("version", versions(69))
def test_groups_of_the_other_kind_are_not_described(node: Node, run: Run, version: int) -> None:
    run(heartbeat(node, "m", 0))
    node.coordinator.offsets.check_commit("classic", "", None, -1)
    asked = ["g", "classic", "missing"]
    answer = run(ask(node, 69, version, group_ids=asked, include_authorized_operations=False))
    assert [group.error_code.value for group in answer.groups] == [0, 69, 69]
    assert answer.groups[0].members[0].target_assignment.topic_partitions[0].topic_name == "t"


def test_partitions_of_a_topic_that_is_gone_are_not_told(node: Node, run: Run) -> None:
    run(heartbeat(node, "m", 0))
    run(node.topic_admin.delete("t"))
    assert run(heartbeat(node, "m", 1)).assignment.topic_partitions == ()


@pytest.mark.parametrize("version", versions(8, first=9))
def test_a_commit_of_an_earlier_epoch_is_refused_for_new_partitions_only(
    node: Node, run: Run, version: int
) -> None:
    run(heartbeat(node, "m", 0))
    run(node.topic_admin.create("u", 1, {}))
    run(heartbeat(node, "m", 1, subscribed_topic_names=["t", "u"]))

    async def commit() -> dict[str, int]:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        names = {node.catalogue.topics[name].id: name for name in "tu"}
        answer = await ask(
            node,
            8,
            version,
            group_id="g",
            generation_id_or_member_epoch=1,
            member_id="m",
            group_instance_id=None,
            topics=[
                {"name": name, "topic_id": topic_id, "partitions": [{**partition, "committed_metadata": ""}]}
                for topic_id, name in names.items()
            ],
        )
        return {
            names[t.topic_id] if version >= 10 else t.name: t.partitions[0].error_code.value
            for t in answer.topics
        }

    assert run(commit()) == {"t": 0, "u": 113}
    assert set(node.coordinator.offsets.of("g")) == {"t"}


@pytest.mark.parametrize("version", versions(43))
def test_there_is_never_an_election(node: Node, run: Run, version: int) -> None:
    asked = [{"topic": "t", "partitions": [0]}]
    answer = run(ask(node, 43, version, election_type=0, topic_partitions=asked, timeout=1000))
    assert answer.replica_election_results[0].partition_result[0].error_code == 84


@pytest.mark.parametrize("version", versions(45))
def test_partitions_stay_on_the_only_node(node: Node, run: Run, version: int) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": i, "replicas": [7 + i]} for i in (0, 1)]}]
    fields = {"timeout": 1000, "topics": topics, "allow_replication_factor_change": True}
    (topic,) = run(ask(node, 45, version, **fields)).responses
    assert [partition.error_code.value for partition in topic.partitions] == [0, 39]


@pytest.mark.parametrize("version", versions(49))
def test_quotas_are_kept(node: Node, run: Run, version: int) -> None:
    entity = [{"entity_type": "user", "entity_name": None}]
    changes = [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]
    altered = run(ask(node, 49, version, entries=[{"entity": entity, "ops": changes}], validate_only=False))
    assert altered.entries[0].error_code == 0
    told = run(ask(node, 48, version, components=[], strict=False)).entries
    assert [(entry.entity[0].entity_name, entry.values[0].value) for entry in told] == [(None, 5.0)]


@pytest.mark.parametrize("version", versions(57))
def test_features_stay_as_they_are(node: Node, run: Run, version: int) -> None:
    def update(level: int) -> int:
        change = {"feature": "group.version", "max_version_level": level, "upgrade_type": 2}
        fields = {"timeout": 1000, "feature_updates": [{**change, "allow_downgrade": True}]}
        return int(run(ask(node, 57, version, validate_only=False, **fields)).error_code)

    assert (update(1), update(0)) == (0, 95)


@pytest.mark.parametrize("api_key", [29, 30, 31])
def test_there_are_no_access_rules(node: Node, run: Run, api_key: int) -> None:
    for version in versions(api_key):
        answer = run(ask(node, api_key, version, creations=[{}], filters=[{}]))
        results = getattr(answer, {29: "", 30: "results", 31: "filter_results"}[api_key], [answer])
        assert [result.error_code.value for result in results] == [54]


@pytest.mark.parametrize("api_key", [17, 36])
def test_nobody_is_asked_who_they_are(node: Node, run: Run, api_key: int) -> None:
    for version in versions(api_key):
        assert run(ask(node, api_key, version, mechanism="PLAIN", auth_bytes=b"x")).error_code == 34


@pytest.mark.parametrize("version", versions(34))
def test_there_is_one_directory(node: Node, run: Run, version: int) -> None:
    dirs = [{"path": "/elsewhere", "topics": [{"name": "t", "partitions": [0]}]}]
    (topic,) = run(ask(node, 34, version, dirs=dirs)).results
    assert topic.partitions[0].error_code == 57


@pytest.mark.parametrize("version", versions(55))
def test_the_node_decides_alone(node: Node, run: Run, version: int) -> None:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    (topic,) = run(ask(node, 55, version, topics=topics)).topics
    assert [voter.replica_id for voter in topic.partitions[0].current_voters] == [7]


def test_the_only_broker_is_not_unregistered(node: Node, run: Run) -> None:
    assert run(ask(node, 64, 0, broker_id=7)).error_code == 42


def test_a_groups_settings_are_bounded_by_the_brokers_and_outlive_changes_of_these(
    node: Node, run: Run
) -> None:
    def alter(**settings: str) -> int:
        configs = [
            {"name": name.replace("_", "."), "config_operation": 0, "value": value}
            for name, value in settings.items()
        ]
        resources = [{"resource_type": 32, "resource_name": "g", "configs": configs}]
        return int(run(ask(node, 44, 1, resources=resources, validate_only=False)).responses[0].error_code)

    assert alter(consumer_session_timeout_ms="50000") == 0
    assert alter(consumer_heartbeat_interval_ms="50001") == 40
    run(heartbeat(node, "m", 0))
    run(node.alter_broker({"group.consumer.max.session.timeout.ms": "46000"}))
    assert node.coordinator.settings.of("g").consumer_session_timeout_ms == 50_000
