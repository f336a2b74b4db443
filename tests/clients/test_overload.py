"""Producers faster than their consumers, under each policy: real clients, and what was lost or held counted.

The policies are ours alone; Apache Kafka has only the first.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from tests.support.apache_kafka import free_port, jars, java
from tests.support.command import CommandLine
from tests.support.maven import JarsUnavailable
from tests.support.serve import ServeProcess
from tests.support.sizes import bytes_of
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient

VALUE = bytes(1000)
LIMIT = 200  # records that a group may be behind


class Broker(ServeProcess):
    """With metrics."""

    def __init__(self, data: Path) -> None:
        self._http = f"127.0.0.1:{free_port()}"
        super().__init__(data, settings={"http.listen": self._http, "group.min.session.timeout.ms": "500"})

    def metric(self, name: str, topic: str) -> float:
        with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith(f'{name}{{topic="{topic}"}}')]
        return float(found[0].split()[-1]) if found else 0.0

    def held(self, topic: str) -> int:
        """How many requests wait for a topic just now."""
        return int(self.metric("millstream_overload_waiting_requests", topic))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


class SlowConsumer:
    """A member of a group that is slower than its producers, on any machine: it takes records only while it
    ``may`` (never, unless told), and all of them once the block asks it to ``catch_up``. It commits as it
    goes."""

    def __init__(
        self,
        address: str,
        group: str,
        topic: str,
        *,
        may: Callable[[], bool] = lambda: False,
        **settings: Any,
    ) -> None:
        self.consumed: list[int] = []  # offsets
        self.keys: list[tuple[int, bytes]] = []
        self.longest = 0  # records it was ever behind
        self.made_wait = 0.0  # seconds that somebody was held for at least
        self._may = may
        self._hurry = threading.Event()
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 64,
                "fetch.queue.backoff.ms": 10,
                **settings,
            }
        )
        self._place = TopicPartition(topic, 0)
        self._assigned = threading.Event()
        self._consumer.subscribe([topic], on_assign=lambda *_: self._assigned.set())
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> SlowConsumer:
        def assigned() -> bool:
            assert self._consumer.poll(0.1) is None, "a topic that is not empty"
            return self._assigned.is_set()

        wait_for(assigned, timeout=60, what="an assignment")
        self._place.offset = 0
        self._consumer.commit(offsets=[self._place], asynchronous=False)  # waited for from now on
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def catch_up(self, end: int) -> None:
        """Read on, up to an offset."""
        self._hurry.set()
        wait_for(lambda: self.consumed and self.consumed[-1] == end - 1, timeout=60, what=f"offset {end}")

    def _work(self) -> None:
        while not self._stop.is_set():
            if not (self._hurry.is_set() or self._may()):
                self._stop.wait(0.01)
                continue
            since = time.monotonic()
            if not self._hurry.is_set():  # those who are held stay so until the commit
                end = self._consumer.get_watermark_offsets(self._place, timeout=60)[1]
                self.longest = max(self.longest, end - len(self.consumed))
            messages = [m for m in self._consumer.consume(50, 0.05) if m.error() is None]
            if not messages:
                continue
            self.consumed += [message.offset() for message in messages]
            self.keys += [(message.offset(), message.key()) for message in messages]
            if not self._hurry.is_set():
                self.made_wait += time.monotonic() - since
            with contextlib.suppress(KafkaException):
                self._consumer.commit(asynchronous=False)


def send(address: str, topic: str, count: int, key: bytes = b"k", **settings: Any) -> list[Any]:
    """Produce as fast as the broker lets; the errors."""
    errors: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": address, "batch.num.messages": 100, **settings})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(60) == 0
    return errors


def end_of(address: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends"})
    try:
        bounds: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=90)
        return bounds
    finally:
        consumer.close()


def test_a_log_that_buffers_loses_nothing_and_takes_no_memory(broker: Broker, name: str) -> None:
    create_topic(broker.address, name, 1)
    with SlowConsumer(broker.address, name, name) as consumer:
        send(broker.address, name, 100)
        before = broker.resident_kb()
        assert send(broker.address, name, 30_000) == []
        assert end_of(broker.address, name) == (0, 30_100)
        assert broker.resident_kb() - before < 16_000  # of 30 MB
        consumer.catch_up(30_100)
        assert consumer.consumed == list(range(30_100))


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_a_ring_drops_the_oldest_and_stays_within_its_bytes(broker: Broker, name: str, storage: str) -> None:
    ring = 2_000_000
    policy = {
        "millstream.overload": "drop",
        "millstream.overload.bytes": str(ring),
        "millstream.storage": storage,
    }
    create_topic(broker.address, name, 1, policy)
    with SlowConsumer(broker.address, name, name) as consumer:
        send(broker.address, name, 3000)
        before = broker.resident_kb()
        assert send(broker.address, name, 27_000) == []
        start, end = end_of(broker.address, name)
        assert end == 30_000
        assert broker.resident_kb() - before < 16_000  # of 27 MB
        assert broker.metric("millstream_overload_dropped_records_total", name) == start > 20_000
        assert broker.metric("millstream_overload_dropped_bytes_total", name) > start * len(VALUE)
        assert (end - start) * len(VALUE) > ring * 0.75
        if storage == "disk":
            assert broker.data is not None
            assert bytes_of(broker.data / f"{name}-0") <= ring
        # The consumer fell off the ring's end and goes on where its reset policy says.
        consumer.catch_up(end)
        assert consumer.consumed == sorted(set(consumer.consumed))
    described = CommandLine(broker.address).json("topic", "describe", name)[0]["overload"]
    assert described == {
        "policy": "drop",
        "state": f"{start} records ({described['state'].split('(')[1].split()[0]} bytes) were dropped since "
        "the start",
    }


def backpressure(group: str, **changes: str) -> dict[str, str]:
    return {
        "millstream.overload": "backpressure",
        "millstream.overload.groups": group,
        "millstream.overload.lag.records": str(LIMIT),
        **{f"millstream.overload.{key}": value for key, value in changes.items()},
    }


@pytest.mark.parametrize(("idempotent", "protocol"), [(False, "classic"), (True, "consumer")])
def test_a_producer_is_held_while_its_group_is_behind(
    broker: Broker, name: str, idempotent: bool, protocol: str
) -> None:
    # A client that gives the broker a minute for a request is held for half of it.
    create_topic(broker.address, name, 1, backpressure(name, **{"hold.ms": "60000"}))
    settings = {"enable.idempotence": idempotent, "request.timeout.ms": 60_000}
    group = {"group.protocol": protocol}
    with SlowConsumer(broker.address, name, name, may=lambda: broker.held(name) > 0, **group) as consumer:
        send(broker.address, name, 100)
        before = broker.resident_kb()
        assert send(broker.address, name, 3000, **settings) == []
        assert broker.resident_kb() - before < 16_000
        assert LIMIT < consumer.longest <= LIMIT + 100  # one request of the producer's more
        # A held request is released once there is room for one, and the next request fills it again.
        assert broker.metric("millstream_overload_held_requests_total", name) > 5
        assert broker.metric("millstream_overload_held_seconds_total", name) > consumer.made_wait > 0
        consumer.catch_up(3100)
        assert consumer.consumed == list(range(3100))


def test_producers_share_what_room_there_is(broker: Broker, name: str) -> None:
    create_topic(broker.address, name, 1, backpressure(name))
    failed: list[Any] = []

    def one(who: bytes) -> None:
        failed.extend(send(broker.address, name, 800, who))

    begun = threading.Event()

    def may() -> bool:
        held = broker.held(name)
        if held == 4:
            begun.set()
        return begun.is_set() and held > 0

    with SlowConsumer(broker.address, name, name, may=may) as consumer:
        threads = [threading.Thread(target=one, args=(who,)) for who in (b"a", b"b", b"c", b"d")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        consumer.catch_up(3200)
    last = {key: offset for offset, key in consumer.keys}
    assert len(last) == 4
    # None of them was through while another one had hardly begun.
    assert min(last.values()) > 3200 / 3


STANDS_STILL = """
import sys, threading
from confluent_kafka import Consumer, TopicPartition
address, name = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": address, "group.id": name, "session.timeout.ms": 2000,
                     "heartbeat.interval.ms": 200})
