"""``millstream txn``: finding and ending transactions, on both brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from millstream import client
from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.clock import SystemClock
from millstream.core.errors import ProducerFenced, RequestFailed
from millstream.records.build import Record, build_batch
from tests.support.command import CommandLine
from tests.support.topics import create_topic, produce, values
from tests.support.waiting import wait_for


@contextmanager
def left_open(address: str, name: str, topic: str) -> Iterator[client.Transactions]:
    """A transaction whose records are in two partitions, and which nobody ends."""
    with client.Transactions(address, name) as transactions:
        txn = transactions.begin()
        txn.send(topic, b"1", partition=0)
        txn.send(topic, b"2", partition=1)
        transactions._producer.flush()
        yield transactions


def test_list_shows_what_is_open_and_how_many_records_it_holds_back(
    millstream: CommandLine, address: str, name: str
) -> None:
    topic = create_topic(address, name)
    with left_open(address, name, topic):
        produce(address, topic, values(*range(5)))
        (found,) = [entry for entry in millstream.json("txn", "list") if entry["transactional_id"] == name]
        assert (found["state"], found["timeout_ms"], found["two_phase"]) == ("Ongoing", 60_000, False)
        assert 0 <= found["age_ms"] < 60_000
        assert [
            (place["partition"], place["start_offset"], place["last_stable_offset"], place["held_back"])
            for place in found["partitions"]
        ] == [(0, 0, 0, 6), (1, 0, 0, 1)]
        assert found["held_back"] == 7
        (line,) = [line for line in millstream.ok("txn", "list").splitlines() if line.startswith(name)]
        assert "Ongoing" in line
        assert f"{topic}[0], {topic}[1]" in line
        assert line.endswith("7 records")
        described = millstream.ok("txn", "describe", name)
        assert described.startswith(f"{name}: Ongoing for ")
        assert millstream.json("txn", "describe", name)["partitions"] == found["partitions"]
    assert name not in millstream.ok("txn", "list"), "leaving the block aborted it"
    (found,) = [
        entry for entry in millstream.json("txn", "list", "--all") if entry["transactional_id"] == name
    ]
    assert (found["state"], found["held_back"], found["age_ms"]) == ("CompleteAbort", 0, None)


def test_abort_ends_it_fences_its_producer_and_lets_readers_go_on(
    millstream: CommandLine, address: str, name: str
) -> None:
    topic = create_topic(address, name)
    with left_open(address, name, topic) as transactions:
        produce(address, topic, values("after"))
        refused = millstream.refused("txn", "abort", name, code=2)
        assert "Its records, among the last 3 records of" in refused
        assert "--yes" in refused
        assert millstream.ok("txn", "abort", name, "--yes") == f"aborted the transaction of {name}\n"
        seen = millstream.ok("consume", topic, "-o", ":end", "-X", "isolation.level=read_committed")
        assert seen == "after\n"
        with pytest.raises(ProducerFenced):
            transactions._current.commit()  # type: ignore[union-attr]
    assert "has no transaction open" in millstream.ok("txn", "abort", name, "--yes")


def test_an_unknown_id_is_said_with_the_nearest(millstream: CommandLine, address: str, name: str) -> None:
    with client.Transactions(address, name):
        pass
    for command in ("describe", "abort"):
        assert f"did you mean '{name}'" in millstream.refused("txn", command, f"{name}x")


def test_abort_is_told_what_to_end(millstream: CommandLine, address: str, name: str) -> None:
    topic = create_topic(address, name)
    assert "give a transactional id" in millstream.refused("txn", "abort", code=2)
    assert "give a transactional id" in millstream.refused("txn", "abort", name, "--topic", topic, code=2)
    assert "needs all of" in millstream.refused("txn", "abort", "--topic", topic, code=2)
    place = ("--topic", topic, "--partition", "0", "--start-offset")
    assert "those open: none" in millstream.refused("txn", "abort", *place, "7", code=2)
    with left_open(address, name, topic):
        assert "those open: 0" in millstream.refused("txn", "abort", *place, "7", code=2)
        refused = millstream.refused("txn", "abort", *place, "0", "--yes", code=2)
        assert f"does not hang: it belongs to '{name}'; `millstream txn abort {name}` ends it" in refused


def set_verification(address: str, value: str) -> None:
    """Whether Apache Kafka asks the coordinator about transactional records."""
    entry = ConfigEntry(
        "transaction.partition.verification.enable", value, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_one_that_no_coordinator_knows_is_found_and_ended(
    request: pytest.FixtureRequest, millstream: CommandLine, address: str, name: str
) -> None:
    """A real one: written while Apache Kafka was told not to check with the coordinator. Ours checks always,
    and aborts what it finds in a log at its start."""
    if request.node.callspec.params["address"] == "ours":
        pytest.skip("our broker lets no transaction hang")
    topic = create_topic(address, name)
    place, cluster = TopicPartition(topic, 0), Cluster(Connection.of(address))
    checked = TopicPartition(f"{name}-checked", 0)

    def written(place: TopicPartition) -> bool:
        batch = build_batch(
            [Record(None, b"lost", timestamp=SystemClock().now_ms())],
            producer_id=987_654,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        try:
            link = cluster.leader(place)
        except RequestFailed:  # a topic that was just made is not known everywhere at once
            return place == checked
        link.send_produce({place: batch}, acks=-1, timeout_ms=5000, transactional_id="nobody")
        return link.receive_produce()[0].code == 0

    set_verification(address, "false")
    try:
        wait_for(lambda: written(place), what="the setting has taken effect")
    finally:
        set_verification(address, "true")  # the broker is shared
    create_topic(address, checked.topic)
    wait_for(lambda: not written(checked), what="the setting has taken effect")
    cluster.close()
    produce(address, topic, values(1, 2))
    (found,) = [entry for entry in millstream.json("txn", "list") if entry["partitions"][0]["topic"] == topic]
    assert (found["transactional_id"], found["state"], found["held_back"]) == (None, "Hanging", 3)
    where = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    shown = millstream.run("txn", "list").stderr.decode()
    assert (
        f"producer 987654 hangs in {topic}[0]; end it with: millstream txn abort {' '.join(where)}" in shown
    )
    assert "Abort the transaction of producer 987654" in millstream.refused("txn", "abort", *where, code=2)
    assert "aborted the transaction at offset 0" in millstream.ok("txn", "abort", *where, "--yes")
    seen = millstream.ok("consume", topic, "-o", ":end", "-X", "isolation.level=read_committed")
    assert seen == "1\n2\n"
    assert topic not in millstream.ok("txn", "list")


def test_prepare_commit_and_abort_from_the_shell(
    request: pytest.FixtureRequest, millstream: CommandLine, address: str, name: str
) -> None:
    topic = create_topic(address, name)
    if request.node.callspec.params["address"] != "ours":
        refused = millstream.refused("txn", "prepare", name, "--topic", topic, stdin="a\n")
        assert "does not offer two-phase commit (KIP-939)" in refused
        return
    token = millstream.ok("txn", "prepare", name, "-t", topic, "-K", ":", stdin="a:1\nb:2\n").strip()
    (found,) = [entry for entry in millstream.json("txn", "list") if entry["transactional_id"] == name]
    assert (found["two_phase"], found["timeout_ms"]) == (True, None)
    assert (
        f"waits for a decision: millstream txn commit {token}"
        in millstream.run("txn", "list").stderr.decode()
    )
    assert "decide it first" in millstream.refused("txn", "prepare", name, "-t", topic, stdin="c\n", code=2)
    assert millstream.ok("txn", "commit", token) == f"committed the transaction of {name}\n"
    assert "was committed before; there is nothing to do" in millstream.ok("txn", "commit", token)
    assert "can't be aborted" in millstream.refused("txn", "abort", token, "--yes")
    seen = millstream.ok("consume", topic, "-o", ":end", "-f", "%k=%s\\n")
    assert sorted(seen.split()) == ["a=1", "b=2"]
    token = millstream.ok("txn", "prepare", name, "-t", topic, stdin="c\n").strip()
    assert millstream.ok("txn", "abort", token, "--yes") == f"aborted the transaction of {name}\n"
    assert "was aborted before" in millstream.ok("txn", "abort", token, "--yes")
    assert "its records are gone" in millstream.refused("txn", "commit", token)
    assert "is not a token" in millstream.refused("txn", "commit", "x", code=2)
    assert "nothing to prepare" in millstream.refused("txn", "prepare", name, "-t", topic, code=2)
