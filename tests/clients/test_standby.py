"""A standby has what its leader has, and takes its place: seen by clients that are not ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.client.connect import Connection
from millstream.client.protocol.standby import BrokerPair
from tests.support.apache_kafka import apache_kafka, free_port, run_tool
from tests.support.command import CommandLine
from tests.support.maven import JarsUnavailable
from tests.support.pair import files_of, leader_and_standby, status, wait_until_whole
from tests.support.serve import ServeProcess
from tests.support.sizes import bytes_of
from tests.support.topics import consume, create_topic, delete_records, delete_topic, produce, values
from tests.support.waiting import wait_for
from tests.support.wire_client import CREATE_TOPICS, LIST_OFFSETS, PRODUCE, WireClient, answer
from tests.support.wire_client import produce as produce_frame

Pair = tuple[ServeProcess, ServeProcess]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with leader_and_standby(tmp_path) as both:
        yield both


def both(pair: Pair) -> str:
    return f"{pair[0].address},{pair[1].address}"


def promote(standby: ServeProcess, *options: str) -> Any:
    return CommandLine(standby.address).json("promote", *options)


def in_transactions(address: str, topic: str, name: str, count: int) -> None:
    """Every other one is aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions(20)
    for number in range(count):
        producer.begin_transaction()
        producer.produce(topic, f"{name}-{number}".encode(), partition=number % 2)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)


def read_committed(address: str, topic: str, partitions: int = 2) -> list[bytes]:
    reader = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found, ended = [], set()
    while len(ended) < partitions:
        message = reader.poll(90)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        else:
            found.append(message.value())
    reader.close()
    return found