assigned = threading.Event()
consumer.subscribe([name], on_assign=lambda *_: assigned.set())
while not assigned.is_set():
    consumer.poll(0.1)
consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
print("assigned", flush=True)
threading.Event().wait()
"""


def test_a_consumer_that_dies_releases_its_producers_when_its_session_ends(broker: Broker, name: str) -> None:
    create_topic(broker.address, name, 1, backpressure(name, **{"hold.ms": "60000"}))
    member = subprocess.Popen(
        [sys.executable, "-c", STANDS_STILL, broker.address, name], stdout=subprocess.PIPE, text=True
    )
    assert member.stdout is not None
    failed: list[Any] = []
    producer = threading.Thread(target=lambda: failed.extend(send(broker.address, name, 1000)))
    try:
        assert member.stdout.readline()
        producer.start()
        wait_for(lambda: broker.held(name) > 0, timeout=60, what="a producer that is held")
        assert "behind" in state(broker, name)
        member.kill()
        producer.join()  # once its two seconds are over
        assert failed == []
        assert state(broker, name).startswith("no producer is held: no group")
    finally:
        member.kill()
        member.wait()
        member.stdout.close()


def state(broker: Broker, topic: str) -> str:
    return str(CommandLine(broker.address).json("topic", "describe", topic)[0]["overload"]["state"])


def test_a_transaction_larger_than_the_limit_is_not_held_for_its_own_records(
    broker: Broker, name: str
) -> None:
    create_topic(broker.address, name, 1, backpressure(name, **{"hold.ms": "60000"}))
    settings = {"isolation.level": "read_committed"}
    with SlowConsumer(broker.address, name, name, may=lambda: broker.held(name) > 0, **settings) as consumer:
        producer = Producer(
            {"bootstrap.servers": broker.address, "transactional.id": name, "batch.num.messages": 100}
        )
        producer.init_transactions(20)
        for _ in range(3):
            producer.begin_transaction()
            for _ in range(5 * LIMIT):
                producer.produce(name, VALUE)
                producer.poll(0)
            producer.commit_transaction(30)
        consumer.catch_up(15 * LIMIT + 2)
        # The second and the third waited for the first to be read.
        assert broker.metric("millstream_overload_held_requests_total", name) > 0


def test_kafka_python_with_its_defaults_is_held_too(broker: Broker, name: str) -> None:
    create_topic(broker.address, name, 1, backpressure(name))
    with SlowConsumer(broker.address, name, name, may=lambda: broker.held(name) > 0) as consumer:
        producer = KafkaProducer(bootstrap_servers=broker.address)
        sent = [producer.send(name, VALUE) for _ in range(2000)]
        producer.flush(60)
        assert [future.get(1).offset for future in sent] == list(range(2000))
        producer.close()
        assert broker.metric("millstream_overload_held_requests_total", name) > 0
        consumer.catch_up(2000)


def test_java_s_producer_is_held_and_shows_it_as_throttled(broker: Broker, name: str) -> None:
    try:
        jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    create_topic(broker.address, name, 1, backpressure(name))
    with SlowConsumer(broker.address, name, name, may=lambda: broker.held(name) > 0) as consumer:
        command = java(
            "org.apache.kafka.tools.ProducerPerformance",
            *f"--topic {name} --num-records 2000 --record-size 1000 --throughput -1".split(),
            *f"--bootstrap-server {broker.address} --print-metrics".split(),
        )
        ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
        assert ended.returncode == 0, ended.stderr
        throttled = next(line for line in ended.stdout.splitlines() if "produce-throttle-time-max" in line)
        assert float(throttled.split()[-1]) > 0
        assert "Exception" not in ended.stdout + ended.stderr
        consumer.catch_up(2000)


def test_a_client_over_its_quota_is_throttled_and_told_so(broker: Broker, name: str) -> None:
    create_topic(broker.address, name, 1)
    with WireClient(broker.address) as admin:
        changed = admin.call(
            49,
            1,
            entries=[
                {
                    "entity": [{"entity_type": "client-id", "entity_name": name}],
                    "ops": [
                        {"key": key, "value": 100_000.0, "remove": False}
                        for key in ("producer_byte_rate", "consumer_byte_rate")
                    ],
                }
            ],
            validate_only=False,
        )
        assert changed.entries[0].error_code.value == 0
    throttled: list[float] = []
    settings = {"client.id": name, "throttle_cb": lambda event: throttled.append(event.throttle_time)}
    assert send(broker.address, name, 1100, **settings) == []  # 1.1 MB: ten seconds' worth is 1 MB
    assert max(throttled) > 0
    throttled.clear()
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": name, **settings})
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        found: list[int] = []

        def all_there() -> bool:
            found.extend(message.offset() for message in consumer.consume(500, 0.1))
            return len(found) >= 1100

        wait_for(all_there, timeout=60, what="every record")
        assert found == list(range(1100))
        assert max(throttled) > 0
    finally:
        consumer.close()
    assert send(broker.address, name, 1100, **{"client.id": "another"}) == []
