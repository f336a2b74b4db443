"""A disk that fills up under producers, and one that fails to sync. Real file systems, real clients."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from millstream.console.run import Console
from tests.support.apache_kafka import free_port, java
from tests.support.command import CommandLine
from tests.support.maven import JarsUnavailable
from tests.support.serve import ServeProcess
from tests.support.small_disk import Ballast, failing_disk, small_disk
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

DISK_MB = 48
VALUE = bytes(20_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, DISK_MB) as directory:
        yield directory


class Sending:
    """A producer of numbered records, and what became of them."""

    def __init__(self, address: str, topic: str, **settings: object) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged: list[int] = []
        self.errors: list[KafkaError] = []
        self.producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "retry.backoff.max.ms": 200,
                "linger.ms": 5,
                **settings,
            }
        )

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self.producer.produce(self.topic, VALUE, b"%d" % number, on_delivery=self._delivered)
        self.sent += count
        self.producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(int(message.key()))  # type: ignore[attr-defined]

    def flush(self) -> None:
        assert self.producer.flush(60) == 0


def java_producer(address: str) -> list[str]:
    try:
        return java(
            "org.apache.kafka.tools.ProducerPerformance",
            *["--topic", "j", "--num-records", "10", "--record-size", "100", "--throughput", "-1"],
            *f"--bootstrap-server {address}".split(),
        )
    except JarsUnavailable as error:
        pytest.skip(str(error))


def numbers_in(address: str, topic: str, count: int) -> list[int]:
    """The numbers of the records of a topic, from its start; ``count`` at least."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []

        def all_there() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found.append(int(message.key()))
            return len(found) >= count

        wait_for(all_there, timeout=60, what=f"{count} records of {topic}")
        consumer.commit(offsets=[TopicPartition(topic, 0, len(found))], asynchronous=False)
        return found
    finally:
        consumer.close()


def test_a_full_disk_refuses_records_and_nothing_else_until_there_is_room(disk: Path) -> None:
    ballast = Ballast(disk / "ballast")
    ballast.take(20 << 20)
    with ServeProcess(disk / "data") as broker:
        create_topic(broker.address, "t", 1)
        create_topic(broker.address, "j", 1)
        sending = Sending(broker.address, "t")
        sending.send(2000)  # of which about half have room
        wait_for(lambda: "disk is full" in broker.logged(), timeout=60)
        sending.producer.poll(1)
        assert sending.errors == []  # the client goes on trying
        kept = len(sending.acknowledged)
        assert 0 < kept < 2000

        # Reading and committing go on; what can't be is said with what is wrong.
        assert numbers_in(broker.address, "t", kept)[:kept] == list(range(kept))
        with pytest.raises(KafkaException) as refused:
            create_topic(broker.address, "more", 1)
        assert refused.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
        assert "the disk is full" in refused.value.args[0].str()
        impatient = Sending(broker.address, "t", **{"message.timeout.ms": 500})
        impatient.send(1)
        impatient.flush()
        assert [error.code() for error in impatient.errors] == [KafkaError._MSG_TIMED_OUT]

        other = KafkaProducer(bootstrap_servers=broker.address, enable_idempotence=True)
        patient = other.send("t", b"by kafka-python", b"2000")
        javas = subprocess.Popen(java_producer(broker.address), stdout=subprocess.PIPE, text=True)

        # A broker that starts on a full disk serves what there is.
        assert broker.stop() == 0
        broker.start()
        assert numbers_in(broker.address, "t", kept)[:kept] == list(range(kept))
        assert len(sending.acknowledged) == kept

        ballast.give_back()
        sending.flush()
        assert sending.errors == []
        assert patient.get(60).topic == "t"
        out, _ = javas.communicate(timeout=400)
        assert javas.returncode == 0
        assert "10 records sent" in out
        assert sorted(numbers_in(broker.address, "t", 2001)) == list(range(2001))
        other.close()
        create_topic(broker.address, "more", 1)
        assert "there is room on the disk again" in broker.logged()
        assert "Traceback" not in broker.logged()
    assert not (disk / "data" / ".reserve").exists()


def test_a_disk_full_to_the_last_byte_is_said_when_the_broker_starts(disk: Path) -> None:
    Ballast(disk / "ballast").take_all()
    broker = ServeProcess(disk / "data")
    with pytest.raises(AssertionError, match=r"disk is full|No space left"):
        broker.start()
    assert broker.process.returncode != 0
    assert "Traceback" not in broker.logged()


def that_it_stopped_is_told(address: str, http: str) -> None:
    """The broker's monitoring says so, and so does the description of the topic."""

    def get(url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    status, said = get(f"http://{http}/readyz")
    assert status == 503
    assert "1 partition stopped: no writes" in said
    assert "t-0: the disk failed to sync" in said
    assert get(f"http://{http}/healthz")[0] == 200
    metrics = get(f"http://{http}/metrics")[1].splitlines()
    assert "millstream_partitions_stopped 1.0" in metrics
    assert 'millstream_partition_failed{partition="0",topic="t"} 1.0' in metrics
    assert "t-0: the disk failed to sync" in CommandLine(address).json("topic", "describe", "t")[0]["stopped"]
    with Console(address) as console:
        wait_for(lambda: "accepts no writes in partition 0" in get(console.url)[1], timeout=30)
        assert "1 partition stopped, no writes are taken" in get(f"{console.url}/topics/t")[1]


def test_after_a_failed_sync_a_log_takes_no_more_until_it_is_recovered(tmp_path: Path) -> None:
    http = f"127.0.0.1:{free_port()}"
    settings = {"millstream.disk.reserve.bytes": "0", "http.listen": http}
    with (
        failing_disk(tmp_path, 32) as (directory, ballast),
        ServeProcess(directory / "data", settings=settings) as broker,
    ):
        create_topic(broker.address, "t", 1)
        sending = Sending(broker.address, "t", acks="all")
        sending.send(50)
        sending.flush()
        assert sending.acknowledged == list(range(50))
        ballast.take_all()
        sending.send(400)
        wait_for(lambda: "failed to sync" in broker.logged(), timeout=60)
        sending.producer.poll(1)
        kept = len(sending.acknowledged)
        assert numbers_in(broker.address, "t", kept)[:kept] == list(range(kept))
        that_it_stopped_is_told(broker.address, http)

        ballast.give_back()  # the disk works again: the log knows better
        sending.send(1)
        sending.producer.poll(2)
        assert len(sending.acknowledged) == kept
        assert broker.stop() == 0

        broker.start()
        sending.flush()
        assert sending.errors == []
        assert numbers_in(broker.address, "t", 451) == list(range(451))
        assert "Traceback" not in broker.logged()
