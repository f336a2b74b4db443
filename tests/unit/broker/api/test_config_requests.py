"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, in every version served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millstream.broker.node import Node
from millstream.core.config import BrokerConfig, settings_of
from millstream.core.topic_config import TopicConfig
from tests.support.asking import Run, ask, versions

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture(autouse=True)
def _topic(node: Node, run: Run) -> None:
    run(node.topic_admin.create("t", 1, {"retention.ms": "1000"}))


def describe(node: Node, kind: int, name: str, version: int = 4, keys: list[str] | None = None) -> Any:
    return ask(
        node,
        32,
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=True,
        include_documentation=True,
    )


@pytest.mark.parametrize("version", versions(32))
def test_a_topic_s_settings_are_all_there_with_where_they_come_from(
    node: Node, run: Run, version: int
) -> None:
    (result,) = run(describe(node, TOPIC, "t", version)).results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(settings_of(TopicConfig))
    retention = entries["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", 1, False)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert entries["segment.ms"].config_source == 5
    assert entries["millstream.storage"].read_only
    if version >= 3:
        kinds = {name: entry.config_type for name, entry in entries.items()}
        assert kinds["preallocate"] == 1
        assert kinds["compression.type"] == 2
        assert kinds["segment.bytes"] == 3
        assert kinds["retention.ms"] == 5
        assert kinds["min.cleanable.dirty.ratio"] == 6
        assert kinds["cleanup.policy"] == 7
        assert all(entry.documentation for entry in entries.values())


def test_the_broker_s_settings_are_described_and_what_was_changed_is_told_apart(node: Node, run: Run) -> None:
    (result,) = run(describe(node, BROKER, "7")).results
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) > set(settings_of(BrokerConfig))
    assert (entries["node.id"].value, entries["node.id"].config_source) == ("7", 4)
    assert entries["node.id"].read_only
    assert entries["num.partitions"].config_source == 5
    # What tools look for under the names that Kafka has for it.
    assert entries["advertised.listeners"].value == "PLAINTEXT://broker.example:9092"
    assert entries["log.retention.ms"].value == str(TopicConfig().retention_ms)
    assert entries["message.max.bytes"].read_only
    run(alter(node, BROKER, "", ("num.partitions", SET, "5")))
    (result,) = run(describe(node, BROKER, "7")).results
    changed = next(entry for entry in result.configs if entry.name == "num.partitions")
    assert (changed.value, changed.config_source) == ("5", 3)
    (result,) = run(describe(node, BROKER, "")).results
    assert [(entry.name, entry.value, entry.config_source) for entry in result.configs] == [
        ("num.partitions", "5", 3)
    ]


def test_only_the_settings_asked_for_are_answered(node: Node, run: Run) -> None:
    (result,) = run(describe(node, TOPIC, "t", keys=["segment.ms", "no.such"])).results
    assert [entry.name for entry in result.configs] == ["segment.ms"]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(TOPIC, "nowhere", 3), (TOPIC, "bad name", 17), (BROKER, "8", 42), (8, "x", 42), (99, "x", 42)],
)
def test_what_has_no_settings_is_an_error_of_its_own(
    node: Node, run: Run, kind: int, name: str, code: int
) -> None:
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None},
        {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None},
    ]
    answer = run(ask(node, 32, 4, resources=resources))
    assert [int(result.error_code) for result in answer.results] == [code, 0]
    assert answer.results[0].error_message
    assert not answer.results[1].configs[0].synonyms
    assert answer.results[1].configs[0].documentation is None
    answer = run(alter(node, kind, name, ("retention.ms", SET, "5")))
    assert answer.responses[0].error_code == code


