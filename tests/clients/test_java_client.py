"""Kafka's own producer and consumer: topic ids, fetch sessions and the newest versions of everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from tests.support.apache_kafka import jars, run_tool
from tests.support.maven import JarsUnavailable


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    try:
        jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[millstream.Broker]:
    data: Path = tmp_path_factory.mktemp("data")
    with millstream.Broker(data, num_partitions=3) as broker:
        yield broker


def tool(broker: millstream.Broker, name: str, *arguments: str) -> str:
    ended = run_tool(name, "--bootstrap-server", broker.address, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("acks", ["1", "-1"])
def test_every_record_of_an_idempotent_producer_is_acknowledged(broker: millstream.Broker, acks: str) -> None:
    out = tool(broker, "VerifiableProducer", "--topic", f"a{acks}", "--max-messages", "3000", "--acks", acks)
    events = [json.loads(line) for line in out.splitlines()]
    (summary,) = (event for event in events if event["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (3000, 3000)
    offsets = {(e["partition"], e["offset"]) for e in events if e["name"] == "producer_send_success"}
    assert len(offsets) == 3000


def test_a_consumer_in_a_fetch_session_reads_all_of_it(broker: millstream.Broker) -> None:
    tool(broker, "VerifiableProducer", "--topic", "all", "--max-messages", "20000", "--acks", "1")
    out = tool(
        broker, "ConsumerPerformance", "--topic", "all", "--num-records", "20000", "--timeout", "20000"
    )
    assert out.splitlines()[-1].split(", ")[4] == "20000"
    offsets = [
        int(line.rsplit(":", 1)[1]) for line in tool(broker, "GetOffsetShell", "--topic", "all").split()
    ]
    assert sum(offsets) == 20000


def test_records_reach_a_waiting_consumer_one_at_a_time(broker: millstream.Broker) -> None:
    out = tool(
        broker, "EndToEndLatency", "--topic", "live", "--num-records", "200", "--producer-acks", "all",
        "--record-size", "100",
    )  # fmt: skip
    assert "Percentiles" in out