def first_offset(broker: ServeProcess, topic: str) -> int:
    """As this very broker has it, also if another one leads."""
    wanted = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
    with WireClient(broker.address) as client:
        answer = client.call(LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": topic, "partitions": [wanted]}])
    return int(answer.topics[0].partitions[0].offset)


def test_every_kind_of_record_is_copied_byte_for_byte_and_kafkas_tool_reads_it(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    create_topic(leader.address, "empty", 3)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(leader.address, topic, values(*range(500)), **{"compression.type": codec})
    produce(leader.address, topic, values(*range(500)), 1, **{"enable.idempotence": True})
    in_transactions(leader.address, topic, "x", 10)
    wait_until_whole(leader, standby)
    assert files_of(standby) == files_of(leader)
    assert len(files_of(leader)) >= 6
    segments = sorted((standby.data or Path()).glob(f"{topic}-*/*.log"))
    try:
        done = run_tool("DumpLogSegments", "--files", ",".join(map(str, segments)), "--deep-iteration")
    except JarsUnavailable:
        return
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout


def test_a_compacted_topic_is_compacted_on_both_and_has_the_same_records(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": "50", "topic.segment.bytes": "20000"}
    leader = ServeProcess(tmp_path / "leader", settings=settings)
    standby = ServeProcess(tmp_path / "standby", settings={**settings, "follow": leader.address})
    with leader, standby:
        admin = AdminClient({"bootstrap.servers": leader.address})
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topics([NewTopic("table", 1, 1, config=config)])["table"].result(60)
        producer = Producer({"bootstrap.servers": leader.address})
        wanted = {f"key {number % 20}".encode(): b"%d" % number for number in range(5000)}
        for number in range(5000):
            producer.produce("table", b"%d" % number, f"key {number % 20}".encode())
            if number % 50 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0

        def sizes() -> list[int]:
            return [bytes_of((b.data or Path()) / "table-0", "*.log") for b in (leader, standby)]

        wait_until_whole(leader, standby)
        wait_for(lambda: max(sizes()) < 45_000, timeout=90, what="both are compacted")
        leader.kill()
        standby.kill()
        standby.start()  # a copy with gaps is opened after a crash
        promote(standby, "--force")
        table: dict[bytes, bytes] = {}
        reader = Consumer(
            {"bootstrap.servers": standby.address, "group.id": "r", "enable.partition.eof": True}
        )
        reader.assign([TopicPartition("table", 0, 0)])
        while (message := reader.poll(90)) is not None and not message.error():
            table[message.key()] = message.value()
        reader.close()
        assert table == wanted
        assert list((standby.data or Path()).glob("table-0/*.cleaned")) == []


def test_deletion_trimming_growth_and_a_topic_made_anew_are_copied(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address, "kept")
    again = create_topic(leader.address, "again")
    gone = create_topic(leader.address, "gone")
    for name in (topic, again, gone):
        produce(leader.address, name, values(*range(100)))
    wait_until_whole(leader, standby)
    delete_topic(leader.address, gone)
    delete_topic(leader.address, again)
    create_topic(leader.address, again, 1)
    produce(leader.address, again, values("new"))
    delete_records(leader.address, topic, 0, 40)
    CommandLine(leader.address).ok("topic", "add-partitions", topic, "--total", "4")
    wait_until_whole(leader, standby)
    # Where a log begins is looked for once a second.
    wait_for(lambda: first_offset(standby, topic) == 40, what="the copy begins at 40")
    assert files_of(standby) == files_of(leader)
    assert not list((standby.data or Path()).glob("gone-0"))
    leader.kill()
    assert promote(standby)["promoted"]
    assert [record.value for _, record in consume(standby.address, again, 1)] == [b"new"]
    assert len(consume(standby.address, topic, 4)) == 60


def test_groups_go_on_from_their_offsets_and_producers_without_duplicates(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    produce(leader.address, topic, values(*range(200)))
    reader = Consumer({"bootstrap.servers": leader.address, "group.id": "g", "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 150, metadata="half way")
    reader.commit(offsets=[place], asynchronous=False)
    reader.close()
    writer = Producer({"bootstrap.servers": both(pair), "enable.idempotence": True, "log_level": 0})
    for number in range(100):
        writer.produce(topic, f"w{number}", partition=1)
    assert writer.flush(60) == 0
    wait_until_whole(leader, standby)
    leader.kill()
    assert promote(standby) == {"promoted": True, "reasons": [], "lost": [], "note": _anything()}
    for number in range(100, 200):
        writer.produce(topic, f"w{number}", partition=1)
    assert writer.flush(30) == 0
    written = [record.value for index, record in consume(standby.address, topic) if index == 1]
    assert written == [f"w{number}".encode() for number in range(200)]
    reader = Consumer({"bootstrap.servers": standby.address, "group.id": "g", "log_level": 0})
    (found,) = reader.committed([TopicPartition(topic, 0)], 20)
    assert (found.offset, found.metadata) == (150, "half way")
    reader.close()


def _anything() -> Any:
    class Anything:
        def __eq__(self, other: object) -> bool:
            return bool(other)

    return Anything()


def test_transactions_go_on_at_the_standby(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    writer = Producer({"bootstrap.servers": both(pair), "transactional.id": "x", "log_level": 0})
    writer.init_transactions(20)
    writer.begin_transaction()
    writer.produce(topic, b"before", partition=0)
    writer.commit_transaction(20)
    left_open = Producer({"bootstrap.servers": leader.address, "transactional.id": "y", "log_level": 0})
    left_open.init_transactions(20)
    left_open.begin_transaction()
    left_open.produce(topic, b"never committed", partition=0)
    left_open.flush(60)
    wait_until_whole(leader, standby)
    leader.kill()
    promote(standby)
    writer.begin_transaction()
    writer.produce(topic, b"after", partition=1)
    writer.commit_transaction(30)
    successor = Producer({"bootstrap.servers": standby.address, "transactional.id": "y"})
    successor.init_transactions(20)  # aborts what was open
    in_transactions(standby.address, topic, "z", 2)
    assert sorted(read_committed(standby.address, topic)) == [b"after", b"before", b"z-0"]


def test_producer_ids_are_never_given_out_twice(pair: Pair) -> None:
    leader, standby = pair
    create_topic(leader.address, "t", 1)

    produce(leader.address, "t", values("a"), **{"enable.idempotence": True})
    before = producer_ids(leader, "t")
    wait_until_whole(leader, standby)
    # This one gets its id from the leader, and the standby never hears of it.
    produce(leader.address, "t", values("b"), **{"enable.idempotence": True})
    leader.kill()
    promote(standby, "--force")
    produce(standby.address, "t", values("c"), **{"enable.idempotence": True})
    assert max(producer_ids(standby, "t")) > 2**32 > max(before)


def producer_ids(broker: ServeProcess, topic: str) -> set[int]:
    with WireClient(broker.address) as client:
        answer = client.call(61, 0, topics=[{"name": topic, "partition_indexes": [0]}])
    return {p.producer_id for p in answer.topics[0].partitions[0].active_producers}


def test_clients_that_ask_a_standby_are_sent_to_the_leader_and_those_that_stay_are_refused(
    pair: Pair,
) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    wait_until_whole(leader, standby)
    produce(standby.address, topic, values("through the standby's address"))
    assert len(consume(leader.address, topic)) == 1
    wait_until_whole(leader, standby)
    with WireClient(standby.address) as client:
        client.send(produce_frame(1, topic))
        _, refused = answer(PRODUCE, 9, client.receive())
        assert refused.responses[0].partition_responses[0].error_code.name == "not_leader_or_follower"
        made = client.call(
            CREATE_TOPICS, 7, topics=[{"name": "n", "num_partitions": 1, "replication_factor": 1}], timeout=9
        )
        assert made.topics[0].error_code.name == "not_controller"
        assert leader.address in made.topics[0].error_message


def test_a_leader_that_answers_is_not_replaced_unless_forced_and_then_nothing_is_lost(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    writer = Producer({"bootstrap.servers": both(pair), "enable.idempotence": True, "log_level": 0})
    for number in range(300):
        writer.produce(topic, str(number), partition=0)
    assert writer.flush(60) == 0
    wait_until_whole(leader, standby)
    refused = CommandLine(standby.address).refused("promote")
    assert f"the leader at {leader.address} answers" in refused
    assert promote(standby, "--force")["lost"] == []
    assert status(leader)["role"] == "fenced"
    for number in range(300, 400):
        writer.produce(topic, str(number), partition=0)
    assert writer.flush(30) == 0
    assert [r.value for _, r in consume(standby.address, topic)] == [str(n).encode() for n in range(400)]
    assert leader.stop() == 0
    again = CommandLine(leader.address).refused(
        "serve", "--data", str(leader.data), "--listen", leader.address
    )
    assert f"--follow {standby.address}" in again


def test_an_old_leader_follows_the_new_one_and_keeps_aside_what_only_it_had(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    produce(leader.address, topic, values(*range(50)))
    wait_until_whole(leader, standby)
    standby.kill()
    produce(leader.address, topic, values("lost 1", "lost 2"))
    leader.kill()
    refused = CommandLine("").refused("promote", "--data", str(standby.data))
    assert "not shut down cleanly" in refused
    CommandLine("").ok("promote", "--data", str(standby.data), "--force")
    new_leader = ServeProcess(standby.data)
    returned = ServeProcess(leader.data, settings={"follow": new_leader.address})
    with new_leader:
        produce(new_leader.address, topic, values("new"))
        with returned:
            wait_until_whole(new_leader, returned)
            assert files_of(returned) == files_of(new_leader)
            (aside,) = (leader.data or Path()).glob(f"{topic}-0.*-cut/*.log")
            assert b"lost 1" in aside.read_bytes()
            assert b"lost 2" in aside.read_bytes()
            assert "the last 2 records here, from offset 50 on" in returned.logged()
        found = [record.value for _, record in consume(new_leader.address, topic)]
        assert found == [*(str(n).encode() for n in range(50)), b"new"]


def test_what_is_known_to_be_missing_keeps_a_standby_from_leading(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    produce(leader.address, topic, values("a"))
    wait_until_whole(leader, standby)
    assert standby.stop() == 0
    produce(leader.address, topic, values("b"))
    leader.kill()
    refused = CommandLine("").refused("promote", "--data", str(standby.data))
    assert "while the leader was running" in refused


def test_apache_kafka_is_refused_in_words(tmp_path: Path) -> None:
    try:
        with apache_kafka(quick=True) as kafka:
            arguments = ("serve", "--data", str(tmp_path / "copy"), "--follow", kafka.address)
            done = CommandLine(kafka.address).run(*arguments, "--listen", f"127.0.0.1:{free_port()}")
            assert done.returncode == 1
            assert b"it is Apache Kafka" in done.stderr
            message = CommandLine(kafka.address).refused("standby", "status")
            assert "it is Apache Kafka, which replicates by itself" in message
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


def test_a_standby_of_another_cluster_is_refused(pair: Pair, tmp_path: Path) -> None:
    leader, _ = pair
    with ServeProcess(tmp_path / "other") as other:
        create_topic(other.address)
    arguments = ("serve", "--data", str(tmp_path / "other"), "--follow", leader.address)
    done = CommandLine("").run(*arguments, "--listen", f"127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert b"give an empty directory" in done.stderr


def test_status_says_who_leads_and_how_far_the_copy_is(pair: Pair) -> None:
    leader, standby = pair
    create_topic(leader.address)
    wait_until_whole(leader, standby)
    assert f"is a standby of {leader.address}" in CommandLine(standby.address).ok("standby", "status")
    assert "leads" in CommandLine(leader.address).ok("standby", "status")
    leader.kill()
    wait_for(lambda: not status(standby)["standby"]["connected"], what="the standby notices")
    done = CommandLine(standby.address).run("standby", "status")
    assert done.returncode == 1
    assert b"last heard from" in done.stdout


def test_status_and_promotion_name_the_same_records_and_no_others_are_lost(pair: Pair) -> None:
    """The leader is killed under load, so that the copy lacks what it was told of last."""
    leader, standby = pair
    topic = create_topic(leader.address, partitions=1)
    wait_until_whole(leader, standby)
    writer = Producer({"bootstrap.servers": leader.address, "log_level": 0, "linger.ms": 0})
    acknowledged = 0

    def count(error: KafkaError | None, message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    while acknowledged < 5000:
        try:
            writer.produce(topic, b"x", partition=0, on_delivery=count)
        except BufferError:  # the broker is slower than the queue is long
            writer.poll(0.1)
        writer.poll(0)
    leader.kill()
    writer.purge()
    writer.flush(60)
    wait_for(lambda: not status(standby)["standby"]["connected"], what="the standby notices")
    found = status(standby)["standby"]
    assert found["unknown_since_ms"] is not None
    verdict = BrokerPair(Connection(standby.address)).promote()
    lost = [entry for entry in verdict.lost if entry[0] == topic]
    assert [tuple(entry) for entry in found["missing"]] == list(verdict.lost)
    assert found["behind_records"] == sum(end - first for _, _, first, end in verdict.lost)
    assert verdict.allowed == (not verdict.lost and not found["behind_commits"])
    assert "what it acknowledged after that is unknown" in verdict.note
    if not verdict.allowed:
        told = f"{found['behind_records']} records that the leader had are not here"
        assert not verdict.lost or told in verdict.reasons[0]
        assert BrokerPair(Connection(standby.address)).promote(force=True).lost == verdict.lost
    kept = len(consume(standby.address, topic, 1))
    assert not lost or kept == lost[0][2]


def test_a_leader_that_stops_in_order_leaves_nothing_unknown(pair: Pair) -> None:
    leader, standby = pair
    topic = create_topic(leader.address)
    wait_until_whole(leader, standby)
    produce(leader.address, topic, values(*range(500)))
    assert leader.stop() == 0
    found = status(standby)["standby"]
    assert (found["behind_records"], found["behind_commits"], found["unknown_since_ms"]) == (0, 0, None)
    verdict = BrokerPair(Connection(standby.address)).promote()
    assert verdict.allowed
    assert "shut down cleanly" in verdict.note
    assert len(consume(standby.address, topic)) == 500


def test_clients_are_told_of_both_brokers_under_ids_that_stay(pair: Pair) -> None:
    """A client that knew the leader alone would have nobody to ask when it is lost; and one that finds
    another broker under the id of the old one goes on with the connection it has."""
    leader, standby = pair
    create_topic(leader.address, "t", 1)
    wait_until_whole(leader, standby)
    wanted = {0: leader.address, 1: standby.address}
    assert brokers_of(leader, "t") == (wanted, 0)
    assert brokers_of(standby, "t") == (wanted, 0)
    promote(standby, "--force")
    assert brokers_of(leader, "t") == (wanted, 1)
    assert brokers_of(standby, "t") == ({1: standby.address}, 1)
    leader.kill()
    with ServeProcess(leader.data, port=leader.port, settings={"follow": standby.address}) as returned:
        wait_until_whole(standby, returned)
        assert brokers_of(returned, "t") == (wanted, 1)


def brokers_of(asked: ServeProcess, topic: str) -> tuple[dict[int, str], int]:
    """The brokers by id, and which of them leads the topic."""
    with WireClient(asked.address) as client:
        answer = client.call(
            3, 9, topics=[{"name": topic}], allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
        )  # fmt: skip
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    return brokers, answer.topics[0].partitions[0].leader_id


def test_a_standby_gives_producer_ids_of_its_leaders_and_denies_no_topic(pair: Pair) -> None:
    """librdkafka asks any broker that it is connected to for an id, and fails the records of a topic that is
    said not to exist."""
    leader, standby = pair
    create_topic(leader.address, "t", 1)
    wait_until_whole(leader, standby)
    asked = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    ids = []
    for broker in (leader, standby, leader, standby):
        with WireClient(broker.address) as client:
            answer = client.call(22, 4, **asked)
        assert answer.error_code.name == "none"
        ids.append(answer.producer_id)
    assert len(set(ids)) == 4
    with WireClient(standby.address) as client:
        told = client.call(
            3, 9, topics=[{"name": "of-the-leader"}], allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
        )  # fmt: skip
        assert told.topics[0].error_code.name == "leader_not_available"
        leader.kill()
        assert client.call(22, 4, **asked).error_code.name == "coordinator_not_available"
