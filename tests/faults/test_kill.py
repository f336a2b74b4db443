"""kill -9 under load, again and again: what was acknowledged is there, in order, and once."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for

KILLS = 50
PARTITIONS = 3
IMPATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "log_level": 0,
}


class Writer:
    """A producer that numbers its records per partition and remembers which were acknowledged, and where."""

    def __init__(self, address: str, topic: str, **settings: object) -> None:
        self.topic = topic
        self.acknowledged: dict[int, dict[int, int]] = {p: {} for p in range(PARTITIONS)}  # number: offset
        self.count = 0
        self.failures: list[KafkaError] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "queue.buffering.max.messages": 500,
                **IMPATIENT,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        self.acknowledged[message.partition()][int(message.value())] = message.offset()
        self.count += 1

    def _send(self, partition: int, number: int) -> None:
        while True:
            try:
                value = str(number).encode()
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.01)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                self._send(partition, number)
            number += 1
            self._producer.poll(0)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "every record is acknowledged once the broker stays up"


class Watcher:
    """A reader that follows all partitions through every restart, and remembers what stood at each offset."""

    def __init__(self, address: str, topic: str) -> None:
        self.seen: dict[tuple[int, int], bytes] = {}
        self.contradictions: list[tuple[int, int, bytes, bytes]] = []
        self._stop = threading.Event()
        settings = {"bootstrap.servers": address, "group.id": "watcher", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "auto.offset.reset": "error", **IMPATIENT})
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error():
                    continue  # the broker is away; it comes back
                place = (message.partition(), message.offset())
                before = self.seen.setdefault(place, message.value())
                if before != message.value():
                    self.contradictions.append((*place, before, message.value()))

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def read_all(address: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Every record as (offset, number), by partition, up to the end of the log."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "check", "auto.offset.reset": "error"})
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])

    def complete() -> bool:
        for message in consumer.consume(10_000, timeout=0.2):
            assert message.error() is None, message.error()
            found[message.partition()].append((message.offset(), int(message.value())))
        return all(p in found and found[p][-1][0] + 1 == end for p, end in ends.items() if end)

    wait_for(complete, timeout=60, what="the whole log was read")
    consumer.close()
    return found


@pytest.mark.parametrize("acks", ["all", "1"])
def test_killed_under_load_nothing_acknowledged_is_lost_or_doubled_or_reordered(
    tmp_path: Path, acks: str
) -> None:
    broker = ServeProcess(tmp_path / "data", settings={"topic.segment.bytes": "100000"})
    with broker:
        topic = "numbers"
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
        # librdkafka insists on acks=all for idempotence; with acks=1 order is kept by one request in flight.
        idempotent = acks == "all"
        settings = {"enable.idempotence": True} if idempotent else {"acks": 1, "max.in.flight": 1}
        writer, watcher = Writer(broker.address, topic, **settings), Watcher(broker.address, topic)
        writer.start()
        watcher.start()
        try:
            for round_number in range(KILLS if idempotent else KILLS // 5):
                before = writer.count
                wait_for(
                    lambda before=before: writer.count > before + 30, timeout=60, what="more acknowledgements"
                )
                broker.kill()
                broker.start()
                assert not writer.failures, f"after kill {round_number + 1}: {writer.failures[0]}"
        finally:
            writer.finish()
            watcher.finish()
        log = read_all(broker.address, topic)

    assert watcher.contradictions == []
    for partition, entries in log.items():
        offsets = [offset for offset, _ in entries]
        numbers = [number for _, number in entries]
        assert offsets == list(range(len(entries))), "offsets have no gap and none was given twice"
        at = dict(entries)
        for number, offset in writer.acknowledged[partition].items():
            assert at.get(offset) == number, (
                f"{partition}/{offset}: acknowledged {number}, holds {at.get(offset)}"
            )
        if idempotent:
            assert numbers == list(range(len(numbers))), "every record once, in the order it was sent"
        else:
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), "in the order it was sent, repeats aside"
    for (partition, offset), value in watcher.seen.items():
        assert log[partition][offset][1] == int(value), "what a live reader saw is what the log holds"
