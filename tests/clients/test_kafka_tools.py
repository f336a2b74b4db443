"""Kafka's own tools (the Java client's newest versions of every request) administer topics, groups and the
node, and measure it; on our broker and on Kafka itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.records.build import Record
from tests.support.kafka_tools import KafkaTools
from tests.support.maven import JarsUnavailable
from tests.support.topics import create_topic, produce, values


@pytest.fixture(scope="module")
def tools(address: str) -> Iterator[KafkaTools]:
    try:
        with KafkaTools(address) as tools:
            yield tools
    except JarsUnavailable as error:
        pytest.skip(str(error))


def json_file(path: Path, **content: object) -> Path:
    path.write_text(json.dumps({"version": 1, **content}))
    return path


def test_topics_are_created_grown_described_and_deleted(tools: KafkaTools, name: str) -> None:
    topic = ("--topic", name)
    tools.ok("TopicCommand", "--create", *topic, "--partitions", 3, "--config", "retention.ms=5000")
    code, said = tools.run("TopicCommand", "--create", *topic)
    assert (code, "exists" in said) == (1, True)
    tools.ok("TopicCommand", "--alter", *topic, "--partitions", 4)
    described = tools.ok("TopicCommand", "--describe", *topic)
    assert "PartitionCount: 4" in described
    assert "retention.ms=5000" in described
    assert described.count("Isr: 0") == 4
    assert name in tools.ok("TopicCommand", "--list").split()
    tools.ok("TopicCommand", "--delete", *topic)
    assert name not in tools.ok("TopicCommand", "--list").split()


def test_settings_of_topics_brokers_groups_and_clients_are_changed(tools: KafkaTools, name: str) -> None:
    create_topic(tools.address, name)
    for entity, setting in (
        ("topics", "segment.ms=12345"),
        ("clients", "producer_byte_rate=1048576"),
        ("groups", "consumer.session.timeout.ms=50000"),
    ):
        of = ("--entity-type", entity, "--entity-name", name)
        tools.ok("ConfigCommand", "--alter", *of, "--add-config", setting)
        found = tools.ok("ConfigCommand", "--describe", *of)
        assert re.search(re.escape(setting) + r"(\.0)?\b", found), found
        tools.ok("ConfigCommand", "--alter", *of, "--delete-config", setting.partition("=")[0])
        assert setting not in tools.ok("ConfigCommand", "--describe", *of)
    broker = ("--entity-type", "brokers", "--entity-name", 0)
    described = tools.ok("ConfigCommand", "--describe", "--all", *broker)
    for setting in ("advertised.listeners", "node.id", "log.dirs", "log.retention.ms", "num.partitions"):
        assert f"\n  {setting}=" in described
    user = ("--entity-type", "users", "--entity-name", name)
    tools.ok("ConfigCommand", "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
    assert "iterations=4096" in tools.ok("ConfigCommand", "--describe", *user)
    tools.ok("ConfigCommand", "--alter", *user, "--delete-config", "SCRAM-SHA-256")


def test_a_producer_and_a_consumer_are_measured(tools: KafkaTools, name: str) -> None:
    create_topic(tools.address, name, 2)
    sent = tools.ok(
        "ProducerPerformance", "--topic", name, "--num-records", 2000, "--record-size", 100,
        "--throughput", -1, "--command-property", "acks=all",
    )  # fmt: skip
    assert "2000 records sent" in sent
    read = tools.ok("ConsumerPerformance", "--topic", name, "--num-records", 2000, "--timeout", 20000)
    assert read.splitlines()[-1].split(", ")[4] == "2000"
    ends = tools.ok("GetOffsetShell", "--topic", name).split()
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == 2000
    latency = tools.ok(
        "EndToEndLatency", "--topic", f"{name}-e", "--num-records", 50, "--producer-acks", "all",
        "--record-size", 90,
    )  # fmt: skip
    assert "Percentiles" in latency


def test_records_are_deleted_and_their_offsets_told(tools: KafkaTools, name: str, tmp_path: Path) -> None:
    create_topic(tools.address, name, 1)
    produce(tools.address, name, [Record(None, b"v", timestamp=1_700_000_000_000 + n) for n in range(10)])
    wanted = json_file(tmp_path / "offsets", partitions=[{"topic": name, "partition": 0, "offset": 4}])
    assert "low_watermark: 4" in tools.ok("DeleteRecordsCommand", "--offset-json-file", wanted)
    for time, offset in (("earliest", 4), ("latest", 10), ("max-timestamp", 9)):
        told = tools.ok("GetOffsetShell", "--topic", name, "--time", time)
        assert told.strip() == f"{name}:0:{offset}"


def test_groups_are_listed_described_reset_and_deleted(tools: KafkaTools, name: str) -> None:
    create_topic(tools.address, name, 2)
    for partition in range(2):
        produce(tools.address, name, values(*range(50)), partition)
    command, group = "ConsumerGroupCommand", ("--group", name)
    tools.ok(command, *group, "--reset-offsets", "--to-offset", 20, "--topic", name, "--execute")
    assert re.search(rf"^{name} +Empty", tools.ok(command, "--list", "--state"), re.MULTILINE)
    assert name in tools.ok("GroupsCommand", "--list")
    rows = [line.split() for line in tools.ok(command, "--describe", *group).splitlines()]
    assert {(row[3], row[4], row[5]) for row in rows if row[:1] == [name]} == {("20", "50", "30")}
    tools.ok(command, *group, "--delete-offsets", "--topic", f"{name}:0")
    tools.ok(command, "--delete", *group)
    assert name not in tools.ok(command, "--list").split()


def test_the_node_tells_of_its_disk_its_versions_and_its_features(tools: KafkaTools, name: str) -> None:
    create_topic(tools.address, name, 1)
    told = tools.ok("LogDirsCommand", "--describe", "--topic-list", name).splitlines()[-1]
    (broker,) = json.loads(told)["brokers"]
    assert [p["partition"] for each in broker["logDirs"] for p in each["partitions"]] == [f"{name}-0"]
    assert "Produce(0): 0 to 13 [usable: 13]" in tools.ok("BrokerApiVersionsCommand")
    features = tools.ok("FeatureCommand", "describe")
    for feature, level in (("group.version", 1), ("transaction.version", 2)):
        assert re.search(rf"{feature} .*FinalizedVersionLevel: {level}\b", features)
    assert "LeaderId:" in tools.ok("MetadataQuorumCommand", "describe", "--status")
    assert "TransactionalId" in tools.ok("TransactionsCommand", "list")
    assert "ProducerId" in tools.ok(
        "TransactionsCommand", "describe-producers", "--topic", name, "--partition", 0
    )


def test_leaders_are_elected_and_partitions_reassigned_on_one_node(
    tools: KafkaTools, name: str, tmp_path: Path
) -> None:
    create_topic(tools.address, name, 2)
    of = ("--topic", name, "--partition", 0)
    assert "Valid replica already elected" in tools.ok(
        "LeaderElectionCommand", "--election-type", "preferred", *of
    )
    topics = json_file(tmp_path / "topics", topics=[{"topic": name}])
    command = "ReassignPartitionsCommand"
    proposed = tools.ok(
        command, "--generate", "--topics-to-move-json-file", topics, "--broker-list", 0
    ).splitlines()[-1]
    assert len(json.loads(proposed)["partitions"]) == 2
    plan = json_file(tmp_path / "plan", partitions=[{"topic": name, "partition": 0, "replicas": [0]}])
    tools.ok(command, "--execute", "--reassignment-json-file", plan)
    assert "is completed" in tools.ok(command, "--verify", "--reassignment-json-file", plan)
    assert "No partition reassignments" in tools.ok(command, "--list")
