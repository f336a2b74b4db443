"""Kafka's own tools (the Java client's newest versions of every request) administer topics and groups."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from tests.support.apache_kafka import jars, java, run_tool
from tests.support.maven import JarsUnavailable
from tests.support.waiting import wait_for


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    try:
        jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[millstream.Broker]:
    with millstream.Broker(tmp_path / "data") as broker:
        yield broker


def tool(broker: millstream.Broker, name: str, *arguments: str) -> str:
    ended = run_tool(name, "--bootstrap-server", broker.address, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_topics_and_their_settings(broker: millstream.Broker, tmp_path: Path) -> None:
    tool(
        broker,
        "TopicCommand",
        "--create",
        "--topic",
        "t",
        "--partitions",
        "3",
        "--config",
        "retention.ms=5000",
    )
    tool(broker, "TopicCommand", "--alter", "--topic", "t", "--partitions", "4")
    described = tool(broker, "TopicCommand", "--describe", "--topic", "t")
    assert "PartitionCount: 4" in described
    assert "retention.ms=5000" in described
    entity = ("--entity-type", "topics", "--entity-name", "t")
    tool(broker, "kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "segment.ms=12345")
    assert "segment.ms=12345" in tool(broker, "kafka.admin.ConfigCommand", "--describe", *entity)
    assert f'"logDir":"{tmp_path / "data"}"' in tool(broker, "LogDirsCommand", "--describe")
    tool(broker, "TopicCommand", "--delete", "--topic", "t")
    assert tool(broker, "TopicCommand", "--list").strip() == ""


def test_a_group_of_the_java_consumer(broker: millstream.Broker) -> None:
    tool(broker, "TopicCommand", "--create", "--topic", "t", "--partitions", "2")
    tool(broker, "VerifiableProducer", "--topic", "t", "--max-messages", "200", "--acks", "-1")
    groups = "consumer.group.ConsumerGroupCommand"
    process = subprocess.Popen(
        java(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", broker.address, "--topic", "t", "--group-id", "g"),
            *("--reset-policy", "earliest", "--max-messages", "200"),
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    events = [json.loads(line) for line in output.splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 200
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    # A dynamic member that ends says so: the group is empty at once, not after its session.
    wait_for(
        lambda: "Empty" in tool(broker, groups, "--list", "--state"), what="the group is empty", timeout=20
    )
    tool(broker, groups, "--group", "g", "--reset-offsets", "--to-earliest", "--topic", "t", "--execute")
    described = tool(broker, groups, "--describe", "--group", "g")
    rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
    assert {row[3] for row in rows} == {"0"}  # current offset
    assert sum(int(row[5]) for row in rows) == 200  # lag
    tool(broker, groups, "--group", "g", "--delete-offsets", "--topic", "t:0")
    tool(broker, groups, "--delete", "--group", "g")
    assert "g" not in tool(broker, groups, "--list").split()