async def alter(
    node: Node,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    return await ask(
        node,
        44,
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
        validate_only=validate_only,
    )


@pytest.mark.parametrize("version", versions(44))
def test_settings_are_changed_one_by_one(node: Node, run: Run, version: int) -> None:
    answer = run(
        alter(
            node,
            TOPIC,
            "t",
            ("segment.bytes", SET, "2048"),
            ("cleanup.policy", APPEND, "compact"),
            ("retention.ms", DELETE, None),
            version=version,
        )
    )
    assert answer.responses[0].error_code == 0
    topic = node.catalogue.topics["t"]
    assert topic.overrides == {"segment.bytes": "2048", "cleanup.policy": "delete,compact"}
    assert topic.config.cleanup_policy == ("delete", "compact")
    partition = node.topics.partition("t", 0)
    assert partition is not None
    assert partition.log.config is topic.config
    run(alter(node, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"), version=version))
    assert node.catalogue.topics["t"].config.cleanup_policy == ("compact",)
    run(alter(node, TOPIC, "t", ("cleanup.policy", APPEND, "compact"), version=version))
    assert node.catalogue.topics["t"].config.cleanup_policy == ("compact",)


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ([("no.such", SET, "1")], 40, "no.such"),
        ([("no.such", APPEND, "x")], 40, "no.such"),
        ([("retention.ms", SET, "x")], 40, "whole number"),
        ([("retention.ms", SET, None)], 42, "no value"),
        ([("retention.ms", APPEND, "1")], 40, "not a list"),
        ([("cleanup.policy", APPEND, "shred")], 40, "delete, compact"),
        ([("retention.ms", 9, "1")], 42, "unknown operation"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], 42, "2 times"),
        ([("millstream.storage", SET, "memory")], 40, "when a topic is created"),
        ([("segment.ms", SET, "5"), ("retention.ms", SET, "x")], 40, "whole number"),
    ],
)
def test_a_change_that_is_wrong_changes_nothing(
    node: Node, run: Run, changes: list[tuple[str, int, str | None]], code: int, says: str
) -> None:
    (response,) = run(alter(node, TOPIC, "t", *changes)).responses
    assert response.error_code == code
    assert says in response.error_message
    assert node.catalogue.topics["t"].overrides == {"retention.ms": "1000"}


def test_taking_back_what_was_never_set_is_no_mistake(node: Node, run: Run) -> None:
    for name in ("segment.ms", "no.such"):
        (response,) = run(alter(node, TOPIC, "t", (name, DELETE, None))).responses
        assert response.error_code == 0


def test_validating_only_changes_nothing(node: Node, run: Run) -> None:
    for value, code in (("5", 0), ("x", 40)):
        answer = run(alter(node, TOPIC, "t", ("segment.ms", SET, value), validate_only=True))
        assert answer.responses[0].error_code == code
    answer = run(alter(node, BROKER, "7", ("num.partitions", SET, "3"), validate_only=True))
    assert answer.responses[0].error_code == 0
    assert node.catalogue.topics["t"].overrides == {"retention.ms": "1000"}
    assert node.catalogue.broker_overrides == {}


def test_the_broker_s_settings_are_changed_while_it_runs_and_taken_back(node: Node, run: Run) -> None:
    run(alter(node, BROKER, "7", ("num.partitions", SET, "3"), ("group.max.size", SET, "9")))
    assert (node.config.num_partitions, node.config.group_max_size) == (3, 9)
    run(alter(node, BROKER, "7", ("num.partitions", DELETE, None)))
    assert (node.config.num_partitions, node.config.group_max_size) == (1, 9)
    (response,) = run(alter(node, BROKER, "7", ("listen", SET, "0.0.0.0:1"))).responses
    assert response.error_code == 42
    assert "millstream.toml" in response.error_message


def test_of_changes_at_once_none_is_lost(node: Node, run: Run) -> None:
    async def all_at_once() -> None:
        await asyncio.gather(
            *[
                alter(node, TOPIC, "t", (name, SET, "12345"))
                for name in ("segment.ms", "flush.ms", "segment.bytes", "file.delete.delay.ms")
            ]
        )

    run(all_at_once())
    assert len(node.catalogue.topics["t"].overrides) == 5


@pytest.mark.parametrize("version", versions(33))
def test_settings_are_replaced_as_a_whole(node: Node, run: Run, version: int) -> None:
    run(node.topic_admin.create("m", 1, {"millstream.storage": "memory", "retention.ms": "5"}))

    def replace(kind: int, name: str, configs: dict[str, str | None], validate_only: bool = False) -> Any:
        given = [{"name": key, "value": value} for key, value in configs.items()]
        resources = [{"resource_type": kind, "resource_name": name, "configs": given}]
        (response,) = run(ask(node, 33, version, resources=resources, validate_only=validate_only)).responses
        return int(response.error_code)

    assert replace(TOPIC, "t", {"segment.ms": "5"}) == 0
    assert node.catalogue.topics["t"].overrides == {"segment.ms": "5"}
    assert replace(TOPIC, "t", {}, validate_only=True) == 0
    assert node.catalogue.topics["t"].overrides == {"segment.ms": "5"}
    assert replace(TOPIC, "t", {"segment.ms": None}) == 42
    assert replace(TOPIC, "t", {"nonsense": "1"}) == 40
    assert replace(TOPIC, "m", {"segment.ms": "6"}) == 0  # what can't change stays
    assert node.catalogue.topics["m"].overrides == {"millstream.storage": "memory", "segment.ms": "6"}
    assert replace(TOPIC, "m", {"millstream.storage": "disk"}) == 40
    assert replace(BROKER, "", {"num.partitions": "4"}) == 0
    assert replace(BROKER, "", {}) == 0
    assert node.catalogue.broker_overrides == {}
    assert node.config.num_partitions == 1
