"""``min.insync.replicas=2``: what is acknowledged is on the standby too, by Kafka's rules."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.command import CommandLine
from tests.support.pair import leader_and_standby, status, wait_until_whole
from tests.support.serve import ServeProcess
from tests.support.topics import consume, create_topic
from tests.support.waiting import wait_for
from tests.support.wire_client import OFFSET_COMMIT, PRODUCE, WireClient, answer
from tests.support.wire_client import produce as produce_frame

Pair = tuple[ServeProcess, ServeProcess]
TWO = {"min.insync.replicas": "2"}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with leader_and_standby(tmp_path) as both:
        yield both


def produced(
    client: WireClient, topic: str, *, acks: int = -1, timeout: int = 5000
) -> tuple[str, str | None]:
    """The error of a Produce, and its message."""
    client.send(produce_frame(1, topic, acks=acks, timeout=timeout))
    _, told = answer(PRODUCE, 9, client.receive())
    result = told.responses[0].partition_responses[0]
    return result.error_code.name, result.error_message


def committed(client: WireClient, group: str, offset: int) -> str:
    """The error of an OffsetCommit from outside the group's members."""
    told = client.call(
        OFFSET_COMMIT,
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    )
    name: str = told.topics[0].partitions[0].error_code.name
    return name


def behind(leader: ServeProcess) -> int:
    (follower,) = status(leader)["followers"]
    return int(follower["behind_records"])


def test_a_record_is_acknowledged_when_the_standby_has_it(pair: Pair) -> None:
    leader, standby = pair
    create_topic(leader.address, "t", 1, TWO)
    wait_until_whole(leader, standby)
    with WireClient(leader.address) as client:
        for number in range(20):
            assert produced(client, "t") == ("none", None)
            leader_has = number + 1
            standby.process.send_signal(signal.SIGSTOP)  # nothing more comes from it
            assert behind(leader) == 0, f"record {leader_has} was acknowledged before the standby had it"
            standby.process.send_signal(signal.SIGCONT)
    leader.kill()
    CommandLine(standby.address).ok("promote", "--force")
    assert len(consume(standby.address, "t", 1)) == 20


def test_without_a_standby_acks_all_is_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "alone") as alone, WireClient(alone.address) as client:
        create_topic(alone.address, "t", 1, TWO)
        error, message = produced(client, "t")
        assert error == "not_enough_replicas"
        assert message is not None
        assert "min.insync.replicas=2, and 1 in sync" in message
        assert produced(client, "t", acks=1) == ("none", None)
        assert len(consume(alone.address, "t", 1)) == 1
        CommandLine(alone.address).ok("topic", "alter", "t", "--config", "min.insync.replicas=1")
        assert produced(client, "t") == ("none", None)


def test_a_standby_that_hangs_makes_requests_time_out_and_the_records_stay(pair: Pair) -> None:
    leader, standby = pair
    create_topic(leader.address, "t", 1, TWO)
    wait_until_whole(leader, standby)
    with WireClient(leader.address) as client:
        os.kill(standby.pid, signal.SIGSTOP)
        try:
            assert produced(client, "t", timeout=200)[0] == "request_timed_out"
            assert produced(client, "t", acks=1) == ("none", None)
        finally:
            os.kill(standby.pid, signal.SIGCONT)
        assert produced(client, "t") == ("none", None)
    assert len(consume(leader.address, "t", 1)) == 3


def test_a_standby_that_is_lost_while_requests_wait_fails_them_after_the_append(pair: Pair) -> None:
    leader, standby = pair
    create_topic(leader.address, "t", 1, TWO)
    wait_until_whole(leader, standby)
    standby.kill()
    with WireClient(leader.address) as client:
        # It counts until nothing was heard of it for ten seconds.
        assert produced(client, "t", timeout=60_000)[0] == "not_enough_replicas_after_append"
        assert produced(client, "t")[0] == "not_enough_replicas"
        standby.start()
        wait_for(lambda: produced(client, "t") == ("none", None), what="the standby is back in sync")


def test_offsets_and_commits_of_transactions_wait_for_the_standby(pair: Pair) -> None:
    leader, standby = pair
    create_topic(leader.address, "t", 1, TWO)
    wait_until_whole(leader, standby)
    reader = Consumer({"bootstrap.servers": leader.address, "group.id": "g", "log_level": 0})
    writer = Producer({"bootstrap.servers": leader.address, "transactional.id": "x", "log_level": 0})
    writer.init_transactions(30)
    for number in range(10):
        writer.begin_transaction()
        writer.produce("t", b"%d" % number, partition=0)
        writer.send_offsets_to_transaction(
            [TopicPartition("t", 0, 2 * number)], reader.consumer_group_metadata(), 30
        )
        writer.commit_transaction(30)
        reader.commit(offsets=[TopicPartition("t", 0, 2 * number + 1)], asynchronous=False)
    leader.kill()
    CommandLine(standby.address).ok("promote", "--force")
    after = Consumer(
        {
            "bootstrap.servers": standby.address,
            "group.id": "g",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    (found,) = after.committed([TopicPartition("t", 0)], 30)
    assert found.offset == 19
    after.assign([TopicPartition("t", 0, 0)])
    values = [after.poll(30).value() for _ in range(10)]
    assert values == [b"%d" % number for number in range(10)]
    # The new leader has no standby, so it may promise nothing. Asked by hand: librdkafka retries this error
    # for up to minutes, and what it raises in the end depends on what its connections did meanwhile.
    with WireClient(standby.address) as client:
        assert committed(client, "g", 20) == "coordinator_not_available"
    after.close()
    reader.close()
